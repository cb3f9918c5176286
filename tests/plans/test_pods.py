"""What other controllers would do in embedded mode: Jobs of all kinds → pods and status, on a clock of our own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kyu.api.actions import Action, Apply, Create, Delete, Event, Patch, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.core import Pod
from kyu.api.meta import Json, Key, Kind
from kyu.kinds import table
from kyu.kinds.job import JOB
from kyu.kinds.kind import Context, JobKind
from kyu.plans.pods import job_tally, jobs, operators, replica_sets
from tests.support.case_files import read_documents

START = datetime(2026, 1, 1, tzinfo=UTC)
Plan = Callable[..., list[Action]]


class World:
    """The objects, by kind and key; a plan's view of them, and what its actions do to them."""

    def __init__(self) -> None:
        self.now = START
        self.objects: dict[tuple[str, Key], Json] = {}
        self.events: list[tuple[str, str]] = []
        self.wake_at: datetime | None = None
        self._serial = 0

    configuration = Configuration()

    def get(self, type_: Any, key: Key) -> Any:
        raise NotImplementedError

    def list(self, type_: Any, namespace: str | None = None) -> Any:
        raise NotImplementedError

    def find_json(self, kind: Kind, key: Key) -> Json | None:
        return self.objects.get((kind.kind, key))

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]:
        return [o for (k, key), o in self.objects.items() if k == kind.kind and namespace in (None, key.namespace)]

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        owners = ((o, o["metadata"].get("ownerReferences") or ()) for o in self.list_json(kind))
        return [o for o, refs in owners if any(ref["uid"] == uid and ref.get("controller") for ref in refs)]

    def add(self, kind: Kind, body: Json) -> Json:
        self._serial += 1
        meta = {"namespace": "team", **body["metadata"], "uid": f"uid-{self._serial}", "resourceVersion": "1"}
        meta.setdefault("creationTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        stored = copy.deepcopy({"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": meta})
        self.objects.setdefault((kind.kind, Key(meta["namespace"], meta["name"])), stored)
        return stored

    def run(self, plan: Plan, name: str, rounds: int = 20) -> None:
        """Plan and carry out until nothing is left to do."""
        for _ in range(rounds):
            actions = plan(self, Key("team", name), self.now)
            writes = [action for action in actions if not isinstance(action, WakeAt)]
            wakes = [action.at for action in actions if isinstance(action, WakeAt)]
            self.wake_at = min(wakes, default=None)
            if not writes:
                return
            for action in writes:
                self.apply(action)
        raise AssertionError(f"the plan still wants {writes}")

    def apply(self, action: Action) -> None:
        match action:
            case Create(kind, body):
                self.add(kind, body)
            case Patch(ref, patch):
                target = self.objects[ref.kind.kind, ref.key]
                merge(target, patch)
                self._collect(ref.kind, ref.key)
            case Delete(ref):
                if (found := self.objects.get((ref.kind.kind, ref.key))) is not None:
                    found["metadata"]["deletionTimestamp"] = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
                    self._collect(ref.kind, ref.key)
            case Event(_, _, reason, message):
                self.events.append((reason, message))
            case Apply() | WakeAt():
                raise AssertionError(action)

    def _collect(self, kind: Kind, key: Key) -> None:
        meta = self.objects[kind.kind, key]["metadata"]
        running = kind == Pod.KIND and self.objects[kind.kind, key].get("status", {}).get("phase") == "Running"
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not running:
            del self.objects[kind.kind, key]

    # Pods

    def pods(self, *phases: str) -> list[Json]:
        found = self.list_json(Pod.KIND)
        return [p for p in found if not phases or p.get("status", {}).get("phase", "Pending") in phases]

    def start_pods(self) -> None:
        for pod in self.pods("Pending"):
            ready = {"type": "Ready", "status": "True"}
            pod["status"] = {"phase": "Running", "conditions": [ready]}

    def end(self, pod: Json, exit_code: int = 0) -> None:
        ended = {"exitCode": exit_code, "finishedAt": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        phase = "Failed" if exit_code else "Succeeded"
        pod["status"] = {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def merge(target: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def add_job(world: World, **spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "command": ["true"]}]}}
    body = {"metadata": {"name": "j"}, "spec": {"parallelism": 1, "completions": 1, "template": template, **spec}}
    return world.add(JOB, body)


def run(world: World) -> Json:
    world.run(jobs.plan, "j")
    job = world.find_json(JOB, Key("team", "j"))
    return job.get("status", {}) if job else {}


def conditions(status: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status.get("conditions", ())}


def reason(status: Json, type_: str) -> str:
    return next(str(c["reason"]) for c in status["conditions"] if c["type"] == type_)


def index(pod: Json) -> str:
    return str(pod["metadata"]["annotations"][job_tally.INDEX])


def test_a_job_makes_a_pod_and_completes_with_it() -> None:
    world = World()
    add_job(world)
    status = run(world)
    (pod,) = world.pods()
    assert pod["metadata"]["name"].startswith("j-")
    assert len(pod["metadata"]["name"]) == len("j-") + 5
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert (status["active"], status["ready"], status["startTime"]) == (1, 0, "2026-01-01T00:00:00Z")
    world.start_pods()
    assert run(world)["ready"] == 1
    world.end(pod)
    status = run(world)
    assert conditions(status) == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert status["succeeded"] == 1
    assert status["completionTime"] == "2026-01-01T00:00:00Z"
    assert "active" not in status
    assert status["uncountedTerminatedPods"] == {}
    assert "finalizers" not in pod["metadata"]
    assert ("Completed", "Job completed") in world.events


def test_parallelism_and_completions() -> None:
    world = World()
    add_job(world, parallelism=3, completions=5)
    assert run(world)["active"] == 3
    for done in range(1, 6):
        world.end(world.pods("Pending")[0])
        status = run(world)
        assert status["succeeded"] == done
        assert status.get("active", 0) == min(3, 5 - done)
    assert "Complete" in conditions(status)
    assert len(world.pods()) == 5


def test_a_finished_pod_that_is_deleted_stays_counted() -> None:
    world = World()
    add_job(world, parallelism=1, completions=2)
    run(world)
    world.end(world.pods()[0])
    run(world)
    done = world.pods("Succeeded")[0]
    world.apply(Delete(jobs.pod_ref(done)))
    assert run(world)["succeeded"] == 1
    world.end(world.pods("Pending")[0])
    assert conditions(run(world))["Complete"] == "True"


def test_no_pod_is_counted_twice_when_a_round_is_cut_short_anywhere() -> None:
    for cut in range(8):
        world = World()
        add_job(world, parallelism=2, completions=4)
        run(world)
        for _ in range(4):
            for pod in world.pods("Pending"):
                world.end(pod)
            for action in jobs.plan(world, Key("team", "j"), world.now)[:cut]:
                if not isinstance(action, WakeAt):
                    world.apply(action)
            run(world)
        status = run(world)
        assert (status["succeeded"], len(world.pods())) == (4, 4), f"cut after {cut} actions"


def test_indexed_jobs_have_one_pod_for_each_index() -> None:
    world = World()
    add_job(world, parallelism=2, completions=3, completionMode="Indexed")
    run(world)
    assert [index(pod) for pod in world.pods()] == ["0", "1"]
    pod = world.pods()[0]
    assert pod["metadata"]["labels"][job_tally.INDEX] == "0"
    assert pod["spec"]["hostname"] == "j-0"
    assert pod["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "0"}]
    assert pod["metadata"]["name"].startswith("j-0-")
    world.end(world.pods()[1])
    status = run(world)
    assert status["completedIndexes"] == "1"
    assert [index(pod) for pod in world.pods("Pending")] == ["0", "2"]
    for pod in world.pods("Pending"):
        world.end(pod)
    status = run(world)
    assert status["completedIndexes"] == "0-2"
    assert conditions(status)["Complete"] == "True"


def test_failures_are_retried_with_growing_back_off_up_to_the_limit() -> None:
    world = World()
    add_job(world, backoffLimit=2)
    run(world)
    waits = []
    for _ in range(2):
        world.end(world.pods("Pending")[0], exit_code=1)
        run(world)
        assert world.pods("Pending") == []
        assert world.wake_at is not None
        waits.append((world.wake_at - world.now).total_seconds())
        world.now = world.wake_at
        run(world)
    assert waits == [10, 20]
    world.end(world.pods("Pending")[0], exit_code=1)
    status = run(world)
    assert reason(status, "Failed") == reason(status, "FailureTarget") == "BackoffLimitExceeded"
    assert status["failed"] == 3
    assert ("BackoffLimitExceeded", "Job has reached the specified backoff limit") in world.events


def test_a_failing_job_ends_its_other_pods_before_it_is_failed() -> None:
    world = World()
    add_job(world, parallelism=2, completions=2, backoffLimit=0)
    run(world)
    world.start_pods()
    failing, other = world.pods()
    world.end(failing, exit_code=1)
    status = run(world)
    assert conditions(status) == {"FailureTarget": "True"}
    assert other["metadata"]["deletionTimestamp"]
    assert status["terminating"] == 1
    world.end(other, exit_code=143)
    del world.objects["Pod", Key("team", other["metadata"]["name"])]
    assert conditions(run(world)) == {"FailureTarget": "True", "Failed": "True"}


def test_restarts_in_place_count_against_the_limit() -> None:
    world = World()
    job = add_job(world, backoffLimit=2)
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    run(world)
    pod = world.pods()[0]
    pod["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": 1, "state": {}}]}
    assert conditions(run(world)) == {}
    pod["status"]["containerStatuses"][0]["restartCount"] = 2
    assert reason(run(world), "FailureTarget") == "BackoffLimitExceeded"


def test_the_deadline_of_a_job_counts_from_its_start() -> None:
    world = World()
    add_job(world, activeDeadlineSeconds=60)
    run(world)
    assert world.wake_at == START + timedelta(seconds=60)
    world.pass_time(60)
    status = run(world)
    assert reason(status, "Failed") == "DeadlineExceeded"
    assert world.pods() == []


def test_a_suspended_job_has_no_pods_and_starts_anew() -> None:
    world = World()
    job = add_job(world, parallelism=2, completions=2, activeDeadlineSeconds=60, suspend=True)
    status = run(world)
    assert conditions(status) == {"Suspended": "True"}
    assert "startTime" not in status
    job["spec"]["suspend"] = False
    status = run(world)
    assert conditions(status) == {"Suspended": "False"}
    assert len(world.pods()) == 2
    world.start_pods()
    world.pass_time(50)
    job["spec"]["suspend"] = True
    status = run(world)
    assert "active" not in status
    assert "failed" not in status
    assert status["terminating"] == 2
    assert all(pod["metadata"]["deletionTimestamp"] for pod in world.pods())
    world.objects = {key: value for key, value in world.objects.items() if key[0] != "Pod"}
    job["spec"]["suspend"] = False
    status = run(world)
    assert status["startTime"] == "2026-01-01T00:00:50Z"
    assert world.wake_at == START + timedelta(seconds=110)
    assert len(world.pods()) == 2
    assert [e for e, _ in world.events if e in ("Suspended", "Resumed")] == ["Suspended", "Resumed"] * 2


def test_pods_that_go_are_not_ready_in_the_same_write() -> None:
    world = World()
    job = add_job(world)
    run(world)
    world.start_pods()
    assert run(world)["ready"] == 1
    job["spec"]["suspend"] = True
    first = jobs.plan(world, Key("team", "j"), world.now)[0]
    assert isinstance(first, Patch)
    assert (first.patch["status"]["active"], first.patch["status"]["ready"]) == (None, 0)


def test_a_job_that_ends_while_it_is_suspended_has_started() -> None:
    world = World()
    job = add_job(world)
    run(world)
    job["spec"]["suspend"] = True
    del job["status"]["startTime"]
    world.end(world.pods()[0])
    status = run(world)
    assert conditions(status)["Complete"] == "True"
    assert status["startTime"] <= status["completionTime"]


def test_fewer_pods_when_parallelism_shrinks_and_none_of_them_failed() -> None:
    world = World()
    job = add_job(world, parallelism=3, completions=5)
    run(world)
    job["spec"]["parallelism"] = 1
    status = run(world)
    assert (status["active"], status.get("failed", 0), len(world.pods())) == (1, 0, 1)


def test_a_work_queue_is_done_when_one_pod_succeeded_and_all_ended() -> None:
    world = World()
    add_job(world, parallelism=3, completions=None)
    assert run(world)["active"] == 3
    first, second, third = world.pods()
    world.end(first)
    assert run(world)["active"] == 2
    world.end(second)
    world.end(third)
    assert conditions(run(world))["Complete"] == "True"


def test_a_deleted_pod_is_replaced_and_counts_as_failed() -> None:
    world = World()
    add_job(world)
    run(world)
    world.start_pods()
    world.apply(Delete(jobs.pod_ref(world.pods()[0])))
    status = run(world)
    assert (status["failed"], status["terminating"]) == (1, 1)
    world.pass_time(10)
    run(world)
    assert len(world.pods()) == 2


def test_with_replacement_policy_failed_the_next_pod_waits_for_the_end_of_the_last() -> None:
    world = World()
    add_job(world, podReplacementPolicy="Failed")
    run(world)
    world.start_pods()
    pod = world.pods()[0]
    world.apply(Delete(jobs.pod_ref(pod)))
    world.pass_time(60)
    assert run(world)["terminating"] == 1
    assert len(world.pods()) == 1
    world.end(pod, exit_code=143)
    run(world)
    world.pass_time(10)
    assert run(world)["active"] == 1


FAILURE_POLICY = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
}


def test_pod_failure_policy_fails_the_job_at_once() -> None:
    world = World()
    add_job(world, podFailurePolicy=FAILURE_POLICY)
    run(world)
    world.end(world.pods()[0], exit_code=42)
    status = run(world)
    assert reason(status, "Failed") == "PodFailurePolicy"
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert message.endswith("failed with exit code 42 matching FailJob rule at index 0")


def test_pod_failure_policy_ignores_disrupted_pods() -> None:
    world = World()
    add_job(world, podFailurePolicy=FAILURE_POLICY, backoffLimit=0)
    run(world)
    pod = world.pods()[0]
    world.end(pod, exit_code=137)
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    status = run(world)
    assert "failed" not in status
    world.pass_time(10)
    assert run(world)["active"] == 1


def test_each_index_may_have_a_limit_of_its_own() -> None:
    world = World()
    spec = {"completionMode": "Indexed", "backoffLimitPerIndex": 1}
    add_job(world, parallelism=2, completions=2, **spec)
    run(world)
    for _ in range(2):
        failing = next(pod for pod in world.pods("Pending") if index(pod) == "1")
        world.end(failing, exit_code=1)
        run(world)
        world.pass_time(60)
        status = run(world)
    assert status["failedIndexes"] == "1"
    assert conditions(status) == {}
    world.end(world.pods("Pending")[0])
    status = run(world)
    assert reason(status, "Failed") == "FailedIndexes"
    assert status["completedIndexes"] == "0"


def test_success_policy_ends_the_job_early() -> None:
    world = World()
    policy = {"rules": [{"succeededIndexes": "0"}]}
    add_job(world, parallelism=3, completions=3, completionMode="Indexed", successPolicy=policy)
    run(world)
    world.end(world.pods()[0])
    status = run(world)
    assert reason(status, "Complete") == "SuccessPolicy"
    assert [index(pod) for pod in world.pods()] == ["0"]


def test_a_finished_job_goes_after_its_time_to_live() -> None:
    world = World()
    add_job(world, ttlSecondsAfterFinished=30)
    run(world)
    world.end(world.pods()[0])
    run(world)
    assert world.wake_at == START + timedelta(seconds=30)
    world.pass_time(30)
    assert run(world) == {}


def test_a_job_that_others_manage_is_left_alone() -> None:
    world = World()
    add_job(world, managedBy="kueue.x-k8s.io/multikueue")
    assert run(world) == {}
    assert world.pods() == []


def test_pods_of_a_job_that_is_gone_are_let_go() -> None:
    world = World()
    add_job(world)
    run(world)
    pod = world.pods()[0]
    key = Key("team", pod["metadata"]["name"])
    assert jobs.plan_orphan(world, key, world.now) == []
    del world.objects["Job", Key("team", "j")]
    world.run(jobs.plan_orphan, key.name)
    assert "finalizers" not in pod["metadata"]


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([0], "0"), ([0, 1], "0-1"), ([0, 2, 3, 4, 7], "0,2-4,7"), ([5, 4], "4-5")]
)
def test_indexes_are_written_in_ranges(indexes: list[int], text: str) -> None:
    assert job_tally.render_indexes(indexes) == text
    assert sorted(job_tally.parse_indexes(text)) == sorted(indexes)


# All kinds ------------------------------------------------------------------------------------------------------------

STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


def test_pods_of_a_kind_are_made_once_and_go_with_it() -> None:
    world = World()
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "main"}]}}
    body = {"metadata": {"name": "s"}, "spec": {"replicas": 2, "template": template, "serviceName": "db"}}
    stateful_set = world.add(STATEFUL_SET, body)
    world.run(operators.PLANS[STATEFUL_SET], "s")
    assert [pod["metadata"]["name"] for pod in world.pods()] == ["s-0", "s-1"]
    assert stateful_set["status"]["replicas"] == 2
    stateful_set["spec"]["replicas"] = 1
    world.run(operators.PLANS[STATEFUL_SET], "s")
    assert [pod["metadata"]["name"] for pod in world.pods()] == ["s-0"]


def test_a_kind_that_runs_through_jobs_makes_them_when_it_is_resumed() -> None:
    world = World()
    job_template = {"spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}
    groups = [{"name": "workers", "replicas": 2, "template": job_template}]
    job_set = world.add(JOB_SET, {"metadata": {"name": "js"}, "spec": {"suspend": True, "replicatedJobs": groups}})
    world.run(operators.PLANS[JOB_SET], "js")
    assert world.list_json(JOB) == []
    job_set["spec"]["suspend"] = False
    world.run(operators.PLANS[JOB_SET], "js")
    assert sorted(job["metadata"]["name"] for job in world.list_json(JOB)) == ["js-workers-0", "js-workers-1"]
    for job in world.list_json(JOB):
        job["status"] = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    world.run(operators.PLANS[JOB_SET], "js")
    assert conditions(job_set["status"])["Completed"] == "True"


KIND_CASES = sorted((Path(__file__).parent.parent / "cases" / "kinds").glob("*.yaml"))


def load(world: World, path: Path) -> tuple[JobKind, Json] | None:
    """The first manifest of a case and what it refers to; None if it needs no plan here."""
    first, *others, _ = read_documents(path)
    kind = table.find(first)
    assert kind is not None
    if kind.kind not in operators.PLANS or kind.kind.kind == "CronJob":
        return None
    for obj in others:
        group, _, version = obj["apiVersion"].rpartition("/")
        world.add(
            Kind(group, version, obj["kind"], "", namespaced=False),
            {**obj, "metadata": {"namespace": "", **obj["metadata"]}},
        )
    body = kind.with_suspend(kind.defaults(first, Context()), suspend=False)
    return kind, world.add(kind.kind, {**body, "metadata": {**body["metadata"], "namespace": "team"}})


def settle(world: World) -> None:
    """Run the plans of all objects until none changes anything."""
    for _ in range(20):
        before = copy.deepcopy(world.objects)
        for kind, plan in operators.PLANS.items():
            for obj in list(world.list_json(kind)):
                world.run(plan, obj["metadata"]["name"])
        if world.objects == before:
            return
    raise AssertionError("the plans do not come to rest")


@pytest.mark.parametrize("path", KIND_CASES, ids=lambda path: path.stem)
def test_every_kind_gets_its_pods_and_ends_by_its_rule(path: Path) -> None:
    world = World()
    loaded = load(world, path)
    if loaded is None:
        return
    kind, obj = loaded
    settle(world)
    assert world.pods(), "it has no pods"
    for _ in range(10):
        world.start_pods()
        settle(world)
        # What runs through something that serves never finishes either.
        if kind.completion.rule == "NeverFinishes" or world.list_json(replica_sets.DEPLOYMENT):
            assert kind.finished(obj) is None
            return
        for pod in world.pods("Running"):
            world.end(pod)
        settle(world)
    finished = kind.finished(obj)
    assert finished is not None
    assert finished.success, finished
