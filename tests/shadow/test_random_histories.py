"""The engine beside itself: a scheduler that decides as the engine does is never in disagreement."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from kyu.api import codec
from kyu.api.actions import Patch
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.engine.decisions import Admit, Preempt
from kyu.engine.options import Options
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.plans.workload import admission
from kyu.shadow.comparison import Comparison
from kyu.shadow.report import ShadowReport
from tests.cluster.decisions import flavors, scenario
from tests.support.builders import START
from tests.support.memory_view import MemoryView

ARRIVALS = 25
PATIENCE = 30.0
# Queues of a scenario may take the same quota from each other for ever.
ROUNDS = 40


class Decider:
    """A scheduler that writes its decisions, and a comparison that sees the objects."""

    def __init__(self, seed: int, options: Options) -> None:
        self.scenario = scenario("team", seed, ARRIVALS)
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        namespace["metadata"]["labels"] = {"kubernetes.io/metadata.name": "team"}
        stored = [namespace, *flavors(), *self.scenario.queues]
        self.view = MemoryView(stored)
        self.deciding, self.following = State(options), State(options)
        for manifest in stored:
            for state in (self.deciding, self.following):
                state.put(codec.decode(manifest))
        self.report = ShadowReport(0.0)
        self.comparison = Comparison(self.following, self._find, PATIENCE, self.report)
        self.now = START

    def _find(self, key: Key) -> Workload | None:
        return self.view.get(Workload, key)

    def put(self, manifest: Json) -> None:
        found = codec.decode(manifest)
        assert isinstance(found, Workload)
        old = self._find(found.key)
        self.view.put(manifest)
        self._show(old, found.key)

    def _show(self, old: Workload | None, key: Key) -> None:
        new = self._find(key)
        assert new is not None
        self.deciding.put(new)
        self.comparison.change(old, new, self.now)

    def settle(self) -> bool:
        """Decide and write until nothing more is decided; return False if that has no end."""
        for _ in range(ROUNDS):
            self.comparison.decide(self.now)
            decisions = schedule(self.deciding, self.now).decisions
            acts = [one for one in decisions if isinstance(one, Admit | Preempt)]
            for decision in acts:
                self._write(decision)
            if not acts:
                return True
            self.now += timedelta(seconds=1)
        return False

    def _write(self, decision: Admit | Preempt) -> None:
        if isinstance(decision, Admit):
            key, actions = decision.key, admission.plan_admit(self.view, decision, self.now)
        else:
            key, actions = decision.victim, admission.plan_preempt(self.view, decision, self.now)
        old = self._find(key)
        for action in actions or ():
            if isinstance(action, Patch):
                self.view.carry_out(action)
        self._show(old, key)


@pytest.mark.parametrize("first", [0, 20])
def test_equal_decisions_are_never_in_disagreement(first: int) -> None:
    compared = 0
    for seed in range(first, first + 12):
        decider = Decider(seed, Options())
        for number, workload in enumerate(decider.scenario.workloads):
            decider.now = max(decider.now, START + timedelta(seconds=10 * number))
            workload["metadata"]["creationTimestamp"] = stamp(decider.now)
            decider.put({**workload, "status": {}})
            if not decider.settle():
                break
            decider.comparison.review(decider.now + timedelta(seconds=2 * PATIENCE))
            assert not decider.report.found, (seed, list(decider.report.found.values()))
        compared += sum(decider.report.same.values())
    assert compared > 60


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
