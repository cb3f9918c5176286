"""A stable run decides what cycles would: the engine and the textbook scheduler, side by side on random stories."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from kyu.api.kueue import ClusterQueue, ResourceFlavor, Workload
from kyu.api.meta import Object
from kyu.engine import explain
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt
from kyu.engine.options import Options
from kyu.engine.reasons import render
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from tests.support.builders import at, cluster_queue, cohort, flavor, local_queue, namespace, state_of, workload
from tests.support.textbook import Textbook
from tests.support.textbook.world import order

# Stories that were told differently once: of wide cohorts, a preemptor that waits names other victims when a later head
# holds back; of others, a scan of flavors that saw the last one starts over.
STORIES = [*range(int(os.environ.get("KYU_FUZZ", "100"))), 1207, 1257, 6325]


# A workload whose two pod sets stop at different flavors in turn alternates with every cycle, until quota is released.
UNDECIDED = {52, 181}


class Story:
    """Queues with random quotas and policies, and random arrivals, endings and evictions."""

    most_arrivals = 7

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.resources = self.random.choice([["cpu"], ["cpu"], ["cpu", "gpu"]])
        self.flavors = [f"f{i}" for i in range(self.random.choice([1, 1, 2, 3]))]
        self.queues = [f"q{i}" for i in range(self.random.randint(1, 4))]
        self.submitted = 0

    def options(self) -> Options:
        chance = self.random.random
        return Options(
            fair_sharing=chance() < 0.25,
            scheduling_equivalence_hashing=chance() > 0.1,
            prioritize_preemptor_workloads=chance() < 0.1,
            flavor_fungibility_preserve_scan_progress=chance() > 0.1,
            priority_sorting_within_cohort=chance() > 0.1,
        )

    def objects(self) -> list[Object]:
        pick, chance = self.random.choice, self.random.random
        inner = [f"inner-{i}" for i in range(pick([0, 0, 2]))]
        found: list[Object] = [flavor(name) for name in self.flavors]
        for name in inner:
            own = {f: {r: pick([0, 2, 4]) for r in self.resources} for f in self.flavors} if chance() < 0.3 else None
            found.append(cohort(name, own, parent="outer"))
        for name in self.queues:
            quotas = {
                f: {
                    r: (pick([0, 2, 4, 6, 8]), pick([None, None, 2, 4]), pick([None, None, 0, 2]))
                    for r in self.resources
                }
                for f in self.flavors
            }
            found += [
                cluster_queue(name, quotas, cohort=pick(inner or ["outer"]), **self.policies()),
                local_queue(name),
            ]
        return found

    def policies(self) -> dict[str, Any]:
        pick, chance = self.random.choice, self.random.random
        preemption: dict[str, Any] = {
            "withinClusterQueue": pick(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": pick(["Never", "LowerPriority", "Any"]),
        }
        if preemption["reclaimWithinCohort"] != "Never" and chance() < 0.25:
            preemption["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": pick([0, 1, 5])}
        policies: dict[str, Any] = {"preemption": preemption} if chance() < 0.85 else {}
        if chance() < 0.2:
            policies["queueingStrategy"] = "StrictFIFO"
        if chance() < 0.4:
            words = ["MayStopSearch", "TryNextFlavor"]
            policies["flavorFungibility"] = {"whenCanBorrow": pick(words), "whenCanPreempt": pick(words)}
        return policies

    def submission(self, step: int) -> Workload:
        pick = self.random.choice
        self.submitted += 1
        return workload(
            f"w{self.submitted:03d}",
            queue=pick(self.queues),
            priority=pick([0, 0, 1, 2]),
            created=step * 10 + self.random.randint(0, 3),
            count=pick([1, 1, 1, 2]),
            min_count=1 if self.random.random() < 0.15 else None,
            **{r: pick([1, 1, 2, 3, 4, 5]) for r in self.resources if r == "cpu" or self.random.random() < 0.9},
        )


class WideStory(Story):
    """Many queues of one cohort that want the same, mostly with policies under which they need not be asked."""

    most_arrivals = 25

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.resources, self.flavors = ["cpu"], ["f0"]
        self.queues = [f"q{i}" for i in range(self.random.randint(5, 10))]

    def options(self) -> Options:
        return Options(prioritize_preemptor_workloads=self.random.random() < 0.1)

    def policies(self) -> dict[str, Any]:
        if self.random.random() < 0.1:
            return super().policies()
        within = self.random.choice(["Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"])
        return {"preemption": {"withinClusterQueue": within, "reclaimWithinCohort": "Any"}}

    def submission(self, step: int) -> Workload:
        pick = self.random.choice
        self.submitted += 1
        created = step * 10 + self.random.randint(0, 3)
        name, queue = f"w{self.submitted:03d}", pick(self.queues)
        return workload(name, queue=queue, priority=pick([0, 1, 2]), created=created, cpu=pick([1, 1, 2, 3, 6]))


class FlatStory(WideStory):
    """The same with no other policies, so that most passes are those over flat trees; the large preempt the small."""

    def policies(self) -> dict[str, Any]:
        within = self.random.choice(["Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"])
        return {"preemption": {"withinClusterQueue": within, "reclaimWithinCohort": "Any"}}

    def submission(self, step: int) -> Workload:
        self.submitted += 1
        cpu, priority = self.random.choice([(1, 0), (1, 0), (1, 0), (2, 1), (4, 2)])
        created = step * 10 + self.random.randint(0, 3)
        return workload(
            f"w{self.submitted:03d}", queue=self.random.choice(self.queues), priority=priority, created=created, cpu=cpu
        )


class MixedStory(FlatStory):
    """Some of the queues are one level further down: what they have borrowed can be taken back from there, too."""

    def objects(self) -> list[Object]:
        found: list[Object] = [flavor("f0"), cohort("inner", parent="outer")]
        for number, name in enumerate(self.queues):
            quotas = {"f0": {"cpu": (self.random.choice([0, 2, 4]), None, None)}}
            parent = "inner" if number % 2 else "outer"
            found += [cluster_queue(name, quotas, cohort=parent, **self.policies()), local_queue(name)]
        return found


class RealisticStory(Story):
    """Cpu, memory and pods in tainted flavors and two resource groups, and workloads with several pod sets."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.resources = ["cpu", "memory", "pods"]
        self.flavors = [f"f{i}" for i in range(self.random.choice([1, 2, 2, 3]))]
        self.tainted = {name for name in self.flavors if self.random.random() < 0.4}

    def objects(self) -> list[Object]:
        found = super().objects()
        taint = [{"key": "special", "value": "yes", "effect": "NoSchedule"}]
        return [
            flavor(obj.metadata.name, nodeTaints=taint if obj.metadata.name in self.tainted else [])
            if isinstance(obj, ResourceFlavor)
            else self._split(obj)
            if isinstance(obj, ClusterQueue)
            else obj
            for obj in found
        ]

    def _split(self, queue: ClusterQueue) -> ClusterQueue:
        """Give a queue a resource group of its own for memory, now and then."""
        if self.random.random() > 0.2:
            return queue
        (group,) = queue.spec.resource_groups
        parts = []
        for names in (("cpu", "pods"), ("memory",)):
            flavors = tuple(
                replace(f, name=f"{f.name}", resources=tuple(r for r in f.resources if r.name in names))
                for f in group.flavors
            )
            parts.append(replace(group, covered_resources=names, flavors=flavors))
        # A flavor belongs to one resource group of a ClusterQueue.
        parts[1] = replace(parts[1], flavors=parts[1].flavors[-1:])
        parts[0] = replace(parts[0], flavors=parts[0].flavors[:-1])
        if not parts[0].flavors:
            return queue
        return replace(queue, spec=replace(queue.spec, resource_groups=tuple(parts)))

    def submission(self, step: int) -> Workload:
        pick, chance = self.random.choice, self.random.random
        self.submitted += 1
        tolerations = [{"key": "special", "operator": "Exists"}] if chance() < 0.6 else []
        found = workload(
            f"w{self.submitted:03d}",
            queue=pick(self.queues),
            priority=pick([0, 0, 1, 2]),
            created=step * 10 + self.random.randint(0, 3),
            count=pick([1, 1, 1, 2]),
            min_count=1 if chance() < 0.1 else None,
            pod={"tolerations": tolerations},
            cpu=pick([1, 1, 2, 3]),
            memory=pick([1, 1, 2, 3]),
        )
        if chance() < 0.3:
            (first,) = found.spec.pod_sets
            second = replace(first, name="worker", count=pick([1, 2]), min_count=None)
            found = replace(found, spec=replace(found.spec, pod_sets=(first, second)))
        return found


def decided(found: Cycle) -> list[object]:
    facts: list[object] = []
    for decision in found.decisions:
        match decision:
            case Admit():
                facts.append((decision.key, [(p.count, sorted(p.flavors.items())) for p in decision.pod_sets]))
            case Preempt():
                facts.append((decision.victim, decision.preemptor, decision.reason))
            case Evict():
                facts.append((decision.key, decision.reason))
            case _:
                pass
    return facts


def textbook_of(*objects: Object, options: Options) -> Textbook:
    found = Textbook(options)
    for obj in (namespace(), *objects):
        found.put(obj)
    return found


def lines(state: State) -> dict[str, Any]:
    return {
        name: ([w.key.name for w in state.active_in(name)], [w.key.name for w in state.inadmissible_in(name)])
        for name in state.queue_names()
    }


def textbook_lines(textbook: Textbook) -> dict[str, Any]:
    return {
        name: (
            [workload.key.name for *_, workload in line.active],
            [workload.key.name for workload in sorted(line.inadmissible.values(), key=order)],
        )
        for name, line in textbook.lines.items()
    }


@pytest.mark.parametrize("kind", [Story, WideStory, FlatStory, MixedStory, RealisticStory])
@pytest.mark.parametrize("seed", STORIES)
def test_a_stable_run_decides_what_cycles_would(kind: type[Story], seed: int) -> None:
    if kind is RealisticStory and seed in UNDECIDED:
        pytest.skip("the outcome depends on the number of cycles that decide nothing")
    story = kind(seed)
    options, objects = story.options(), story.objects()
    engine, textbook = state_of(*objects, options=options), textbook_of(*objects, options=options)
    for step in range(7):
        for submission in [story.submission(step) for _ in range(story.random.randint(0, story.most_arrivals))]:
            engine.put(submission)
            textbook.put(submission)
        leaving = [w.key for w in engine.all_reserved() if story.random.random() < 0.3]
        leaving += [w.key for w in engine.all_pending() if story.random.random() < 0.03]
        for key in leaving:
            engine.delete(Workload.KIND, key)
            textbook.delete(Workload.KIND, key)
        for second in range(4):
            now = at(step * 10 + second)
            assert decided(schedule(engine, now)) == decided(textbook.schedule(now))
            assert lines(engine) == textbook_lines(textbook)
            stopped = [w.key for w in engine.all_reserved() if w.evicted and story.random.random() < 0.7]
            for key in stopped:
                engine.release(key)
                textbook.release(key)
            check(engine, textbook)


def check(engine: State, textbook: Textbook) -> None:
    engine.check()
    usage = textbook.world.usage
    for name in engine.queue_names():
        node = textbook.world.nodes[f"queue {name}"]
        for report in engine.queue_quotas(name):
            assert report.used == usage.of(node, report.key)
            assert report.used <= node.potential(report.key), f"{name} uses more than it ever may"
    for waiting in engine.all_pending():
        word, message = render(explain.why_waiting(engine, waiting))
        assert word, f"{waiting} waits without a reason"
        assert message or word


@pytest.mark.parametrize("seed", range(40))
def test_a_second_run_without_a_change_decides_nothing(seed: int) -> None:
    story = Story(seed)
    state = state_of(*story.objects(), options=story.options())
    for _ in range(12):
        state.put(story.submission(0))
    schedule(state, at(20))
    usage = {name: state.stats(name) for name in state.queue_names()}
    for root in [queue.root for queue in state.queues.values()]:
        state.pending.awake.add(root)
    assert decided(schedule(state, at(21))) == []
    assert {name: state.stats(name) for name in state.queue_names()} == usage


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_arrival_of_objects_does_not_matter(seed: int) -> None:
    story = Story(seed)
    options = story.options()
    objects = [*story.objects(), *(story.submission(0) for _ in range(8))]
    straight = decided(schedule(state_of(*objects, options=options), at(20)))
    backwards = decided(schedule(state_of(*reversed(objects), options=options), at(20)))
    assert straight == backwards
