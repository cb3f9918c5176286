"""
The life of a Workflow: which steps start, which are skipped or tried again, and what its status says. START HERE.

Each plan looks at all steps in the order of their dependencies. A step that has objects gets its state from them
(``progress.py``); a step that has none starts when the outcomes of the earlier steps allow it (``decisions.py``). An
object is created before the status tells of it, and its name follows from the Workflow, the step and the attempt. So a
plan that runs again after a crash finds the object, and never makes a second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from kyu.api.actions import Action, Create, Delete, Event, View, WakeAt
from kyu.api.meta import Json, Key, Ref, key_of
from kyu.api.workflows import (
    ENDED,
    FINISHED,
    MAX_ENTRIES,
    MAX_OUTPUT_BYTES,
    MAX_OUTPUT_BYTES_OF_ALL,
    RefusedObject,
    Retries,
    Workflow,
    WorkflowStep,
)
from kyu.kinds import fields, metadata
from kyu.plans.job import managed
from kyu.plans.status import StatusEdit, parse_time, timestamp
from kyu.plans.workflows import decisions, graph, objects, progress, summary, validate
from kyu.plans.workflows.entries import ended, put, waiting
from kyu.plans.workflows.objects import NOT_QUEUED, StepRun
from kyu.plans.workflows.values import NoValue, Values, items_of

# An object that is not found for this long was deleted. A watch may bring it later than the status that tells of it.
MISSING = timedelta(seconds=5)
# A server that refuses an object for now is asked again after this time.
ASK_AGAIN = timedelta(seconds=10)
# A pod may be seen later than the end of its job.
OUTPUT_DELAY = timedelta(seconds=1)
LONGEST_OUTPUT_DELAY = timedelta(seconds=30)
ACTIVE = frozenset({"Queued", "Admitted", "Running", "Preempted"})


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """The differences between a cluster and embedded mode.

    ``guard``: the object without which rights are not checked, so that no step may start. ``needs_image``: commands run
    in images, and not on the machine of the server.
    """

    guard: Ref | None = None
    needs_image: bool = False


EMBEDDED = WorkflowSettings()


def plan(settings: WorkflowSettings, view: View, key: Key, now: datetime) -> list[Action]:
    workflow, raw = view.get(Workflow, key), view.find_json(Workflow.KIND, key)
    if workflow is None or raw is None or workflow.metadata.deletion_timestamp:
        # The garbage collector deletes the objects of the steps.
        return []
    this = WorkflowRound(view, workflow, raw, now, settings)
    if not this.is_due():
        return []
    if settings.guard is not None and view.find_json(settings.guard.kind, settings.guard.key) is None:
        this.block(settings.guard)
    elif faults := this.check():
        this.reject("; ".join(map(str, faults)))
    else:
        this.run()
    return this.result()


@dataclass(slots=True)
class WorkflowRound:
    """One plan of one Workflow: its entries, and what is to be written."""

    view: View
    workflow: Workflow
    raw: Json
    now: datetime
    settings: WorkflowSettings
    edit: StatusEdit = field(init=False)
    entries: dict[str, Json] = field(init=False)
    outcomes: dict[str, str | None] = field(default_factory=dict)
    # The outputs of each step that is over, one per item.
    outputs: dict[str, list[str]] = field(default_factory=dict)
    output_bytes: int = 0
    active: int = 0
    actions: list[Action] = field(default_factory=list)
    wakes: list[datetime] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edit = StatusEdit(self.raw, self.now)
        self.entries = {entry["name"]: dict(entry) for entry in self.edit.read("steps") or ()}
        self.active = sum(entry["state"] in ACTIVE for entry in self.entries.values())
        self.output_bytes = sum(len(entry["output"].encode()) for entry in self.entries.values() if "output" in entry)

    # Whether there is something to do.

    def is_due(self) -> bool:
        """Return whether the Workflow is not over, is to be retried, or was invalid and has changed."""
        end = self.edit.condition(FINISHED)
        if end is None or end.get("status") != "True" or self.is_retried():
            return True
        return end.get("reason") == "Invalid" and self.generation() != self.edit.read("observedGeneration")

    def is_retried(self) -> bool:
        return self.workflow.spec.retry > (self.edit.read("retry") or 0)

    def generation(self) -> int:
        return self.workflow.metadata.generation

    def check(self) -> Sequence[object]:
        """Return the errors of a spec that was not checked yet."""
        if self.edit.read("observedGeneration") == self.generation() and self.generation():
            return ()
        faults = validate.find_errors(self.workflow, needs_image=self.settings.needs_image)
        self.edit.status["observedGeneration"] = self.generation()
        return faults

    def block(self, guard: Ref) -> None:
        text = f"{guard.kind.kind} {guard.key.name} is missing, so rights cannot be checked; apply `kyu manifests`"
        self.edit.set_condition("Blocked", "True", "RightsNotChecked", text)

    def reject(self, why: str) -> None:
        self.edit.status["state"] = "Failed"
        self.edit.set_condition(FINISHED, "True", "Invalid", why)
        self.tell("Warning", "Invalid", why)

    def tell(self, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        ref = Ref(Workflow.KIND, self.workflow.key)
        self.actions.append(Event(ref, type_, reason, message, self.workflow.metadata.uid))

    def result(self) -> list[Action]:
        patch = self.edit.patch(Workflow.KIND)
        written = [*self.actions, *([patch] if patch is not None else [])]
        return [*written, WakeAt(min(self.wakes))] if self.wakes else written

    # The steps.

    def run(self) -> None:
        if self.edit.condition("Blocked") is not None:
            self.edit.remove_condition("Blocked")
        if self.is_retried() and self.edit.is_true(FINISHED):
            self.restart()
        listed: dict[str, list[Json]] = {}
        for step in graph.in_order(self.workflow.spec.steps):
            found = listed[step.name] = self.take(step)
            self.outcomes[step.name] = decisions.outcome([entry["state"] for entry in found])
            self.outputs[step.name] = [entry.get("output", "") for entry in found]
        entries = [entry for step in self.workflow.spec.steps for entry in listed[step.name]]
        summary.write(self.edit, self.workflow, entries)
        if self.edit.is_true(FINISHED):
            end = self.edit.condition(FINISHED) or {}
            self.tell("Normal" if end["reason"] == "Succeeded" else "Warning", end["reason"], end["message"])

    def restart(self) -> None:
        """Start failed steps again, and all that were skipped. Entries of lists are made anew."""
        for name, entry in list(self.entries.items()):
            if entry["state"] == "Failed":
                self.entries[name] = waiting(name, entry["attempt"] + 1 if entry.get("object") else entry["attempt"])
            elif entry["state"] == "Skipped":
                self.entries[name] = waiting(name, entry["attempt"])
        self.edit.status["retry"] = self.workflow.spec.retry
        self.edit.status.pop("finishedAt", None)
        self.edit.set_condition(FINISHED, "False", "Retried", "failed steps run again")

    def take(self, step: WorkflowStep) -> list[Json]:
        """Return the entries of a step as they are now, and start what may start."""
        known = self.entries.get(step.name)
        if known is not None and known["state"] in ENDED:
            # Most steps of a long Workflow are over.
            return [known]
        verdict = decisions.verdict(step, self.outcomes, self.outputs)
        items = self.items(step, verdict)
        if isinstance(items, dict):
            return [items]
        names = [step.name] if items is None else [f"{step.name}[{index}]" for index in range(len(items))]
        found = [self.entries.get(name) or waiting(name) for name in names]
        if verdict.decision == "Wait" and not self.workflow.spec.cancel:
            for entry in found:
                put(entry, reason="", message=verdict.message)
            return found
        runs = [
            self.step_run(step, entry, index, None if items is None else items[index])
            for index, entry in enumerate(found)
        ]
        open_runs = [(entry, run) for entry, run in zip(found, runs, strict=True) if entry["state"] not in ENDED]
        if verdict.decision == "Run" or self.workflow.spec.cancel:
            for entry, run in open_runs:
                self.follow(entry, run)
        width = (step.for_each.width if step.for_each else None) or MAX_ENTRIES
        busy = sum(entry["state"] in ACTIVE for entry in found)
        for entry, run in open_runs:
            if entry["state"] == "Waiting" and self.begin(entry, run, verdict, has_room=busy < width):
                busy += 1
        return found

    def items(self, step: WorkflowStep, verdict: decisions.Verdict) -> list[str] | Json | None:
        """Return the items of a step, None for a step without a list, or its only entry while the list is not known."""
        each = step.for_each
        if each is None:
            return None
        if each.items:
            return list(each.items)
        entry = waiting(step.name)
        if self.workflow.spec.cancel and verdict.decision != "Run":
            return {**entry, **ended("Skipped", "Cancelled", "the Workflow was cancelled", self.now)}
        if verdict.decision == "Wait":
            return {**entry, "message": verdict.message}
        if verdict.decision == "Skip":
            return {**entry, **ended("Skipped", verdict.reason, verdict.message, self.now)}
        try:
            items = items_of(next(iter(self.outputs[each.items_from]), ""))
        except NoValue as error:
            return {**entry, **ended("Failed", "NoItems", f"itemsFrom {each.items_from}: {error}", self.now)}
        others = sum(not name.startswith(f"{step.name}[") for name in self.entries)
        if len(items) + others > MAX_ENTRIES:
            return {**entry, **ended("Failed", "TooManyItems", f"more than {MAX_ENTRIES} steps", self.now)}
        return items or {**entry, **ended("Succeeded", "NoItems", "the list is empty", self.now)}

    def step_run(self, step: WorkflowStep, entry: Json, index: int, item: str | None) -> StepRun:
        name = self.workflow.metadata.name
        values = Values(name, item, index if item is not None else None, self.outputs)
        made = entry.get("object") or objects.object_name(
            name, self.workflow.metadata.uid, entry["name"], entry["attempt"]
        )
        return StepRun(self.raw, self.workflow.spec, step, made, values, self.settings.needs_image)

    # One entry.

    def follow(self, entry: Json, run: StepRun) -> None:
        """Bring an entry up to date with its objects; end it if the Workflow is cancelled."""
        found = self.find_objects(run)
        if self.workflow.spec.cancel:
            self.cancel(entry, run, found)
            return
        if found is None:
            self.end(entry, "Failed", "NameTaken", f"{run.kind.kind.kind} {run.name} belongs to others")
        elif len(found) < len(objects.member_names(run.step, run.name)):
            self.replace_missing(entry, run, found)
        elif found:
            self.adopt(entry, run.name)
            self.read(entry, run, found)

    def find_objects(self, run: StepRun) -> list[Json] | None:
        """Return the objects of an attempt that are there; None if one of that name belongs to others."""
        kind, found = run.kind.kind, []
        for name in objects.member_names(run.step, run.name):
            obj = self.view.find_json(kind, Key(run.namespace, name))
            if obj is None:
                continue
            if not any(
                o.get("uid") == self.workflow.metadata.uid for o in obj["metadata"].get("ownerReferences") or ()
            ):
                return None
            found.append(obj)
        return found

    def adopt(self, entry: Json, name: str) -> None:
        """Record the object of an attempt; it may come from a process that ended before it could."""
        if entry["state"] == "Waiting":
            entry["state"] = "Queued"
            self.active += 1
        entry["object"] = name
        entry.pop("missingSince", None)
        entry.pop("retryAt", None)

    def read(self, entry: Json, run: StepRun, found: Sequence[Json]) -> None:
        now = progress.find(self.view, run.kind, found, run.name)
        if now.admitted_at:
            entry["admittedAt"] = now.admitted_at
        if now.state == "Failed":
            self.fail(entry, run, now.reason or "Failed", now.message)
        elif now.state == "Succeeded":
            self.succeed(entry, run, found, now.message)
        else:
            put(entry, state=now.state, reason=now.reason, message=now.message)

    def succeed(self, entry: Json, run: StepRun, found: Sequence[Json], message: str) -> None:
        """End a step that has succeeded, with its output. Its last pod may be seen a little later than its end."""
        left = progress.output(self.view, run.kind, found)
        since = parse_time(entry.get("finishedAt")) or self.now
        if left is None and self.now - since < LONGEST_OUTPUT_DELAY:
            entry["finishedAt"] = timestamp(since)
            self.wakes.append(self.now + OUTPUT_DELAY)
            return
        size = len((left or "").encode())
        if size > MAX_OUTPUT_BYTES or self.output_bytes + size > MAX_OUTPUT_BYTES_OF_ALL:
            self.fail(entry, run, "OutputTooLarge", f"its output has {size} bytes; {decisions.OUTPUT_LIMIT}")
            return
        self.output_bytes += size
        self.end(entry, "Succeeded", "", message)
        put(entry, output=left or "")

    def replace_missing(self, entry: Json, run: StepRun, found: Sequence[Json]) -> None:
        """Handle objects that are not there: not made yet, made again after a preemption, or deleted."""
        if not entry.get("object") and not found:
            return
        if not entry.get("object") or progress.may_run_again(self.view, run.kind, Key(run.namespace, run.name)):
            # A crash came between the Pods of a group, or the group was preempted, which deletes its Pods.
            missing = set(objects.member_names(run.step, run.name)) - {metadata.name_of(one) for one in found}
            self.create(entry, run, missing)
            return
        since = parse_time(entry.get("missingSince"))
        if since is None:
            entry["missingSince"] = timestamp(self.now)
            self.wakes.append(self.now + MISSING)
        elif self.now < since + MISSING:
            self.wakes.append(since + MISSING)
        else:
            self.fail(entry, run, "Deleted", f"{run.kind.kind.kind} {run.name} was deleted")

    def begin(self, entry: Json, run: StepRun, verdict: decisions.Verdict, *, has_room: bool) -> bool:
        """Start, skip or keep a step that has no object. Return whether it was started."""
        if verdict.decision == "Skip":
            self.end(entry, "Skipped", verdict.reason, verdict.message)
            return False
        retry_at = parse_time(entry.get("retryAt"))
        most = self.workflow.spec.parallelism
        if self.workflow.spec.suspend:
            put(entry, reason="Suspended", message="the Workflow is suspended")
        elif retry_at is not None and self.now < retry_at:
            self.wakes.append(retry_at)
        elif not has_room or (most is not None and self.active >= most):
            put(entry, reason="Parallelism", message="as many steps run as may")
        elif (refusal := self.view.get(RefusedObject, Key(run.namespace, run.name))) is not None:
            self.refuse(entry, run, refusal)
        else:
            return self.create(entry, run)
        return False

    def refuse(self, entry: Json, run: StepRun, refusal: RefusedObject) -> None:
        """Fail a step whose object the server does not take, or ask again later."""
        if refusal.final:
            self.fail(entry, run, "Refused", refusal.message)
            return
        again = datetime.fromtimestamp(refusal.at, self.now.tzinfo) + ASK_AGAIN
        if self.now >= again:
            self.create(entry, run)
            return
        put(entry, reason="Refused", message=progress.cut(refusal.message))
        self.wakes.append(again)

    def create(self, entry: Json, run: StepRun, only: set[str] | None = None) -> bool:
        try:
            made = objects.make(run)
        except (NoValue, fields.Misshapen) as error:
            self.fail(entry, run, "NoValue", str(error))
            return False
        if managed.context_of(self.view, run.kind, made[0]) is None:
            self.end(entry, "Failed", "NotQueued", f"{run.kind.kind.kind} {NOT_QUEUED}")
            return False
        wanted = [body for body in made if only is None or body["metadata"]["name"] in only]
        self.actions += [Create(run.kind.kind, body, reports_refusal=run.name) for body in wanted]
        # The next plan finds the objects, and records them.
        self.active += 1
        return True

    def fail(self, entry: Json, run: StepRun, reason: str, message: str) -> None:
        """End a failed attempt: try again after a pause, or end the step."""
        rules = run.step.retries or self.workflow.spec.retries or Retries()
        tried = entry.get("retries", 0)
        if tried >= rules.limit or reason == "NoValue":
            self.end(entry, "Failed", reason, message)
            return
        if entry["state"] in ACTIVE:
            self.active -= 1
        pause = min(rules.backoff_seconds * 2 ** min(tried, 32), rules.max_backoff_seconds)
        again = self.now + timedelta(seconds=pause)
        name, attempt = entry["name"], entry["attempt"] + 1
        why = progress.cut(f"attempt {attempt - 1} failed: {message}")
        entry.clear()
        entry |= waiting(name, attempt)
        put(entry, reason=reason, message=why, retryAt=timestamp(again))
        entry["retries"] = tried + 1
        self.wakes.append(again)

    def end(self, entry: Json, state: str, reason: str, message: str) -> None:
        if entry["state"] in ACTIVE:
            self.active -= 1
        entry.pop("missingSince", None)
        entry.pop("retryAt", None)
        entry |= ended(state, reason, message, self.now)

    def cancel(self, entry: Json, run: StepRun, found: Sequence[Json] | None) -> None:
        """Delete the objects of a step and end it."""
        for one in found or ():
            if not metadata.is_deleted(one):
                self.actions.append(Delete(Ref(run.kind.kind, key_of(one)), metadata.uid_of(one)))
        was_made = bool(found) or bool(entry.get("object"))
        self.end(entry, "Failed" if was_made else "Skipped", "Cancelled", "the Workflow was cancelled")
