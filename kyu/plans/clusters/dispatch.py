"""
Jobs that other clusters run: a Workload with quota and a MultiKueue check is copied to worker clusters, and the first
that admits its copy runs the job.

The other copies go, the job is made there, its status comes back, and its end ends the Workload here. Evicted there, it
queues again here; evicted here, it is stopped there first. A cluster that cannot be reached keeps its job for the time
of ``workerLostTimeout``; then another one may have it. Rules are asked in order, as in job/lifecycle.py: one whose
turn it is answers with actions, or with none to wait, and ends the round.

Kueue: pkg/controller/admissionchecks/multikueue/workload.go, pkg/controller/workloaddispatcher
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api.actions import Action, Create, Elsewhere, Event, Patch, View, WakeAt
from kyu.api.checks import MultiKueueConfigSpec
from kyu.api.config.config import ALL_AT_ONCE_DISPATCHER, INCREMENTAL_DISPATCHER, IncrementalDispatcherConfig
from kyu.api.kueue import (
    MULTIKUEUE_CONTROLLER,
    AdmissionCheck,
    AdmissionCheckState,
    MultiKueueConfig,
    ResourceFlavor,
    Workload,
)
from kyu.api.meta import Json, Key, Ref
from kyu.api.pools import FLAVOR_CLUSTER_LABEL
from kyu.kinds import conditions, fields, metadata, table
from kyu.kinds.kind import JobKind
from kyu.plans.clusters.workers import (
    Copy,
    Worker,
    Workers,
    find_copy,
    is_made_for,
    is_ours,
    job_for,
    remove,
    workload_for,
)
from kyu.plans.job import injection
from kyu.plans.status import StatusEdit, parse_time
from kyu.plans.workload import checks

# How long the clusters of one round are alone with a Workload before the incremental dispatcher asks more.
ROUND = timedelta(minutes=5)
# A Workload that ended for one of these has a job that ended.
ENDS_OF_JOBS = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class DispatchRound:
    """The input of the rules: a Workload, its job and its check, and its copies in the connected clusters."""

    workload: Workload
    raw: Json
    kind: JobKind
    job: Json
    state: AdmissionCheckState
    clusters: tuple[str, ...]
    workers: Mapping[str, Worker]
    copies: Mapping[str, Copy]
    view: View
    now: datetime

    @property
    def origin(self) -> str:
        return self.view.configuration.multi_kueue.origin

    @property
    def job_ref(self) -> Ref:
        return Ref(self.kind.kind, Key(self.workload.metadata.namespace, metadata.name_of(self.job)))

    @property
    def winner(self) -> Copy | None:
        """The copy that runs, or will: that of the cluster which is written down, or else the first that is admitted.

        A cluster that was lost may come back with a copy that was admitted earlier; what is written down holds. Where
        nothing is, the cluster has to be nominated again first: servers take no other.
        """
        admitted = {name: copy for name, copy in self.copies.items() if conditions.is_true(copy.workload, "Admitted")}
        if chosen := self.workload.status.cluster_name:
            return admitted.get(chosen)
        nominated = [admitted[name] for name in self.workload.status.nominated_cluster_names if name in admitted]
        return min(nominated, key=admitted_at, default=None)

    def edit(self) -> StatusEdit:
        return StatusEdit(self.raw, self.now)

    def say(self, state: str, message: str, edit: StatusEdit | None = None) -> list[Action]:
        """Set the state of the check, with an event."""
        edit = edit or self.edit()
        checks.set_state(edit, self.state, state, message)
        patch = edit.patch(Workload.KIND)
        told = Event(Ref(Workload.KIND, self.workload.key), "Normal", "MultiKueue", message, self.workload.metadata.uid)
        return [] if patch is None else [patch, *([told] if state != self.state.state else [])]


def admitted_at(copy: Copy) -> tuple[str, str]:
    condition = conditions.find(copy.workload, "Admitted") or {}
    return condition.get("lastTransitionTime", ""), copy.worker.name


def plan(workers: Workers, view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for a Workload that exists or is gone."""
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    known = workers()
    state = find_state(view, workload) if workload is not None else None
    if workload is None or raw is None or metadata.is_deleted(raw) or state is None or state.state == "Rejected":
        return remove_all(known, key, view.configuration.multi_kueue.origin)
    found = find_job(view, workload)
    if isinstance(found, str):
        return reject(workload, raw, state, found, now)
    if found is None:
        return []
    kind, job = found
    origin, ref = view.configuration.multi_kueue.origin, Ref(kind.kind, Key(key.namespace, metadata.name_of(job)))
    copies = {name: find_copy(worker, key, ref, origin) for name, worker in known.items() if worker.is_connected}
    this = DispatchRound(
        workload,
        raw,
        kind,
        job,
        state,
        keep_fixed(view, workload, clusters_of(view, state.name)),
        known,
        {name: copy for name, copy in copies.items() if copy is not None and not metadata.is_deleted(copy.workload)},
        view,
        now,
    )
    for rule in RULES:
        answer = rule(this)
        if answer is not None:
            return answer
    return []


def remove_all(workers: Mapping[str, Worker], key: Key, origin: str) -> list[Action]:
    """Delete the copies of a Workload that is not dispatched any more."""
    reached = (find_copy(worker, key, None, origin) for worker in workers.values() if worker.is_connected)
    return [action for copy in reached if copy is not None for action in remove(copy)]


def find_state(view: View, workload: Workload) -> AdmissionCheckState | None:
    """Return the state of the MultiKueue check of a Workload, if it has one."""
    for state in workload.status.admission_checks:
        check = view.get(AdmissionCheck, Key("", state.name))
        if check is not None and check.spec.controller_name == MULTIKUEUE_CONTROLLER:
            return state
    return None


def find_job(view: View, workload: Workload) -> tuple[JobKind, Json] | str | None:
    """Return the job of the Workload, why it cannot be sent, or None if the job is not known yet."""
    owners = workload.metadata.owner_references
    owner = next((one for one in owners if one.controller), owners[0] if owners else None)
    if owner is None:
        return "It belongs to no job, so there is nothing to run in another cluster"
    kind = table.find({"apiVersion": owner.api_version, "kind": owner.kind})
    if kind is None or not kind.may_be_dispatched or kind.managed_by_path is None:
        return f"A {owner.kind} cannot be sent to another cluster"
    job = view.find_json(kind.kind, Key(workload.metadata.namespace, owner.name))
    if job is None or metadata.uid_of(job) != owner.uid:
        return None
    if fields.text_at(job, kind.managed_by_path) != metadata.MULTI_KUEUE:
        return f"{fields.show(kind.managed_by_path)} of its {owner.kind} must be {metadata.MULTI_KUEUE}, from the start"
    if metadata.is_elastic(job):
        return "An elastic job cannot be sent to another cluster"
    return kind, job


def reject(workload: Workload, raw: Json, state: AdmissionCheckState, why: str, now: datetime) -> list[Action]:
    edit = StatusEdit(raw, now)
    checks.set_state(edit, state, "Rejected", why)
    patch = edit.patch(Workload.KIND)
    told = Event(Ref(Workload.KIND, workload.key), "Warning", "MultiKueue", why, workload.metadata.uid)
    return [] if patch is None else [patch, told]


def config_of(view: View, check_name: str) -> MultiKueueConfigSpec | None:
    check = view.get(AdmissionCheck, Key("", check_name))
    if check is None or check.spec.parameters is None:
        return None
    config = view.get(MultiKueueConfig, Key("", check.spec.parameters.name))
    return config.spec if config is not None else None


def clusters_of(view: View, check_name: str) -> tuple[str, ...]:
    config = config_of(view, check_name)
    return config.clusters if config is not None else ()


def keep_fixed(view: View, workload: Workload, clusters: tuple[str, ...]) -> tuple[str, ...]:
    """Return the clusters that the flavors of the Workload allow: a flavor of a MasterQueue belongs to one cluster."""
    fixed = {label for flavor in flavors_of(workload) if (label := cluster_of_flavor(view, flavor))}
    return tuple(name for name in clusters if fixed <= {name})


def flavors_of(workload: Workload) -> set[str]:
    admission = workload.status.admission
    sets = admission.pod_set_assignments if admission is not None else ()
    return {flavor for one in sets for flavor in one.flavors.values()}


def cluster_of_flavor(view: View, name: str) -> str:
    flavor = view.find_json(ResourceFlavor.KIND, Key("", name))
    return metadata.labels_of(flavor).get(FLAVOR_CLUSTER_LABEL, "") if flavor is not None else ""


# The rules.


def withdraw(this: DispatchRound) -> list[Action] | None:
    """Delete the copies of a Workload that is finished or holds no quota."""
    if this.workload.is_true("QuotaReserved") and not this.workload.is_true("Finished"):
        return None
    return [action for copy in this.copies.values() for action in remove(copy)]


def finish(this: DispatchRound) -> list[Action] | None:
    """Finish the Workload with its copy: that of its cluster, or any if no cluster is recorded yet."""
    chosen = this.workload.status.cluster_name
    over = (
        (copy, conditions.find(copy.workload, "Finished") or {})
        for name, copy in this.copies.items()
        if conditions.is_true(copy.workload, "Finished") and chosen in (None, "", name) and is_of(this, copy)
    )
    copy, condition = next(over, (None, {}))
    if copy is None:
        return None
    reason, message = condition["reason"], condition["message"]
    if reason == "OutOfSync":
        if this.workload.is_true("Evicted"):
            return None
        return this.say("Retry", f"In cluster {copy.worker.name} the job is not what its Workload says")
    if copy.job is not None and reason in ENDS_OF_JOBS and this.kind.finished(copy.job) is None:
        # The end of the job itself is still on its way to us.
        return []
    edit = this.edit()
    if not chosen and copy.worker.name not in this.workload.status.nominated_cluster_names:
        # Servers take no other; it may have come back.
        edit.status["nominatedClusterNames"] = [copy.worker.name]
        nomination = edit.patch(Workload.KIND)
        return [nomination] if nomination else []
    note_cluster(edit, copy)
    edit.set_condition("Finished", "True", reason, message)
    patch = edit.patch(Workload.KIND)
    return [*bring_status(this, copy), *([patch] if patch else [])]


def stop_there(this: DispatchRound) -> list[Action] | None:
    """Stop the copies of a Workload that is evicted here, before its quota is given back."""
    evicted = this.workload.condition("Evicted")
    if evicted is None or evicted.status != "True":
        return None
    actions: list[Action] = []
    for copy in this.copies.values():
        if copy.job is None:
            actions += remove(copy)
            continue
        actions += bring_status(this, copy)
        stopping = any(
            conditions.is_true(copy.workload, name) for name in ("DeactivationTarget", "Evicted", "Finished")
        )
        if not stopping:
            edit = StatusEdit(copy.workload, this.now)
            message = f"Evicted by the manager: {evicted.message}"
            edit.set_condition("DeactivationTarget", "True", "EvictedOnManagerCluster", message)
            patch = edit.patch(Workload.KIND)
            actions += [copy.does(patch)] if patch else []
    if all(copy.job is None for copy in this.copies.values()):
        actions += give_up(this)
    return actions


def give_up(this: DispatchRound) -> list[Action]:
    """Treat a job that no connected cluster has as stopped, after waiting for disconnected clusters."""
    if not this.kind.is_active(this.job):
        return []
    lost = [lost_at(this, worker) for worker in this.workers.values() if not worker.is_connected]
    if lost and max(lost) > this.now:
        return [WakeAt(max(lost))]
    return [Patch(this.job_ref, {"status": this.kind.forget_patch(this.job)}, "status")]


def lost_at(this: DispatchRound, worker: Worker) -> datetime:
    return worker.since + this.view.configuration.multi_kueue.worker_lost_timeout


def follow_eviction(this: DispatchRound) -> list[Action] | None:
    """Requeue a Workload that its cluster has evicted: it may go to another one."""
    copy = this.copies.get(this.workload.status.cluster_name or "")
    if copy is None or this.state.state != "Ready" or not conditions.is_true(copy.workload, "Evicted"):
        return None
    evicted = conditions.find(copy.workload, "Evicted") or {}
    return this.say("Retry", f"Evicted in cluster {copy.worker.name}: {evicted.get('message', '')}")


def keep_in_step(this: DispatchRound) -> list[Action] | None:
    """Delete copies that differ from the Workload, and update their priority."""
    actions: list[Action] = []
    for copy in this.copies.values():
        if is_outdated(this, copy):
            actions += remove(copy)
            continue
        wanted, present = this.raw["spec"], copy.workload["spec"]
        changed = {name: wanted[name] for name in PRIORITY if name in wanted and wanted[name] != present.get(name)}
        if changed:
            actions.append(copy.does(Patch(Ref(Workload.KIND, this.workload.key), {"spec": changed})))
    return actions or None


PRIORITY = ("priority", "priorityClassRef")


def is_outdated(this: DispatchRound, copy: Copy) -> bool:
    same = is_of(this, copy) and shape(this.raw) == shape(copy.workload)
    return not same or why_not(this, copy.worker.name) != ""


def is_of(this: DispatchRound, copy: Copy) -> bool:
    """Return whether the copy is of this Workload, not of an earlier one of its name."""
    uid = this.workload.metadata.uid
    return metadata.annotations_of(copy.workload).get(metadata.MULTI_KUEUE_ORIGIN_UID, uid) == uid


def shape(workload: Json) -> object:
    """Return the fields that cannot change in a Workload with quota. Servers may default other fields differently."""
    spec = workload["spec"]
    sizes = [(pod_set.name, pod_set.count) for pod_set in injection.originals(workload)]
    return sizes, spec.get("queueName"), spec.get("active", True), spec.get("maximumExecutionTimeSeconds")


def settle(this: DispatchRound) -> list[Action] | None:
    """Wait while the check asks for a retry."""
    return [] if this.state.state == "Retry" else None


def run_there(this: DispatchRound) -> list[Action] | None:
    """Send the job to the cluster that has admitted its copy, and delete the other copies."""
    winner = this.winner
    if winner is None:
        return wait_for_lost(this) if this.state.state == "Ready" else None
    others = [action for copy in this.copies.values() if copy is not winner for action in remove(copy)]
    if winner.job is None:
        return [*others, *make_job(this, winner)]
    edit = this.edit()
    note_cluster(edit, winner)
    note_placement(edit, winner.workload)
    ready = this.say("Ready", f'Admitted in cluster "{winner.worker.name}"', edit)
    return [*others, *bring_status(this, winner), *ready]


def make_job(this: DispatchRound, winner: Copy) -> list[Action]:
    if not this.kind.is_suspended(this.job):
        return this.say("Retry", f"Its {this.kind.kind.kind} was deleted in cluster {winner.worker.name}")
    if injection.is_injected(this.kind.pod_sets(this.job)):
        # The additions of an earlier admission are being removed from its templates.
        return []
    body = job_for(this.kind, this.job, this.workload.metadata.name, this.origin)
    return [winner.does(Create(this.kind.kind, body))]


def note_cluster(edit: StatusEdit, copy: Copy) -> None:
    edit.status["clusterName"] = copy.worker.name
    edit.status.pop("nominatedClusterNames", None)


def note_placement(edit: StatusEdit, copy: Json) -> None:
    """Mark the delayed topology request as done: the cluster that runs the pods places them."""
    placed = {
        one["name"]
        for one in fields.list_at(copy, ("status", "admission", "podSetAssignments"))
        if one.get("topologyAssignment")
    }
    for one in (edit.status.get("admission") or {}).get("podSetAssignments") or ():
        if one.get("delayedTopologyRequest") == "Pending" and one["name"] in placed:
            one["delayedTopologyRequest"] = "Ready"


def wait_for_lost(this: DispatchRound) -> list[Action]:
    """Retry a Workload that was admitted in a cluster and has no admitted copy any more."""
    name = this.workload.status.cluster_name or ""
    worker = this.workers.get(name)
    if worker is None or worker.is_connected:
        return this.say("Retry", f"It is not admitted in cluster {name} any more")
    at = lost_at(this, worker)
    if this.now < at:
        return [WakeAt(at)]
    return this.say("Retry", f"Cluster {name} cannot be reached since {worker.since:%Y-%m-%dT%H:%M:%SZ}")


def nominate(this: DispatchRound) -> list[Action] | None:
    """Ask clusters for room: each that is nominated gets a copy."""
    others = [state for state in this.workload.status.admission_checks if state.name != this.state.name]
    if any(state.state != "Ready" for state in others) or this.workload.status.cluster_name:
        return []
    reasons = {name: why_not(this, name) for name in this.clusters}
    usable = [name for name, reason in reasons.items() if not reason]
    names, wake = choose(this, usable)
    edit = this.edit()
    if names:
        edit.status["nominatedClusterNames"] = names
    else:
        edit.status.pop("nominatedClusterNames", None)
    checks.set_state(edit, this.state, "Pending", waits_for(names, reasons))
    patch = edit.patch(Workload.KIND)
    surplus = [action for name, copy in this.copies.items() if name not in names for action in remove(copy)]
    body = workload_for(this.raw, this.origin)
    new = [Elsewhere(name, Create(Workload.KIND, body)) for name in names if is_missing(this, name)]
    return [*([patch] if patch else []), *surplus, *new, *wake]


def waits_for(asked: list[str], reasons: Mapping[str, str]) -> str:
    """Return the message of a waiting check. If no cluster can be asked, it says why for each."""
    if asked:
        return f"Waits for room in one of: {', '.join(asked)}"
    if any(not reason for reason in reasons.values()):
        return "No cluster is nominated yet"
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())


def choose(this: DispatchRound, usable: list[str]) -> tuple[list[str], list[WakeAt]]:
    """Return the clusters to ask now, by the dispatcher in the settings, and when to ask more."""
    settings, gates = this.view.configuration.multi_kueue, this.view.configuration.gates
    if settings.dispatcher_name == ALL_AT_ONCE_DISPATCHER:
        return sorted(usable), []
    if settings.dispatcher_name != INCREMENTAL_DISPATCHER:
        return [name for name in this.workload.status.nominated_cluster_names if name in usable], []
    ordered = gates.enabled("MultiKueueIncrementalDispatcherRespectConfigOrder")
    steps = settings.incremental_dispatcher_config or IncrementalDispatcherConfig()
    reserved = this.workload.condition("QuotaReserved")
    since = (parse_time(reserved.last_transition_time) if reserved else None) or this.now
    rounds = 1 + max(0, int((this.now - since) / ROUND))
    asked = list(itertools.islice(usable if ordered else sorted(usable), rounds * steps.step_size))
    return asked, [WakeAt(since + rounds * ROUND)] if len(asked) < len(usable) else []


def why_not(this: DispatchRound, name: str) -> str:
    """Return why the cluster cannot be asked, or an empty text."""
    worker = this.workers.get(name)
    if worker is None or not worker.is_connected:
        return f"not connected{f' ({worker.message})' if worker is not None else ''}"
    if name not in this.clusters:
        return "not a cluster of this check"
    if this.kind.kind not in worker.kinds:
        return f"it has no {this.kind.kind.plural}"
    if refusal := worker.refusals.get(this.workload.key):
        return refusal
    for kind, key in ((Workload.KIND, this.workload.key), (this.kind.kind, this.job_ref.key)):
        found = worker.objects.find_json(kind, key)
        if found is not None and not is_ours(found, this.origin):
            return f"a {kind.kind} {key.name} of another origin is there"
    job = worker.objects.find_json(this.kind.kind, this.job_ref.key)
    if job is not None and not is_made_for(job, this.workload.key):
        return f"an earlier {this.kind.kind.kind} {this.job_ref.key.name} is still there"
    return ""


def is_missing(this: DispatchRound, name: str) -> bool:
    """Return whether the cluster has no copy. One that is being deleted is waited for."""
    return this.workers[name].objects.find_json(Workload.KIND, this.workload.key) is None


def bring_status(this: DispatchRound, copy: Copy) -> list[Action]:
    """Copy the status of the job in the cluster to the job here.

    Between the two starts nothing is copied: a start time would freeze templates that are about to change.
    """
    job = copy.job
    if job is None:
        return []
    settled = not this.kind.is_suspended(this.job) or this.kind.is_suspended(job)
    if not settled and this.kind.finished(job) is None:
        return []
    patch = fields.merge_patch(fields.json_at(this.job, ("status",)), fields.json_at(job, ("status",)))
    return [Patch(this.job_ref, {"status": patch}, "status")] if patch else []


RULES: tuple[Callable[[DispatchRound], list[Action] | None], ...] = (
    withdraw,
    finish,
    stop_there,
    follow_eviction,
    keep_in_step,
    settle,
    run_there,
    nominate,
)
