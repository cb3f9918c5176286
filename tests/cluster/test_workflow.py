"""Workflows on a real Kubernetes: each step once over `kill -9` of the controller, rights by a policy, beside Kueue."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from kyu.api import workflows
from kyu.install.workflows import policy_objects
from tests.cluster import kyu
from tests.cluster.client import ApiError, Client, Manifest, has
from tests.cluster.controlplane import ControlPlane
from tests.cluster.nodes import EXIT_CODE, RUN_FOR
from tests.cluster.test_controller import control, end, rights, until_told
from tests.support.manifests import flavor, pod_spec, queues

API = workflows.Workflow.KIND.api_version
STEPS = int(os.environ.get("KYU_DAG_STEPS", "24"))
KILLS = 5
LONGEST_SECONDS = 600.0
RBAC = "rbac.authorization.k8s.io"
BINDING = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "kyu-workflow-rights")


def step(name: str, *after: str, fails: bool = False, **more: object) -> Manifest:
    """Return a step whose pods end at once."""
    annotations = {RUN_FOR: "0s", **({EXIT_CODE: "1"} if fails else {})}
    pods = {"metadata": {"annotations": annotations}, "spec": pod_spec("100m", restartPolicy="Never")}
    template = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": pods}}
    return {"name": name, "after": list(after), "template": template, **more}


def workflow(name: str, steps: list[Manifest], **spec: object) -> Manifest:
    body = {"queue": "team", "steps": steps, **spec}
    return {"apiVersion": API, "kind": "Workflow", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def graph(*, fails: bool) -> list[Manifest]:
    """Return a start, a wide middle, a chain with a step that fails, and an end."""
    wide, chain = STEPS // 2, STEPS - STEPS // 2 - 2
    items = [str(number) for number in range(wide)]
    steps = [step("start"), step("wide", "start", forEach={"items": items, "width": 10})]
    for number in range(chain):
        before = f"chain-{number - 1}" if number else "start"
        steps.append(step(f"chain-{number}", before, fails=fails and number == chain // 2))
    return [*steps, step("end", "wide", f"chain-{chain - 1}")]


def status(client: Client, name: str) -> Manifest:
    found: Manifest = client.get(API, "Workflow", name).get("status") or {}
    return found


def until_state(client: Client, name: str, *states: str) -> Manifest:
    return client.until(
        lambda found: (found.get("status") or {}).get("state") in states,
        API,
        "Workflow",
        name,
        seconds=LONGEST_SECONDS,
    )


def until_ended(client: Client, name: str, count: int) -> None:
    """Wait until so many steps are over."""

    def are_over(found: Manifest) -> bool:
        counts = (found.get("status") or {}).get("counts") or {}
        return bool(sum(counts.get(one, 0) for one in ("succeeded", "failed", "skipped")) >= count)

    client.until(are_over, API, "Workflow", name, seconds=LONGEST_SECONDS)


@pytest.fixture(scope="module")
def ready(plane: ControlPlane) -> ControlPlane:
    plane.add_nodes(["node"], {"cpu": "8", "memory": "8Gi", "pods": "110"})
    kyu.install(plane)
    plane.admin.apply([*rights(), flavor("team"), *queues("team", cpu=2)])
    return plane


def test_each_step_has_one_object_however_often_the_controller_is_killed(ready: ControlPlane, tmp_path: Path) -> None:
    admin = ready.admin
    retries = {"limit": 1, "backoffSeconds": 1}
    admin.create(workflow("dag", graph(fails=True), retries=retries))
    for kill in range(KILLS):
        control(ready, f"controller-{kill}", tmp_path)
        until_told(ready, f"controller-{kill}", "holding the lease")
        if kill < KILLS - 2:
            until_ended(admin, "dag", STEPS // 10 * (kill + 1))
        elif kill == KILLS - 2:
            until_state(admin, "dag", "Failed")
            # The step that failed is changed, and all that is left runs.
            admin.patch(API, "Workflow", "dag", {"spec": {"steps": graph(fails=False), "retry": 1}})
            admin.until(lambda found: found["status"].get("retry") == 1, API, "Workflow", "dag")
        else:
            until_state(admin, "dag", "Succeeded")
        end(ready, f"controller-{kill}")
    check_objects(admin)


def check_objects(admin: Client) -> None:
    """Each attempt of each step has one Job, and no Job began before those that it waits for were over."""
    jobs = admin.list("batch/v1", "Job", "default", "kyu.dev/workflow=dag")
    entries = status(admin, "dag")["steps"]
    attempts = {entry["name"]: entry["attempt"] for entry in entries}
    failing = f"chain-{(STEPS - STEPS // 2 - 2) // 2}"
    assert attempts.pop(failing) == 3
    assert set(attempts.values()) == {1}
    expected = Counter(name.partition("[")[0] for name in attempts) + Counter({failing: 3})
    assert Counter(one["metadata"]["labels"]["kyu.dev/step"] for one in jobs) == expected
    made = {one["metadata"]["name"]: one for one in jobs}
    finished = {entry["name"]: made[entry["object"]]["status"]["completionTime"] for entry in entries}
    begun = {entry["name"]: made[entry["object"]]["metadata"]["creationTimestamp"] for entry in entries}
    for one in graph(fails=False):
        for before in one["after"]:
            ends = [time for name, time in finished.items() if name.partition("[")[0] == before]
            starts = [time for name, time in begun.items() if name.partition("[")[0] == one["name"]]
            assert max(ends) <= min(starts), f"{one['name']} began before {before} was over"


def grant(admin: Client, user: str, *plurals: tuple[str, str]) -> None:
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": ["*"]} for group, plural in plurals]
    meta = {"name": user, "namespace": "default"}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": user}
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    admin.apply(
        [
            {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    )


def test_the_policy_asks_for_the_rights_of_the_creator(ready: ControlPlane) -> None:
    grant(ready.admin, "eve", ("kyu.dev", "workflows"))
    grant(ready.admin, "ana", ("kyu.dev", "workflows"), ("batch", "jobs"))
    eve, ana = ready.user("eve"), ready.user("ana")
    with pytest.raises(ApiError, match="you cannot create jobs in this namespace"):
        until_refused(eve, workflow("of-eve", [step("a")]))
    ana.create(workflow("of-ana", [step("a")], suspend=True))
    pod = {"name": "b", "template": {"apiVersion": "v1", "kind": "Pod", "spec": pod_spec()}}
    with pytest.raises(ApiError, match="you cannot create pods in this namespace"):
        ana.create(workflow("pods", [pod]))
    with pytest.raises(ApiError, match="the kind of a template must be one of"):
        ana.create(workflow("role", [{"name": "b", "template": {"apiVersion": f"{RBAC}/v1", "kind": "Role"}}]))
    with pytest.raises(ApiError, match="cannot change while the Workflow runs"):
        ana.patch(API, "Workflow", "of-ana", {"spec": {"steps": [step("b")]}})
    with pytest.raises(ApiError, match="you cannot create jobs"):
        eve.patch(API, "Workflow", "of-ana", {"spec": {"retry": 1}})
    # Stopping needs no right to the jobs.
    eve.patch(API, "Workflow", "of-ana", {"spec": {"cancel": True}})


def until_refused(client: Client, manifest: Manifest) -> None:
    """Create it until it is refused: an API server begins to use a new policy after a moment."""
    for _ in range(300):
        client.create(manifest)
        client.delete(API, "Workflow", manifest["metadata"]["name"])


def test_without_the_policy_no_step_starts(ready: ControlPlane, tmp_path: Path) -> None:
    ready.admin.delete(*BINDING)
    ready.admin.create(workflow("blocked", [step("a")]))
    control(ready, "blocked", tmp_path)
    ready.admin.until(has("Blocked"), API, "Workflow", "blocked")
    assert ready.admin.list("batch/v1", "Job", "default", "kyu.dev/workflow=blocked") == []
    ready.admin.apply(policy_objects())
    until_state(ready.admin, "blocked", "Succeeded")
    end(ready, "blocked")


def test_upstream_kueue_queues_the_steps(kueue_plane: ControlPlane) -> None:
    admin = kueue_plane.admin
    admin.apply([workflows.definition(), *policy_objects()])
    admin.until(has("Established"), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "workflows.kyu.dev")
    admin.apply([flavor("team"), *queues("team", cpu=2)])
    words = ["controller", "--only", "workflows", "--health-probe-bind-address=0", "--metrics-bind-address=0"]
    kueue_plane.processes.start(
        "kyu-workflows", [sys.executable, "-m", "kyu", *words, f"--kubeconfig={kueue_plane.kubeconfig}"]
    )
    pods = {"name": "pods", "after": ["first"], "count": 2, "template": pod_template()}
    admin.create(workflow("beside", [step("first"), pods, step("last", "pods")]))
    until_state(admin, "beside", "Succeeded")
    entries = {entry["name"]: entry for entry in status(admin, "beside")["steps"]}
    assert all(entry["admittedAt"] for entry in entries.values())
    group = admin.get("kueue.x-k8s.io/v1beta2", "Workload", entries["pods"]["object"])
    assert group["status"]["admission"]["clusterQueue"] == "team"


def pod_template() -> Manifest:
    annotations = {RUN_FOR: "0s"}
    spec = pod_spec("100m", restartPolicy="Never")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": annotations}, "spec": spec}
