"""Two published walk-throughs of Kueue, typed as they stand there, with the real kubectl, on `kyu up`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from kyu.api.meta import Json
from tests.support.local_kyu import LocalKyu, local_kyu

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: see kubernetes.io/docs/tasks/tools"
)
MANIFESTS = Path(__file__).parent.parent / "walkthroughs"
TEAMS = ("team1", "team2")
T = TypeVar("T")


class Terminal:
    """What is typed, by the administrator or by a user with a kubeconfig of their own."""

    def __init__(self, kyu: LocalKyu, folder: Path) -> None:
        self.kyu = kyu
        self.folder = folder

    def kubectl(self, *words: str, user: str = "", text: str = "", fails: bool = False) -> str:
        config = self.folder / f"{user}.kubeconfig" if user else self.kyu.data / "kubeconfig"
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(self.folder)}
        done = subprocess.run(
            ["kubectl", *words], capture_output=True, text=True, input=text or None, env=environment, cwd=MANIFESTS
        )
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def table(self, *words: str, user: str = "") -> list[list[str]]:
        """The rows of a table, without its head, as lists of cells."""
        return [line.split() for line in self.kubectl(*words, "--no-headers", user=user).splitlines()]

    def wait(self, what: str, ask: Callable[[], T | None]) -> T:
        return self.kyu.wait(what, ask)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("walkthroughs")
    # Four cores are asked for; what is run is a sleep.
    with local_kyu(folder / "data", "--bare", "--cpu", "16", "--trust-users") as kyu:
        yield Terminal(kyu, folder)


# A Flux MiniCluster through a queue


def queues(terminal: Terminal) -> list[list[str]]:
    return terminal.table("get", "queues")


@pytest.fixture(scope="module")
def mini_cluster(terminal: Terminal) -> str:
    """The name of the MiniCluster of the walk-through, which runs until it is told that it is enough."""
    terminal.kubectl("apply", "-f", "single-clusterqueue-setup.yaml")
    wanted = [["user-queue", "cluster-queue", "0", "0"]]
    terminal.wait("the queue counts its workloads", lambda: queues(terminal) == wanted)
    body = yaml.safe_load((MANIFESTS / "minicluster.yaml").read_text())
    body["spec"]["containers"][0]["command"] = f"while ! test -e {terminal.folder}/enough; do sleep 0.1; done"
    created = terminal.kubectl("create", "-f", "-", text=yaml.safe_dump(body))
    name = created.split()[0].partition("/")[2]
    assert name.startswith("flux-sample-kueue-")
    return name


def test_the_queue_shows_the_workload_that_runs(terminal: Terminal, mini_cluster: str) -> None:
    terminal.wait("it is admitted", lambda: queues(terminal) == [["user-queue", "cluster-queue", "0", "1"]])
    head = terminal.kubectl("get", "queues").splitlines()[0].split("  ")
    assert [cell.strip() for cell in head if cell] == [
        "NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS",
    ]  # fmt: skip


def test_the_table_of_workloads(terminal: Terminal, mini_cluster: str) -> None:
    head, row = terminal.kubectl("-n", "default", "get", "workloads").splitlines()
    assert head.split("  ")[0] == "NAME"
    assert head.split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
    assert row.split()[0].startswith(f"job-{mini_cluster}-")
    assert row.split()[1:4] == ["user-queue", "cluster-queue", "True"]


def test_describe_tells_conditions_and_events(terminal: Terminal, mini_cluster: str) -> None:
    text = terminal.kubectl("describe", "workloads")
    assert "Quota reserved in ClusterQueue cluster-queue" in text
    assert "The workload is admitted" in text
    events = text[text.index("Events:") :]
    assert "Admitted by ClusterQueue cluster-queue" in events
    assert "Cpu:     default-flavor" in text


def test_the_pod_runs_and_its_log_is_as_boring_as_sleep(terminal: Terminal, mini_cluster: str) -> None:
    def running() -> str | None:
        rows = [row for row in terminal.table("get", "pods") if row[0].startswith(mini_cluster)]
        return next((row[0] for row in rows if row[2] == "Running"), None)

    pod = terminal.wait("its pod runs", running)
    assert pod.startswith(f"{mini_cluster}-0-")
    assert terminal.kubectl("logs", "-n", "default", pod) == ""


def test_only_rank_0_runs_the_command_once_and_the_status_says_that_it_is_queued(
    terminal: Terminal, mini_cluster: str
) -> None:
    terminal.kubectl("patch", "clusterqueue", "cluster-queue", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    body = yaml.safe_load((MANIFESTS / "minicluster.yaml").read_text())
    body["apiVersion"] = "flux-framework.org/v1alpha2"
    body["metadata"] = {"name": "ranks"}
    body["spec"]["size"] = 3
    body["spec"]["containers"][0]["command"] = f"echo rank $JOB_COMPLETION_INDEX >> {terminal.folder}/ranks"
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    terminal.kubectl("create", "-f", "-", text=yaml.safe_dump(body))
    waiting = "jsonpath={.status.conditions[?(@.type=='JobWaitingForResources')].reason}"
    terminal.wait("it is queued", lambda: terminal.kubectl("get", "minicluster", "ranks", "-o", waiting) == "Queued")
    terminal.kubectl("patch", "clusterqueue", "cluster-queue", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    finished = "jsonpath={.status.conditions[?(@.type=='JobFinished')].status}"
    terminal.wait("it is finished", lambda: terminal.kubectl("get", "minicluster", "ranks", "-o", finished) == "True")
    assert (terminal.folder / "ranks").read_text() == "rank 0\n"


# SkyPilot: two teams, plain pods, an admission check


def pod(name: str, queue: str, command: str, cpu: str = "100m") -> str:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue, "parent": "skypilot"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "ray-node",
                    "image": "example/skypilot",
                    "command": ["sh", "-c", command],
                    "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
                }
            ],
        },
    }
    return yaml.safe_dump(body)


@pytest.fixture(scope="module")
def teams(terminal: Terminal) -> Terminal:
    """Namespaces, flavor, check and one queue for both, as the administrator makes them; a user for each team."""
    for team in TEAMS:
        terminal.kubectl("create", "namespace", team)
        user = terminal.kyu.kyu("user", "add", f"{team}-user", "--namespace", team)
        (terminal.folder / f"{team}-user.kubeconfig").write_text(user.stdout)
    terminal.kubectl("apply", "-f", "kueue-resource-flavor.yaml")
    terminal.kubectl("apply", "-f", "kueue-admission-check.yaml")
    terminal.kubectl("apply", "-f", "kueue-one-cluster-queue.yaml")
    return terminal


def test_the_framework_of_pods_may_be_added_twice(terminal: Terminal) -> None:
    read = ("-n", "kueue-system", "get", "cm", "kueue-manager-config")
    path = terminal.folder / "kueueconfig.yaml"
    for _ in range(2):
        settings = yaml.safe_load(terminal.kubectl(*read, "-o", "jsonpath={.data.controller_manager_config\\.yaml}"))
        settings["integrations"]["frameworks"] += ["pod"]
        path.write_text(yaml.safe_dump(settings))
        made = terminal.kubectl(
            *("-n", "kueue-system", "create", "cm", "kueue-manager-config"),
            *(f"--from_file=controller_manager_config.yaml={path}", "--dry-run=client", "-o", "yaml"),
        )
        terminal.kubectl("-n", "kueue-system", "apply", "-f", "-", text=made)
    assert settings["integrations"]["frameworks"].count("pod") == 3
    terminal.kubectl("-n", "kueue-system", "rollout", "restart", "deployment", "kueue-controller-manager")
    status = ("-n", "kueue-system", "rollout", "status", "deployment", "kueue-controller-manager", "--timeout=60s")
    assert "successfully rolled out" in terminal.kubectl(*status)


def workload_of(terminal: Terminal, team: str, name: str) -> Json | None:
    listed = yaml.safe_load(terminal.kubectl("-n", team, "get", "workloads", "-o", "yaml"))["items"]
    return next((w for w in listed if w["metadata"]["name"].startswith(f"pod-{name}-")), None)


def submit_and_wait(terminal: Terminal, team: str, name: str) -> Json:
    user = f"{team}-user"
    text = pod(name, f"skypilot-local-queue-{team}", "echo here is $HOSTNAME")
    terminal.kubectl("create", "-f", "-", user=user, text=text)
    state = "jsonpath={.status.phase}"
    terminal.wait(
        f"{name} has run", lambda: terminal.kubectl("get", "pod", name, "-o", state, user=user) == "Succeeded"
    )
    assert terminal.kubectl("logs", name, user=user) == f"here is {name}\n"
    workload = workload_of(terminal, team, name)
    assert workload is not None
    return workload


def test_plain_pods_of_two_teams_run_through_one_queue_and_its_check(teams: Terminal) -> None:
    for team in TEAMS:
        workload = submit_and_wait(teams, team, f"sky-{team}")
        assert workload["status"]["admission"]["clusterQueue"] == "skypilot-cluster-queue"
        check = workload["status"]["admissionChecks"][0]
        assert (check["name"], check["state"]) == ("skypilot-kueue-prov", "Ready")


def test_quota_without_end_does_not_admit_what_no_node_can_hold(teams: Terminal) -> None:
    text = pod("giant", "skypilot-local-queue-team1", "true", cpu="1000")
    teams.kubectl("create", "-f", "-", user="team1-user", text=text)

    def message() -> str | None:
        workload = workload_of(teams, "team1", "giant") or {}
        checks = (workload.get("status") or {}).get("admissionChecks") or [{}]
        return checks[0].get("message") if checks[0].get("state") == "Pending" else None

    assert "Insufficient cpu" in teams.wait("the check says why", message)
    teams.kubectl("delete", "pod", "giant", user="team1-user")


def test_a_team_cannot_touch_the_other_teams_queue(teams: Terminal) -> None:
    for words in (
        ("-n", "team2", "get", "localqueues"),
        ("-n", "team2", "delete", "localqueue", "skypilot-local-queue-team2"),
        ("delete", "clusterqueue", "skypilot-cluster-queue"),
    ):
        assert "forbidden" in teams.kubectl(*words, user="team1-user", fails=True)
    stray = pod("stray", "skypilot-local-queue-team2", "true")
    assert "forbidden" in teams.kubectl("-n", "team2", "create", "-f", "-", user="team1-user", text=stray, fails=True)


def wrapper(*wrapped: Json) -> str:
    meta = {"name": "wrapper", "labels": {"kueue.x-k8s.io/queue-name": "skypilot-local-queue-team1"}}
    components = [{"template": obj} for obj in wrapped]
    return yaml.safe_dump(
        {
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": meta,
            "spec": {"components": components},
        }
    )


def test_what_a_team_may_not_make_cannot_be_wrapped_either(teams: Terminal) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    me = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "team1-user"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "mine"}}
    inside = yaml.safe_load(pod("inside", "", "true"))
    abroad = {**inside, "metadata": {"name": "abroad", "namespace": "team2"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "stolen"}}
    text = wrapper(inside, {**binding, "roleRef": role, "subjects": [me]}, abroad, secret)
    refusal = teams.kubectl("create", "-f", "-", user="team1-user", text=text, fails=True)
    assert "components[0]" not in refusal
    assert "roles and bindings cannot be wrapped" in refusal
    assert "components[2].template: Forbidden: a wrapped object must be in the namespace" in refusal
    assert 'User "team1-user" cannot create v1 Secret in namespace team1' in refusal


def test_a_team_cannot_choose_a_node_in_any_kind_of_job(teams: Terminal) -> None:
    template = {"spec": {**yaml.safe_load(pod("any", "", "true"))["spec"], "nodeName": "some-node"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pinned"}, "spec": {"template": template}}
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    train = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    for body in (
        yaml.safe_dump(job),
        yaml.safe_dump({**job, "kind": "CronJob", "spec": cron}),
        yaml.safe_dump({**job, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": train}),
        wrapper(job),
    ):
        refusal = teams.kubectl("create", "-f", "-", user="team1-user", text=body, fails=True)
        assert "cannot set spec.nodeName: the queue decides where pods run" in refusal


def test_a_queue_of_the_other_namespace_is_told_as_missing(teams: Terminal) -> None:
    stray = pod("astray", "skypilot-local-queue-team2", "true")
    teams.kubectl("create", "-f", "-", user="team1-user", text=stray)

    def told() -> str | None:
        workload = workload_of(teams, "team1", "astray") or {}
        listed = (workload.get("status") or {}).get("conditions") or ()
        return next((c["message"] for c in listed if c["type"] == "QuotaReserved"), None)

    assert "LocalQueue skypilot-local-queue-team2 doesn't exist" in teams.wait("it says why", told)
    teams.kubectl("delete", "pod", "astray", user="team1-user")


def test_two_queues_in_a_cohort_instead_of_one(teams: Terminal) -> None:
    for team in TEAMS:
        teams.kubectl("delete", "pods", "--all", user=f"{team}-user")
    teams.kubectl("delete", "-f", "kueue-one-cluster-queue.yaml", "--timeout=60s")
    teams.kubectl("apply", "-f", "kueue-two-cluster-queues.yaml")
    for team in TEAMS:
        workload = submit_and_wait(teams, team, f"own-{team}")
        assert workload["status"]["admission"]["clusterQueue"] == f"skypilot-cluster-queue-{team}"


def test_in_the_end_the_mini_cluster_has_finished(terminal: Terminal, mini_cluster: str) -> None:
    (terminal.folder / "enough").touch()

    def finished() -> bool:
        rows = terminal.table("-n", "default", "get", "workloads")
        return all(row[4] == "True" for row in rows if mini_cluster in row[0] and len(row) == 6)

    terminal.wait("it is finished", finished)
    terminal.wait("the queue is empty", lambda: queues(terminal)[0] == ["user-queue", "cluster-queue", "0", "0"])
