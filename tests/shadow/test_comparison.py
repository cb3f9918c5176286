"""Decisions of another scheduler against those of the engine, on the same objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.api.kueue import Workload
from kyu.api.meta import Key, Object
from kyu.shadow.comparison import Comparison
from kyu.shadow.report import ShadowReport
from tests.support.builders import (
    at,
    cluster_queue,
    codec_json,
    condition,
    flavor,
    holding,
    local_queue,
    make,
    state_of,
    workload,
)

PATIENCE = 30.0
LOWER = {"withinClusterQueue": "LowerPriority"}
KEPT = {"cpu": "default"}


@dataclass
class World:
    """A comparison with its Workload objects, and a clock."""

    comparison: Comparison
    objects: dict[Key, Workload] = field(default_factory=dict)

    @classmethod
    def of(cls, *objects: Object) -> World:
        known: dict[Key, Workload] = {}
        state = state_of(flavor("default"), flavor("other"), *objects)
        return cls(Comparison(state, known.get, PATIENCE, ShadowReport(at(0).timestamp())), known)

    @property
    def report(self) -> ShadowReport:
        return self.comparison.report

    def see(self, found: Workload, seconds: float) -> None:
        """The object changes to this, and the engine decides."""
        old = self.objects.get(found.key)
        self.objects[found.key] = found
        self.comparison.change(old, found, at(seconds))
        self.comparison.decide(at(seconds))

    def gone(self, found: Workload, seconds: float) -> None:
        self.comparison.change(self.objects.pop(found.key), None, at(seconds))
        self.comparison.decide(at(seconds))

    def told(self) -> list[tuple[str, str]]:
        return [(one.type, one.workload.name) for one in self.report.found.values()]


def queue(cpu: int, **spec: object) -> tuple[Object, ...]:
    return cluster_queue("main", {"default": {"cpu": cpu}}, **spec), local_queue("main")


def admitted(found: Workload, flavor_name: str = "default", seconds: float = 0) -> Workload:
    return holding(found, "main", {"cpu": flavor_name}, reserved=seconds)


def preempted(found: Workload, by: Workload, seconds: float) -> Workload:
    """A workload that holds quota and is evicted for another one."""
    body = codec_json(admitted(found))
    message = f"Preempted to accommodate a workload (UID: {by.metadata.uid}, JobUID: x) due to prioritization"
    body["status"]["conditions"] += [
        {**condition("Evicted", seconds), "reason": "Preempted", "message": message},
        {**condition("Preempted", seconds), "reason": "InClusterQueue", "message": message},
    ]
    return make(Workload, "Workload", body["metadata"], spec=body["spec"], status=body["status"])


def test_the_same_admission_agrees_with_its_delay() -> None:
    world, first = World.of(*queue(4)), workload("first", cpu=2)
    world.see(first, 1)
    world.see(admitted(first, seconds=3), 3)
    assert world.report.same == {"admission": 1}
    assert world.report.take_delays() == [2.0]
    assert world.told() == []


def test_another_flavor_is_a_disagreement() -> None:
    both = cluster_queue("main", {"default": {"cpu": 4}, "other": {"cpu": 4}})
    world, first = World.of(both, local_queue("main")), workload("first", cpu=2)
    world.see(first, 0)
    world.see(admitted(first, "other"), 1)
    (found,) = world.report.found.values()
    assert (found.type, found.theirs, found.ours) == (
        "OtherFlavors",
        "admitted: 1 of main: cpu from other",
        "admit: 1 of main: cpu from default",
    )


def test_an_admission_beyond_quota_is_a_disagreement_with_the_reason() -> None:
    world, first = World.of(*queue(1)), workload("first", cpu=2)
    world.see(first, 0)
    world.see(admitted(first), 1)
    (found,) = world.report.found.values()
    assert found.type == "WouldWait"
    assert "current podset request (2) > maximum capacity (1)" in found.ours


def test_an_admission_out_of_order_names_the_workload_that_comes_first() -> None:
    world = World.of(*queue(2))
    important, other = workload("important", cpu=2, priority=10), workload("other", cpu=2)
    world.see(important, 0)
    world.see(other, 0)
    world.see(admitted(other), 1)
    (found,) = world.report.found.values()
    assert (found.type, found.workload.name) == ("WouldWait", "other")
    assert "admit first: default/important" in found.ours
    # The quota is taken now, so the engine leaves the other one pending, too.
    world.comparison.review(at(100))
    assert world.told() == [("WouldWait", "other")]


def test_a_decision_on_newer_objects_is_no_disagreement() -> None:
    world = World.of(*queue(2))
    early, important = workload("early", cpu=2), workload("important", cpu=2, priority=10, created=1)
    world.see(early, 0)
    # The other scheduler was busy, and decides when both are there.
    world.see(important, 1)
    world.see(admitted(important), 2)
    assert world.report.same == {"admission": 1}
    assert world.told() == []


def test_a_workload_that_is_left_pending_is_told_once() -> None:
    world, first = World.of(*queue(4)), workload("first", cpu=2)
    world.see(first, 0)
    world.comparison.review(at(PATIENCE))
    assert world.told() == []
    for seconds in (PATIENCE + 1, PATIENCE + 2, 3 * PATIENCE):
        world.comparison.review(at(seconds))
    (found,) = world.report.found.values()
    assert (found.type, found.theirs) == ("WouldAdmit", "pending for 31 s after that: no reason is written")
    assert world.report.open() == {"WouldAdmit": 1}
    world.see(admitted(first), 4 * PATIENCE)
    assert not world.report.open()
    assert world.report.same == {"admission": 1}
    assert world.report.take_delays() == [4 * PATIENCE]


def test_the_same_preemption_agrees() -> None:
    world = World.of(*queue(2, preemption=LOWER))
    low, high = workload("low", cpu=2), workload("high", cpu=2, priority=10, created=1)
    world.see(low, 0)
    world.see(admitted(low), 0)
    world.see(high, 1)
    world.see(preempted(low, high, 2), 2)
    world.see(low, 3)
    world.see(admitted(high, seconds=4), 4)
    assert world.report.same == {"admission": 2, "preemption": 1}
    assert world.told() == []


def test_another_victim_is_a_disagreement() -> None:
    world = World.of(*queue(4, preemption=LOWER))
    older, newer = workload("older", cpu=2), workload("newer", cpu=2)
    high = workload("high", cpu=2, priority=10, created=9)
    for seconds, one in ((0, older), (1, newer)):
        world.see(one, seconds)
        world.see(admitted(one, seconds=seconds), seconds)
    world.see(high, 9)
    world.see(preempted(older, high, 10), 10)
    (found,) = world.report.found.values()
    assert (found.type, found.workload.name) == ("WouldNotPreempt", "older")
    assert found.ours == "preempt others for default/high: default/newer"


def test_a_preemption_that_is_not_made_is_told() -> None:
    world = World.of(*queue(2, preemption=LOWER))
    low, high = workload("low", cpu=2), workload("high", cpu=2, priority=10, created=1)
    world.see(low, 0)
    world.see(admitted(low), 0)
    world.see(high, 1)
    world.comparison.review(at(100))
    (found,) = world.report.found.values()
    assert (found.type, found.workload.name, found.ours) == ("WouldPreempt", "high", "preempt default/low")
    # The victim is an ordinary workload again.
    assert not world.comparison.state.reserved.by_key[low.key].evicted


def test_a_workload_that_ends_while_it_is_predicted_is_forgotten() -> None:
    world, first = World.of(*queue(4)), workload("first", cpu=2)
    world.see(first, 0)
    world.gone(first, 1)
    world.comparison.review(at(100))
    assert world.told() == []
    assert not world.comparison.state.reserved.by_key
