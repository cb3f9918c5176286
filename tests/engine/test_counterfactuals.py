"""Every change that is offered to a pending workload admits it when it is applied, and none smaller does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from kyu.api import codec, quantity
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Key, Object
from kyu.cli.admin.decide import rehearse
from kyu.engine.options import Options
from kyu.engine.state import State
from kyu.engine.what_if import changes, words
from kyu.engine.what_if.changes import (
    Change,
    FewerPods,
    HigherPriority,
    MoreQuota,
    OtherFlavor,
    OtherQueue,
    Resume,
    SmallerRequest,
)
from kyu.engine.what_if.counterfactuals import Prospects, WhatIf
from kyu.engine.what_if.trial import StateTrial
from kyu.engine.workloads import ReservedWorkload
from tests.engine.test_run_until_stable import FlatStory, MixedStory, RealisticStory, Story, WideStory
from tests.support.builders import (
    START,
    at,
    cluster_queue,
    codec_json,
    condition,
    flavor,
    holding,
    local_queue,
    state_of,
    workload,
)

NOW = at(100)
KINDS = (Story, WideStory, FlatStory, MixedStory, RealisticStory)
SEEDS = range(int(os.environ.get("KYU_FUZZ", "25")))


def look(objects: Sequence[Object], name: str, options: Options | None = None) -> Prospects:
    state = state_of(*objects, options=options)
    return WhatIf(state, objects, NOW.timestamp()).find(Key("default", name))


def texts(found: Prospects) -> list[str]:
    return [words.render_counterfactual(one, {}) for one in found.counterfactuals]


def admits(objects: Sequence[Object], options: Options | None, key: Key) -> bool:
    """Return whether the workload holds quota after all decisions on these objects, in a state of their own."""
    state = state_of(*objects, options=options)
    rehearse(state, NOW, None)
    return any(reserved.key == key for reserved in state.all_reserved())


def applied(change: Change, objects: Sequence[Object], key: Key) -> list[Object]:
    return [apply_to(obj, change, objects, key) for obj in objects]


def apply_to(obj: Object, change: Change, objects: Sequence[Object], key: Key) -> Object:
    if isinstance(obj, Workload) and obj.key == key:
        match change:
            case FewerPods(pod_set, _, after):
                return changes.with_count(obj, pod_set, after)
            case SmallerRequest(pod_set, resource, before, after):
                return changes.with_request(obj, pod_set, resource, before - after)
            case OtherQueue(name, _):
                return changes.with_queue(obj, Key(key.namespace, name))
            case HigherPriority(_, after):
                return changes.with_priority(obj, after)
            case OtherFlavor(name):
                (spec,) = [f.spec for f in objects if isinstance(f, ResourceFlavor) and f.metadata.name == name]
                return changes.with_flavor(obj, name, spec)[0]
    elif isinstance(change, MoreQuota) and isinstance(obj, ClusterQueue) and obj.metadata.name == change.cluster_queue:
        return changes.with_quota(obj, change.field, {r.key: r.after for r in change.raises})
    elif isinstance(change, Resume) and isinstance(obj, ClusterQueue | LocalQueue):
        return changes.resumed(obj) if (obj.KIND.kind, obj.metadata.name) == (change.kind, change.name) else obj
    return obj


def smaller(change: Change, random: Random) -> Iterator[Change]:
    """Yield changes of the same kind that are smaller."""
    match change:
        case FewerPods(_, before, after):
            yield from (replace(change, after=count) for count in range(after + 1, before))
        case SmallerRequest(_, _, before, after) if after + 1 < before:
            yield replace(change, after=after + 1)
            yield replace(change, after=random.randint(after + 1, before - 1))
        case HigherPriority(before, after):
            yield from (replace(change, after=number) for number in range(before + 1, after))
        case MoreQuota(_, _, raises):
            for one in raises:
                rest = tuple(other for other in raises if other is not one)
                if rest:
                    yield replace(change, raises=rest)
                for amount in {one.after - 1, random.randint(one.before, one.after - 1)} - {one.before}:
                    yield replace(change, raises=(*rest, replace(one, after=amount)))


def as_object(found: Workload, reserved: ReservedWorkload | None) -> Workload:
    """Return the object of a workload, with the quota that it holds."""
    if reserved is None:
        return found
    seconds = reserved.reserved_at - START.timestamp()
    assigned = [
        {
            "name": a.name,
            "count": a.count,
            "flavors": dict(a.flavors),
            "resourceUsage": {r: quantity.render(r, v) for r, v in a.usage.items()},
        }
        for a in reserved.assigned
    ]
    status = {
        "conditions": [condition("QuotaReserved", seconds), condition("Admitted", seconds)],
        "admission": {"clusterQueue": reserved.cluster_queue, "podSetAssignments": assigned},
    }
    decoded = codec.decode({**codec_json(found), "status": status})
    assert isinstance(decoded, Workload)
    return decoded


def scene(kind: type[Story], seed: int) -> tuple[Options, list[Object], list[Key]]:
    """Return the objects after some random steps, and the keys of pending workloads. Some were never tried."""
    story = kind(seed)
    options, queues = story.options(), story.objects()
    state = state_of(*queues, options=options)
    found: dict[Key, Workload] = {}
    for step in range(4):
        for submission in [story.submission(step) for _ in range(story.random.randint(0, story.most_arrivals))]:
            state.put(submission)
            found[submission.key] = submission
        for reserved in state.all_reserved():
            if story.random.random() < 0.3:
                state.delete(Workload.KIND, reserved.key)
                del found[reserved.key]
        StateTrial(state, at(step * 10).timestamp()).run()
    held = {reserved.key: reserved for reserved in state.all_reserved()}
    late = [story.submission(9) for _ in range(2 if seed % 3 == 0 else 0)]
    objects = [*queues, *(as_object(obj, held.get(key)) for key, obj in found.items()), *late]
    return options, objects, [*(key for key in found if key not in held), *(obj.key for obj in late)]


def facts(state: State) -> object:
    queues = state.queue_names()
    usage = {name: [(report.key, report.used) for report in state.queue_quotas(name)] for name in queues}
    return usage, {name: [w.key for w in state.pending_in(name)] for name in queues}, len(state.all_reserved())


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_offered_admits_and_nothing_smaller_does(seed: int) -> None:
    options, objects, pending = scene(KINDS[seed % len(KINDS)], seed)
    if not pending:
        return
    random = Random(seed)
    key = random.choice(pending)
    state = state_of(*objects, options=options)
    before = facts(state)
    found = WhatIf(state, objects, NOW.timestamp()).find(key)
    assert facts(state) == before
    state.check()
    assert admits(objects, options, key) == (found.admit is not None)
    for one in found.counterfactuals:
        assert admits(applied(one.change, objects, key), options, key), one.change
        for less in smaller(one.change, random):
            assert not admits(applied(less, objects, key), options, key), f"{less} is enough, not {one.change}"


def held(cpu: int) -> Workload:
    """Return a workload that holds quota of the queue ``main``."""
    return holding(workload("held", cpu=cpu), "main", {"cpu": "f0"})


def one_queue(**spec: Any) -> list[Object]:
    return [flavor("f0"), cluster_queue("main", {"f0": {"cpu": 10}}, **spec), local_queue("main")]


def test_each_kind_of_change_is_offered() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    quotas = {"f0": {"cpu": 10}, "spot": {"cpu": 20}}
    objects = [
        flavor("f0"),
        flavor("spot", nodeTaints=[taint]),
        cluster_queue("main", quotas, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("main"),
        cluster_queue("big", {"f0": {"cpu": 40}}),
        local_queue("big"),
        held(6),
        workload("train", count=4, cpu=2),
    ]
    assert texts(look(objects, "train")) == [
        "in the queue big (ClusterQueue big)",
        "with 2 pods instead of 4",
        "with 1 cpu per pod instead of 2",
        "on flavor spot, tolerating spot=yes:NoSchedule",
        "with priority 1 instead of 0, preempting default/held",
        "if ClusterQueue main owned 14 cpu of flavor f0 instead of 10",
    ]


def test_a_raise_counts_the_workloads_before() -> None:
    objects = [*one_queue(), held(9), workload("first", cpu=3, created=1)]
    found = look([*objects, workload("second", cpu=3, created=2)], "second")
    assert "if ClusterQueue main owned 15 cpu of flavor f0 instead of 10" in texts(found)


def test_behind_a_strict_head_only_what_passes_the_head_is_offered() -> None:
    objects = [*one_queue(queueingStrategy="StrictFIFO"), held(9)]
    objects += [workload("first", cpu=3, created=1), workload("second", cpu=1, created=2)]
    assert texts(look(objects, "second")) == [
        "with priority 1 instead of 0",
        "if ClusterQueue main owned 13 cpu of flavor f0 instead of 10",
    ]


def test_a_stopped_queue_is_resumed() -> None:
    objects = [*one_queue(stopPolicy="Hold"), workload("w", cpu=1)]
    assert texts(look(objects, "w")) == ["if ClusterQueue main were resumed"]


def test_a_workload_that_starts_by_itself_needs_no_change() -> None:
    objects = [*one_queue(preemption={"withinClusterQueue": "LowerPriority"})]
    objects += [held(9), workload("w", cpu=3, priority=1)]
    found = look(objects, "w")
    assert found.admit is not None
    assert [preempt.victim.name for preempt in found.preempts] == ["held"]
    assert found.counterfactuals == ()


def limited(name: str, cpu: int, limit: int | None) -> Workload:
    """Return a workload that has held quota of the queue ``main`` since second 0, with a maximum execution time."""
    found = workload(name, cpu=cpu)
    found = msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, maximum_execution_time_seconds=limit)
    )
    return holding(found, "main", {"cpu": "f0"})


def later(found: Prospects) -> list[tuple[float, int]]:
    return [
        (one.change.at - START.timestamp(), one.change.ended)
        for one in found.counterfactuals
        if isinstance(one.change, changes.Later)
    ]


def test_the_time_is_that_of_the_last_end_that_is_needed() -> None:
    objects = [*one_queue(), limited("a", 4, 300), limited("b", 3, 500), limited("c", 3, 900)]
    assert later(look([*objects, workload("w", cpu=6)], "w")) == [(500, 2)]
    # A workload before it takes the quota first, and has no known end.
    assert later(look([*objects, workload("first", cpu=4), workload("w", cpu=6, created=1)], "w")) == [(900, 3)]
    assert later(look([*objects, workload("w", cpu=11)], "w")) == []


def test_without_maximum_execution_times_no_time_is_told() -> None:
    assert later(look([*one_queue(), limited("a", 9, None), workload("w", cpu=2)], "w")) == []


def test_an_end_that_is_overdue_counts_as_now() -> None:
    found = look([*one_queue(), limited("a", 9, 10), workload("w", cpu=2)], "w")
    assert later(found) == [(100, 1)]
    assert "by 2026-01-01 00:01 UTC, when another one has reached the maximum execution time" in texts(found)


def test_with_many_pending_workloads_the_missing_quota_is_still_offered() -> None:
    objects = [*one_queue(), held(9)]
    others = [workload(f"other-{n}", cpu=5 + n % 7, created=n + 2) for n in range(600)]
    found = look([*objects, workload("first", cpu=3, created=1), *others], "first")
    assert "if ClusterQueue main owned 12 cpu of flavor f0 instead of 10" in texts(found)
    assert "with 1 cpu per pod instead of 3" in texts(found)
