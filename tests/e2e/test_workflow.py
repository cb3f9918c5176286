"""Workflows on a real server, with real processes: their order, their values, and the rights that they need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue
from kyu.api.meta import Json, Key, Kind
from kyu.api.workflows import Workflow
from kyu.kinds import table
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Invalid
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.workflows import is_over, shell, states, status, workflow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--trust-users", "--cpu", "2") as running:
        yield running


def test_a_job_an_mpi_job_and_a_mini_cluster_are_steps_of_one_workflow(kyu: LocalKyu) -> None:
    """The sentence of the document: a workflow tool that defines a Job, an MPIJob or a MiniCluster for each step."""
    done = kyu.kyu("workflow", "run", str(EXAMPLES / "01-dag" / "workflow.yaml"), "--wait", "--timeout", "80")
    assert done.stdout == "workflow.kyu.dev/climate\n"
    found = {entry["name"]: entry for entry in status(kyu, "climate")["steps"]}
    assert {name: entry["state"] for name, entry in found.items()} == {
        "prepare": "Succeeded",
        "clean[0]": "Succeeded",
        "clean[1]": "Succeeded",
        "train": "Succeeded",
        "analyse": "Succeeded",
        "tell": "Skipped",
    }
    assert [found[f"clean[{index}]"]["output"] for index in (0, 1)] == ["cleaned north", "cleaned south"]
    for name, kind in (("train", "MPIJob"), ("analyse", "MiniCluster"), ("clean[0]", "Job")):
        served = next(one.kind for one in table.STEP_KINDS if one.kind.kind == kind)
        made = kyu.client.get(served, Key("default", found[name]["object"]))
        assert made["metadata"]["ownerReferences"][0]["name"] == "climate"
    shown = kyu.kyu("workflow", "status", "climate").stdout
    assert "climate: Succeeded, 6/6 steps are over" in shown
    assert "cleaned north" in shown
    assert "Succeeded" in kyu.kyu("workflow", "list").stdout
    launched = kyu.kyu("logs", f"mpijob.kubeflow.org/{found['train']['object']}").stdout
    assert 'launched for ["cleaned north", "cleaned south"]' in launched
    kyu.kyu("delete", "workflow", "climate")
    kyu.wait("its Jobs go", lambda: kyu.client.find(JOB, Key("default", found["prepare"]["object"])) is None)


def test_a_workflow_is_suspended_cancelled_and_retried(kyu: LocalKyu, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    steps = [
        shell("wait", f"while [ ! -e {gate} ]; do sleep 0.05; done"),
        shell("next", f"echo $KYU_WORKFLOW/$KYU_STEP >> {tmp_path}/ran", "wait"),
    ]
    kyu.client.create(Workflow.KIND, workflow("held", steps))
    kyu.wait("the first step runs", lambda: states(kyu, "held").get("wait") == "Running")
    kyu.kyu("workflow", "suspend", "held")
    gate.touch()
    kyu.wait("nothing else starts", lambda: status(kyu, "held").get("state") == "Suspended")
    assert states(kyu, "held") == {"wait": "Succeeded", "next": "Waiting"}
    kyu.kyu("workflow", "cancel", "held")
    kyu.wait("it is over", lambda: status(kyu, "held").get("state") == "Cancelled")
    kyu.kyu("workflow", "resume", "held")
    kyu.kyu("workflow", "retry", "held", "--wait")
    assert (tmp_path / "ran").read_text() == "held/next\n"
    refused = kyu.kyu("workflow", "retry", "held", check=False)
    assert refused.returncode == 1
    assert "only a failed or cancelled Workflow is retried" in refused.stderr


def test_cancelling_ends_the_processes_of_a_step(kyu: LocalKyu) -> None:
    kyu.client.create(
        Workflow.KIND, workflow("long", [shell("sleep", "exec sleep 600"), shell("after", "true", "sleep")])
    )
    kyu.wait("it runs", lambda: states(kyu, "long").get("sleep") == "Running")
    kyu.kyu("workflow", "cancel", "long")
    kyu.wait("its steps are over", lambda: states(kyu, "long") == {"sleep": "Failed", "after": "Skipped"})
    kyu.wait("the quota is free", lambda: kyu.used("local") == "0")


def test_a_time_limit_counts_from_admission(kyu: LocalKyu) -> None:
    """The step ends although it would run for ever, and one that needs it is skipped."""
    limited = shell("limited", "exec sleep 600", maximumExecutionTimeSeconds=1)
    kyu.client.create(Workflow.KIND, workflow("limit", [limited, shell("after", "true", "limited")]))
    kyu.wait("it is over", partial(is_over, kyu, "limit"))
    entry = status(kyu, "limit")["steps"][0]
    assert (entry["state"], entry["reason"]) == ("Failed", "TimeLimit")
    assert entry["admittedAt"]


def test_input_errors_name_the_line_and_the_remedy(kyu: LocalKyu) -> None:
    text = "\n".join(
        [
            "apiVersion: kyu.dev/v1alpha1",
            "kind: Workflow",
            "metadata: {name: wrong}",
            "spec:",
            "  steps:",
            "  - {name: a, after: [b], command: [x]}",
            "  - {name: b, after: [a], command: [x]}",
        ]
    )
    done = kyu.kyu("workflow", "run", "-", stdin=text, check=False)
    assert done.returncode == 2
    assert "in a circle: a → b → a" in done.stderr
    assert "line 5" in done.stderr
    with pytest.raises(Invalid, match="circle"):
        kyu.client.create(
            Workflow.KIND, codec.read(text)[0].object | {"metadata": {"name": "x", "namespace": "default"}}
        )
    missing = kyu.kyu("workflow", "status", "nothing", check=False)
    assert missing.returncode == 2
    assert "has no Workflow 'nothing'" in missing.stderr


# Rights.


@pytest.fixture(scope="module")
def eve(kyu: LocalKyu) -> Iterator[BlockingClient]:
    """Yield a client of a user who may write Workflows and Jobs, but no other kind of job."""
    kyu.client.create(Namespace.KIND, {"metadata": {"name": "team"}})
    queue = {"metadata": {"name": "main", "namespace": "team"}, "spec": {"clusterQueue": "local"}}
    kyu.client.create(LocalQueue.KIND, queue)
    config = kyu.data / "eve.kubeconfig"
    config.write_text(kyu.kyu("user", "add", "eve", "--namespace", "team", "--role", "view").stdout)
    rules = [
        {"apiGroups": ["kyu.dev"], "resources": ["workflows"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    ]
    role = {"metadata": {"name": "jobs", "namespace": "team"}, "rules": rules}
    kyu.client.create(Kind(RBAC, "v1", "Role", "roles"), role)
    binding = {
        "metadata": {"name": "jobs", "namespace": "team"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "jobs"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
    }
    kyu.client.create(Kind(RBAC, "v1", "RoleBinding", "rolebindings"), binding)
    client = BlockingClient(kubeconfig.load(config))
    yield client
    client.close()


def of_eve(name: str, *steps: Json) -> Json:
    body = workflow(name, list(steps), queue="main")
    return {**body, "metadata": {"name": name, "namespace": "team"}}


def test_a_workflow_makes_only_what_its_user_may_make(kyu: LocalKyu, eve: BlockingClient) -> None:
    pod = {"containers": [{"name": "main", "image": "x", "command": ["true"]}]}
    template = {"apiVersion": "v1", "kind": "Pod", "spec": pod}
    with pytest.raises(Invalid, match=r'spec.steps\[1\]: Forbidden: User "eve" cannot create pods in namespace team'):
        eve.create(Workflow.KIND, of_eve("pods", shell("job", "true"), {"name": "pod", "template": template}))
    eve.create(Workflow.KIND, of_eve("jobs", shell("job", "true")))
    key = Key("team", "jobs")
    kyu.wait("it is over", lambda: (eve.get(Workflow.KIND, key).get("status") or {}).get("state") == "Succeeded")
    # A Workflow that is over may change, but not beyond the rights of its user.
    with pytest.raises(Invalid, match="cannot create pods"):
        eve.patch(Workflow.KIND, key, {"spec": {"steps": [{"name": "pod", "template": template}], "retry": 1}})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"nodeName": "here"}}, "the queue decides where pods run"),
        ({"spec": {"tolerations": [{"key": "pool.vk.io", "value": "site"}]}}, "which only admission may do"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": ""}}}, ""),
    ],
)
def test_a_template_does_not_lead_around_the_queue(eve: BlockingClient, kyu: LocalKyu, change: Json, why: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["true"]}]}
    pod |= change.get("spec", {})
    template = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
    template |= {"metadata": change["metadata"]} if "metadata" in change else {}
    body = of_eve("around", {"name": "job", "template": template})
    if why:
        with pytest.raises(Invalid, match=why):
            eve.create(Workflow.KIND, body)
        return
    eve.create(Workflow.KIND, body)
    name = kyu.wait("the object is made", lambda: first_object(eve, Key("team", "around")))
    made = kyu.client.get(JOB, Key("team", name))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"


def first_object(client: BlockingClient, key: Key) -> str:
    entries = (client.get(Workflow.KIND, key).get("status") or {}).get("steps") or [{}]
    return str(entries[0].get("object") or "")
