"""
Compare the engine's decisions with those that another scheduler makes on the same objects. START READING HERE.

The engine's state follows the objects of the other scheduler. ``decide`` runs the engine and keeps its decisions as
*predictions*; the state assumes them, as it would assume decisions that are being written. A change of a Workload that
shows a decision of the other scheduler is judged before it enters the state:

1. It equals the prediction: both decide the same, perhaps at another time.
2. It does not: the predictions of the tree are undone, and the engine decides again on the objects as they are now. The
   other scheduler may have seen more workloads when it decided. Equal now: the same decision.
3. Otherwise it is a disagreement, with the reason of the engine.

``review`` looks at predictions that the other scheduler has not followed for a while. If they still hold on the objects
as they are, they are disagreements, too; their workloads are set aside until the other scheduler decides about them.

Not compared: evictions other than preemptions, and later placements of workloads that hold quota already.

Called by: controllers/shadow.py. Calls: engine/schedule.py, engine/explain.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kyu.api.meta import Key, find_condition
from kyu.api.workloads import QUOTA_RESERVED, Workload
from kyu.engine import explain, reasons
from kyu.engine.decisions import Admit, Evict, Preempt
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.shadow import observed
from kyu.shadow.observed import Assignment, Preempted, Reserved
from kyu.shadow.report import Disagreement, Found, ShadowReport

# Time that the other scheduler has for a decision.
PATIENCE_SECONDS = 30.0
# Other workloads that a reason names.
NAMED = 3


@dataclass(slots=True)
class Prediction:
    """The decision of the engine about a pending workload: an admission, or preemptions."""

    since: float
    cluster_queue: str
    uid: str
    assignment: Assignment | None = None
    victims: dict[Key, Preempt] = field(default_factory=dict)
    """Workloads to preempt that are not evicted yet."""

    @property
    def disagreement(self) -> Disagreement:
        return "WouldAdmit" if self.assignment is not None else "WouldPreempt"


@dataclass(slots=True)
class Comparison:
    """The engine beside another scheduler. ``find`` returns the latest object of a workload."""

    state: State
    find: Callable[[Key], Workload | None]
    patience: float
    """Seconds that the other scheduler has for a decision."""
    report: ShadowReport
    _predicted: dict[Key, Prediction] = field(default_factory=dict)
    _since: dict[Key, float] = field(default_factory=dict)
    """The times of predictions that were undone, until the engine has decided again."""
    _aside: dict[Key, Prediction] = field(default_factory=dict)

    # Changes

    def change(self, old: Workload | None, new: Workload | None, now: datetime) -> None:
        """Judge the decision that a change of a Workload shows, and put the change into the state."""
        one = new or old
        assert one is not None
        key = one.key
        reservation, preemption = observed.new_reservation(old, new), observed.new_preemption(old, new)
        if old is not None and key in self._aside:
            if not (reservation or observed.is_over(new) or _is_other(old, new)):
                # Only the words of its conditions have changed.
                return
            self._return(old, reservation is not None, now)
        if preemption is not None:
            self._judge_preemption(old or one, preemption, now)
        if reservation is not None:
            self._judge_reservation(one, reservation, now)
        if new is None:
            self.state.delete(Workload.KIND, key)
        else:
            self.state.put(new)
        if self.state.find_pending(key) is None and self.state.find_reserved(key) is None:
            self._predicted.pop(key, None)

    def _return(self, old: Workload, is_decided: bool, now: datetime) -> None:
        """Put a workload back that was set aside."""
        aside = self._aside.pop(old.key)
        self.report.end(old.key, aside.disagreement, now.timestamp())
        if is_decided:
            self._since[old.key] = aside.since
        self.state.put(old)

    # Predictions

    def decide(self, now: datetime) -> None:
        """Predict decisions on the state as it is."""
        moment = now.timestamp()
        for decision in schedule(self.state, now).decisions:
            match decision:
                case Admit(second_pass=False):
                    reserved = self.state.find_reserved(decision.key)
                    assert reserved is not None
                    made = Prediction(self._since.get(decision.key, moment), decision.cluster_queue, reserved.uid)
                    made.assignment = observed.assignment_of(decision.pod_sets)
                    self._predicted[decision.key] = made
                case Preempt():
                    self._predict_preemption(decision, moment)
                case Evict():
                    self.state.forget(decision.key)
                case _:
                    pass
        self._since.clear()

    def _predict_preemption(self, decision: Preempt, moment: float) -> None:
        key = decision.preemptor
        made = self._predicted.get(key)
        if made is None or made.assignment is not None:
            made = Prediction(self._since.get(key, moment), decision.cluster_queue, decision.preemptor_uid)
            self._predicted[key] = made
        made.victims[decision.victim] = decision

    def _undo(self, cluster_queue: str) -> None:
        """Undo the predictions in the tree of a ClusterQueue. Their times are kept until the next decision."""
        tree = self._tree(cluster_queue)
        for key, made in list(self._predicted.items()):
            if self._tree(made.cluster_queue) == tree:
                self._take_back(key, made)
                self._since[key] = made.since

    def _take_back(self, key: Key, made: Prediction) -> None:
        del self._predicted[key]
        if made.assignment is not None:
            self.state.forget(key)
        for victim in made.victims:
            self.state.forget(victim)

    def _tree(self, cluster_queue: str) -> str:
        """Return the tree of a ClusterQueue; empty if there is no such queue."""
        return self.state.tree_of(cluster_queue) if self.state.has_queue(cluster_queue) else ""

    def _look_again(self, cluster_queue: str, now: datetime) -> None:
        """Decide again on the objects as they are, without former predictions."""
        self._undo(cluster_queue)
        self.decide(now)

    # Admissions

    def _judge_reservation(self, workload: Workload, theirs: Reserved, now: datetime) -> None:
        key, moment = workload.key, now.timestamp()
        made = self._predicted.get(key)
        if made is None or made.assignment != theirs.assignment:
            since = made.since if made is not None else self._since.get(key, moment)
            self._look_again(theirs.cluster_queue, now)
            made = self._predicted.get(key)
            if made is not None:
                made.since = since
        if made is not None and made.assignment == theirs.assignment:
            del self._predicted[key]
            self.report.agree("admission", moment - made.since)
            return
        type_, ours = self._other_admission(key, made, theirs)
        self._tell(type_, key, theirs.cluster_queue, f"admitted: {observed.render(theirs.assignment)}", ours, moment)
        self._undo(theirs.cluster_queue)

    def _other_admission(self, key: Key, made: Prediction | None, theirs: Reserved) -> tuple[Disagreement, str]:
        """Return how the engine would decide instead of an admission."""
        if made is not None and made.assignment is not None:
            same_flavors = observed.without_places(made.assignment) == observed.without_places(theirs.assignment)
            return "OtherNodes" if same_flavors else "OtherFlavors", f"admit: {observed.render(made.assignment)}"
        if made is not None:
            return "WouldWait", f"first preempt {_names(made.victims)}"
        pending = self.state.find_pending(key)
        if pending is None:
            return "WouldWait", "leave it pending: it is not queued"
        words = reasons.render(explain.why_waiting(self.state, pending))[1]
        tree = self._tree(theirs.cluster_queue)
        before = [k for k, one in self._predicted.items() if one.assignment and self._tree(one.cluster_queue) == tree]
        return "WouldWait", f"leave it pending: {words}" + (f"; admit first: {_names(before)}" if before else "")

    # Preemptions

    def _judge_preemption(self, victim: Workload, theirs: Preempted, now: datetime) -> None:
        key, moment = victim.key, now.timestamp()
        admission = victim.status.admission
        cluster_queue = admission.cluster_queue if admission is not None else ""
        preemptor, made = self._find_preemption(theirs, key)
        if made is None:
            if preemptor is not None and preemptor in self._aside and (waiting := self.find(preemptor)) is not None:
                self._return(waiting, True, now)
            self._look_again(cluster_queue, now)
            preemptor, made = self._find_preemption(theirs, key)
        if preemptor is not None and made is not None:
            del made.victims[key]
            if not made.victims:
                del self._predicted[preemptor]
            self.report.agree("preemption", moment - made.since)
            return
        by = str(preemptor) if preemptor is not None else f"the workload with UID {theirs.preemptor_uid}"
        told = f"preempted for {by}: {theirs.reason}"
        self._tell("WouldNotPreempt", key, cluster_queue, told, self._other_preemption(preemptor), moment)
        self._undo(cluster_queue)

    def _find_preemption(self, theirs: Preempted, victim: Key) -> tuple[Key | None, Prediction | None]:
        """Return the preemptor, and the prediction if it has the same victim for it."""
        for group in (self._predicted, self._aside):
            for key, made in group.items():
                if made.uid == theirs.preemptor_uid:
                    fits = group is self._predicted and victim in made.victims
                    return key, made if fits else None
        return next((one.key for one in self.state.all_pending() if one.uid == theirs.preemptor_uid), None), None

    def _other_preemption(self, preemptor: Key | None) -> str:
        """Return how the engine would decide about the preemptor."""
        if preemptor is None:
            return "not preempt: the preemptor is not pending"
        made = self._predicted.get(preemptor)
        if made is not None and made.assignment is not None:
            return f"admit {preemptor} without preemption: {observed.render(made.assignment)}"
        if made is not None:
            return f"preempt others for {preemptor}: {_names(made.victims)}"
        pending = self.state.find_pending(preemptor)
        if pending is None:
            return f"not preempt: {preemptor} is not pending"
        words = reasons.render(explain.why_waiting(self.state, pending))[1]
        return f"leave {preemptor} pending: {words}"

    # Decisions that the other scheduler does not make

    def review(self, now: datetime) -> None:
        """Find predictions that hold for longer than the other scheduler has time for."""
        moment = now.timestamp()
        overdue = {key for key, made in self._predicted.items() if moment - made.since > self.patience}
        for name in {self._predicted[key].cluster_queue for key in overdue}:
            self._undo(name)
        if overdue:
            self.decide(now)
        for key in sorted(overdue):
            made = self._predicted.get(key)
            if made is None or moment - made.since <= self.patience:
                continue
            ours = f"preempt {_names(made.victims)}"
            if made.assignment is not None:
                ours = f"admit: {observed.render(made.assignment)}"
            theirs = f"pending for {moment - made.since:.0f} s after that: {self._words(key)}"
            self._tell(made.disagreement, key, made.cluster_queue, theirs, ours, moment)
            self._take_back(key, made)
            self.state.delete(Workload.KIND, key)
            self._aside[key] = made

    def _words(self, key: Key) -> str:
        """Return the words of the other scheduler about a pending workload."""
        found = self.find(key)
        condition = find_condition(found.status.conditions, QUOTA_RESERVED) if found is not None else None
        return (condition.message if condition is not None else "") or "no reason is written"

    def _tell(self, type_: Disagreement, key: Key, cluster_queue: str, theirs: str, ours: str, moment: float) -> None:
        found = Found(type_, key, cluster_queue, theirs, ours, moment)
        if type_ not in ("WouldAdmit", "WouldPreempt"):
            # The other scheduler has decided, so nothing is left that could change.
            found.ended_at = moment
        self.report.add(found)


def _is_other(old: Workload, new: Workload | None) -> bool:
    """Return whether more than the status has changed."""
    return new is None or old.spec != new.spec or old.metadata.labels != new.metadata.labels


def _names(keys: Iterable[Key]) -> str:
    """Return the first names, and the number of the others."""
    names = [str(key) for key in keys]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
