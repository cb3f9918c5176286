"""Every job kind by its own case: what it asks for, how it starts and stops, and how its pods decide it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kyu.api.meta import Json, Ref
from kyu.kinds import conditions, fields, metadata, pods, table, templates
from kyu.kinds.kind import Context, JobKind, MissingReference
from kyu.kinds.templates import PodSetInfo, TemplateConflict
from tests.support.case_files import read_documents
from tests.support.memory_view import merged

CASES = sorted((Path(__file__).parent.parent / "cases" / "kinds").glob("*.yaml"))
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
# The status of a child that runs.
BUSY: dict[str, Json] = {"Job": {"active": 1}, "JobSet": {"replicatedJobsStatus": [{"name": "node", "active": 1}]}}


class Case:
    """A manifest, the objects that it refers to, and what is wanted of it."""

    def __init__(self, path: Path) -> None:
        *objects, self.want = read_documents(path)
        assert self.want.pop("kind") == "Want", path
        self.others = objects[1:]
        found = table.find(objects[0])
        assert found is not None, f"{path} has no job"
        self.kind: JobKind = found
        self.manifest: Json = objects[0]

    def find(self, ref: Ref) -> Json | None:
        return next(
            (o for o in self.others if o["kind"] == ref.kind.kind and metadata.name_of(o) == ref.key.name), None
        )

    def resolved(self, obj: Json) -> Json:
        result = self.kind.resolve(obj, self.find)
        assert not isinstance(result, MissingReference), str(result)
        return result

    @property
    def obj(self) -> Json:
        """The object as it would be stored, with what it refers to."""
        return self.resolved(self.kind.defaults(self.manifest, Context()))

    def infos(self) -> list[PodSetInfo]:
        return [
            PodSetInfo(
                pod_set.name,
                pod_set.count,
                labels={metadata.POD_SET: pod_set.name},
                annotations={metadata.WORKLOAD: "w"},
                node_selector={"pool": "a"},
                tolerations=({"key": "spot", "operator": "Exists"},),
                scheduling_gates=(metadata.TOPOLOGY_GATE,),
            )
            for pod_set in self.kind.pod_sets(self.obj)
        ]

    def started(self) -> Json:
        patch = self.kind.start_patch(self.obj, self.infos())
        assert isinstance(patch, dict), str(patch)
        return self.resolved(merged(self.obj, patch))


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


ALL = {path: Case(path) for path in CASES}
QUEUED = [path for path, case in ALL.items() if case.kind.queued_as == "itself"]
ALIVE = [path for path, case in ALL.items() if "life" in case.want]
WITH_PODS = [path for path in QUEUED if ALL[path].kind.pods_of(ALL[path].obj)]
WITH_CHILDREN = [path for path in QUEUED if ALL[path].kind.children_of(ALL[path].started())]
DISPATCHED = [path for path in QUEUED if ALL[path].kind.managed_by_path]


@pytest.fixture(params=QUEUED, ids=lambda path: path.stem)
def queued(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=ALIVE, ids=lambda path: path.stem)
def alive(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=WITH_PODS, ids=lambda path: path.stem)
def with_pods(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=WITH_CHILDREN, ids=lambda path: path.stem)
def with_children(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=DISPATCHED, ids=lambda path: path.stem)
def dispatched(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_it_asks_for_its_pod_sets(case: Case) -> None:
    pod_sets = case.kind.pod_sets(case.obj)
    assert {s.name: s.count for s in pod_sets} == case.want["podSets"]
    assert case.kind.queue_name(case.obj) == case.want.get("queue", "main" if case.kind.framework else "")
    if "framework" in case.want:
        assert case.kind.framework == case.want["framework"]
    if "priorityClass" in case.want:
        assert case.kind.priority_class(case.obj) == case.want["priorityClass"]
    for name, wanted in case.want.get("requests", {}).items():
        template = next(s.template for s in pod_sets if s.name == name)
        assert template["spec"]["containers"][0]["resources"]["requests"] == wanted
    for name, wanted in case.want.get("containers", {}).items():
        template = next(s.template for s in pod_sets if s.name == name)
        assert [c["name"] for c in template["spec"]["containers"]] == wanted


def test_its_workloads_have_the_names_that_kueue_gives(case: Case) -> None:
    names = [name for name, _ in case.kind.workloads(case.obj)]
    if "workloads" in case.want:
        assert names == case.want["workloads"]
    elif "workload" in case.want:
        assert names == [case.want["workload"]]
    else:
        kind, name = case.kind.kind.kind.lower(), metadata.name_of(case.obj)
        assert [n.rpartition("-")[0] for n in names] == [f"{kind}-{name}"]


def test_it_is_suspended_when_it_is_created(queued: Case) -> None:
    stored = queued.kind.defaults(queued.manifest, Context())
    assert queued.kind.is_suspended(stored)
    assert queued.kind.defaults(stored, Context()) == stored, "defaulting twice changes nothing"
    assert queued.kind.validate(stored, None, Context()) == []
    assert queued.kind.validate(stored, stored, Context()) == [], "what does not change is no change"


def test_it_is_left_alone_without_a_queue(queued: Case) -> None:
    manifest = fields.with_value(queued.manifest, ("metadata", "labels"), {})
    defaulted = queued.kind.defaults(manifest, Context())
    assert not queued.kind.is_suspended(defaulted)
    child = queued.kind.defaults(queued.manifest, Context(owner_is_managed=True))
    assert not queued.kind.is_suspended(child)


def test_it_gets_the_default_queue_and_the_default_priority(queued: Case) -> None:
    manifest = fields.with_value(queued.manifest, ("metadata", "labels"), {})
    context = Context(has_default_queue=True, has_default_priority_class=True)
    labels = metadata.labels_of(queued.kind.defaults(manifest, context))
    assert labels[metadata.QUEUE_NAME] == labels[metadata.PRIORITY_CLASS] == "default"
    manifest = fields.with_value(manifest, ("metadata", "labels", metadata.QUEUE_NAME), "mine")
    manifest = fields.with_value(manifest, ("metadata", "labels", metadata.PRIORITY_CLASS), "high")
    labels = metadata.labels_of(queued.kind.defaults(manifest, context))
    assert (labels[metadata.QUEUE_NAME], labels[metadata.PRIORITY_CLASS]) == ("mine", "high")


def test_a_queue_that_dispatches_takes_over_the_job(dispatched: Case) -> None:
    path = dispatched.kind.managed_by_path
    assert path is not None
    context = Context(dispatching_queues=frozenset({"main"}))
    assert fields.value_at(dispatched.kind.defaults(dispatched.manifest, context), path) == metadata.MULTI_KUEUE
    foreign = fields.with_value(dispatched.manifest, path, "example.com/controller")
    assert fields.value_at(dispatched.kind.defaults(foreign, context), path) == "example.com/controller"


def test_start_adds_what_admission_says_and_stop_takes_it_back(queued: Case) -> None:
    obj = queued.obj
    started = queued.started()
    assert not queued.kind.is_suspended(started)
    for template in started_templates(queued.kind, started):
        assert template["spec"]["nodeSelector"]["pool"] == "a"
        assert {"key": "spot", "operator": "Exists"} in template["spec"]["tolerations"]
        assert {"name": metadata.TOPOLOGY_GATE} in template["spec"]["schedulingGates"]
        assert metadata.annotations_of(template)[metadata.WORKLOAD] == "w"
        assert metadata.POD_SET in metadata.labels_of(template)
    if queued.kind.stops_by_deletion:
        return
    suspended = merged(started, queued.kind.suspend_patch(started))
    restored = merged(suspended, queued.kind.restore_patch(suspended, queued.kind.pod_sets(obj)))
    restored = queued.resolved({k: v for k, v in restored.items() if k != "resolved JobSet"})
    assert queued.kind.pod_sets(restored) == queued.kind.pod_sets(obj)
    assert queued.kind.is_suspended(restored)


def started_templates(kind: JobKind, obj: Json) -> Iterator[Json]:
    """The templates of the pods that would run."""
    children = kind.children_of(obj)
    if not children:
        yield from (pod_set.template if pod_set.template != {} else {} for pod_set in raw_pod_sets(kind, obj))
        return
    for child in children:
        inner = table.find(child)
        if inner is not None and inner.framework != "deployment":
            yield from started_templates(inner, child)


def raw_pod_sets(kind: JobKind, obj: Json) -> list[templates.PodSetTemplate]:
    if kind.framework == "pod":  # the template of a Workload leaves out the gates, so the pod itself is looked at
        return [templates.PodSetTemplate("main", obj, 1)]
    return kind.pod_sets(obj)


def test_a_conflict_is_told_and_nothing_is_started(queued: Case) -> None:
    obj = queued.obj
    first = queued.kind.slots(obj)[0]
    path = (
        (*first.template, "nodeSelector")
        if "spark" in queued.kind.framework
        else (*first.template, "spec", "nodeSelector")
    )
    result = queued.kind.start_patch(fields.with_value(obj, path, {"pool": "b"}), queued.infos())
    assert result == TemplateConflict(first.name, "nodeSelector", "pool", "b", "a")


def test_unknown_fields_survive_a_start(queued: Case) -> None:
    obj = fields.with_value(queued.obj, ("spec", "futureField"), {"x": [1, {"y": None}]})
    patch = queued.kind.start_patch(obj, queued.infos())
    assert isinstance(patch, dict)
    assert merged(obj, patch)["spec"]["futureField"] == {"x": [1, {"y": None}]}


def test_its_status_tells_how_it_does(case: Case) -> None:
    for step in case.want.get("status", []):
        obj = {**case.obj, "status": step["status"]}
        check(case.kind, obj, {"finished": None, **{k: v for k, v in step.items() if k != "status"}})


@pytest.mark.parametrize("kind", table.KINDS, ids=lambda kind: kind.kind.kind)
def test_there_is_a_case_for_every_state_of_a_kind(kind: JobKind) -> None:
    shown = {state for case in map(Case, CASES) if case.kind is kind for state in states_in(case)}
    wanted = {("active", True), ("active", False), ("ready", True), ("ready", False)}
    if kind.completion != pods.NEVER_FINISHES:
        wanted |= {("finished", True), ("finished", False)}
    # The pods of a CronJob are those of its Jobs. A plain pod is started in a test of its own.
    elsewhere = {"CronJob": {("ready", False)}, "Pod": {("active", True)}}
    assert wanted - elsewhere.get(kind.kind.kind, set()) <= shown


def states_in(case: Case) -> Iterator[tuple[str, bool]]:
    """What its steps show: active, ready, and a success or a failure."""
    for step in [*case.want.get("status", []), *(step["want"] for step in case.want.get("life", []))]:
        for key in ("active", "ready", "finished"):
            value = step.get(key)
            if value is not None:
                yield key, value["success"] if isinstance(value, dict) else value


def test_a_pod_is_active_when_its_gate_is_gone_until_it_ends() -> None:
    case = Case(next(path for path in CASES if path.stem.startswith("pod-is-held")))
    started = case.started()
    assert case.kind.is_active({**started, "status": {"phase": "Running"}})
    assert not case.kind.is_active({**started, "status": {"phase": "Failed"}})


def test_its_pods_know_who_they_are(case: Case) -> None:
    plan_by_name = {plan.name: plan for plan in case.kind.pods_of(case.obj)}
    for name, env in case.want.get("env", {}).items():
        assert env.items() <= plan_by_name[name].env.items()
        pod = plan_by_name[name].to_pod(case.obj)
        assert {"name": next(iter(env)), "value": next(iter(env.values()))} in pod["spec"]["containers"][0]["env"]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == case.obj["metadata"]["uid"]
    for name, command in case.want.get("commands", {}).items():
        assert plan_by_name[name].template["spec"]["containers"][0]["command"] == command


def test_it_lives_and_ends_by_its_rule(alive: Case) -> None:
    obj = alive.started() if alive.kind.queued_as == "itself" else alive.obj
    for step in alive.want["life"]:
        parts = parts_of(alive.kind, obj, step)
        patch = alive.kind.status_from_pods(obj, parts, NOW)
        obj = alive.resolved({**obj, "status": merged(obj.get("status", {}), patch)})
        if "surplus" not in step["want"]:
            assert alive.kind.status_from_pods(obj, parts, NOW) == {}, "a second look changes nothing"
        check(alive.kind, obj, step["want"], parts)


def test_what_is_over_stays_so_when_its_pods_are_removed(alive: Case) -> None:
    obj = alive.started() if alive.kind.queued_as == "itself" else alive.obj
    for step in alive.want["life"]:
        patch = alive.kind.status_from_pods(obj, parts_of(alive.kind, obj, step), NOW)
        obj = alive.resolved({**obj, "status": merged(obj.get("status", {}), patch)})
    end = alive.kind.finished(obj)
    later = {**obj, "status": merged(obj["status"], alive.kind.status_from_pods(obj, [], NOW))}
    assert end is None or alive.kind.finished(later) == end


def parts_of(kind: JobKind, obj: Json, step: Json) -> list[Json]:
    """The pods and children of the object in the states that the step says."""
    its_pods = [make_pod(kind, obj, name, state) for name, state in step.get("pods", {}).items()]
    return its_pods + make_children(kind, obj, step.get("children", {}))


def check(kind: JobKind, obj: Json, want: dict[str, Any], parts: list[Json] | None = None) -> None:
    end = kind.finished(obj)
    for key, wanted in want.items():
        match key:
            case "active":
                assert kind.is_active(obj) is wanted
            case "ready":
                assert kind.pods_ready(obj) is wanted
            case "reclaimable":
                assert kind.reclaimable_pods(obj) == wanted
            case "finished" if isinstance(wanted, dict):
                assert end is not None
                assert {"success": end.success, "message": end.message} == wanted
            case "finished":
                assert (end.success if end else None) is wanted
            case "children":
                assert [f"{c['kind']} {metadata.name_of(c)}" for c in kind.children_of(obj)] == wanted
            case "conditions":
                found = {c["type"]: c["status"] for c in fields.list_at(obj, ("status", "conditions"))}
                assert wanted.items() <= found.items()
            case "message":
                messages = [str(c.get("message")) for c in fields.list_at(obj, ("status", "conditions"))]
                assert any(wanted in m for m in [*messages, end.message if end else ""])
            case "surplus":
                assert surplus(kind, obj, parts or []) == wanted
            case _:
                pytest.fail(f"the case wants {key!r}, which no test looks at")


def surplus(kind: JobKind, obj: Json, parts: list[Json]) -> list[str]:
    if any(part["kind"] == "Pod" for part in parts):
        return kind.surplus_pods(obj, parts)
    return [f"{ref.kind.kind} {ref.key.name}" for ref in kind.surplus_children(obj, parts)]


def make_pod(kind: JobKind, obj: Json, name: str, state: str) -> Json:
    """``Ready``, ``Pending``, ``Succeeded`` or ``Failed 3``: a pod of the job in that state."""
    plan = next(plan for plan in kind.pods_of(obj) if plan.name == name)
    word, _, code = state.partition(" ")
    status: Json = {"phase": "Running" if word == "Ready" else word}
    if word == "Ready":
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    if code:
        status["containerStatuses"] = [{"state": {"terminated": {"exitCode": int(code)}}}]
    return {**plan.to_pod(obj), "status": status}


def make_children(kind: JobKind, obj: Json, statuses: dict[str, Json]) -> list[Json]:
    wanted = {metadata.name_of(child): child for child in kind.children_of(obj)}
    made = []
    for name, status in statuses.items():
        child = wanted[name]
        if status.pop("suspend", False):
            child = fields.with_value(child, ("spec", "suspend"), True)
        made.append({**child, "status": status})
    return made


def test_a_suspended_job_is_active_until_its_pods_are_gone(with_pods: Case) -> None:
    """Its quota must not be given to others before."""
    kind, started = with_pods.kind, with_pods.started()
    plans = kind.pods_of(started)
    running = [make_pod(kind, started, plan.name, "Ready") for plan in plans]
    obj = {**started, "status": kind.status_from_pods(started, running, NOW)}
    assert kind.is_active(obj)
    suspended = merged(obj, kind.suspend_patch(obj))
    assert kind.surplus_pods(suspended, running) == [plan.name for plan in plans]
    for left, active in ((running, True), (running[:1], True), ([], False)):
        patch = kind.status_from_pods(suspended, left, NOW)
        suspended = {**suspended, "status": merged(suspended["status"], patch)}
        assert kind.is_active(suspended) is active
        assert kind.status_from_pods(suspended, left, NOW) == {}


def test_a_suspended_job_gives_up_its_children(with_children: Case) -> None:
    kind, started = with_children.kind, with_children.started()
    obj = with_children.resolved({**started, "status": kind.status_from_children(started, [], NOW)})
    children = [{**child, "status": BUSY.get(child["kind"], {})} for child in kind.children_of(obj)]
    obj = with_children.resolved(
        {**obj, "status": merged(obj["status"], kind.status_from_children(obj, children, NOW))}
    )
    assert kind.is_active(obj)
    assert kind.surplus_children(obj, children) == []
    suspended = merged(obj, kind.suspend_patch(obj))
    assert kind.children_of(suspended) == []
    assert len(kind.surplus_children(suspended, children)) == len(children)
    for left, active in ((children, True), ([], False)):
        patch = kind.status_from_children(suspended, left, NOW)
        suspended = {**suspended, "status": merged(suspended["status"], patch)}
        assert kind.is_active(suspended) is active


def test_a_train_job_waits_for_its_runtime() -> None:
    case = Case(next(path for path in CASES if path.stem.startswith("train-job")))
    result = case.kind.resolve(case.manifest, lambda ref: None)
    assert str(result) == "ClusterTrainingRuntime torch does not exist"


def test_conditions_keep_their_time_until_they_change() -> None:
    first = conditions.with_condition([], "Running", "True", reason="A", message="a", now=NOW)
    again = conditions.with_condition(first, "Running", "True", reason="B", message="b", now=NOW.replace(hour=13))
    assert again == [{**first[0], "reason": "B", "message": "b"}]
    later = conditions.with_condition(again, "Running", "False", reason="C", message="c", now=NOW.replace(hour=13))
    assert later[0]["lastTransitionTime"] == "2026-01-01T13:00:00Z"
