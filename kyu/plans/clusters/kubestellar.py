"""
Dispatch by KubeStellar: a Workload with quota gets a cluster, and the label of its job makes KubeStellar send the job.

The check ``kubestellar.io/ks-kueue`` stays Pending while the job runs elsewhere. So the Workload is never admitted, and
the job here stays suspended: it never runs pods. KubeStellar removes the suspension from the copy, and copies its
status back. When the job ends, plans/job/lifecycle.py finishes the Workload, as for any job.

placement.py nominates the cluster; the job gets the label; the Workload says so. Each step is a write of its own, so
that a process that dies continues where it was. A job that already has the label keeps its cluster: another controller
with the right to set it, such as kueue-ks, may have chosen.

kueue-ks: pkg/controller/workload_controller.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kyu.api.actions import Action, Create, Event, Patch, View, WakeAt
from kyu.api.clusters import kubestellar
from kyu.api.clusters.capacity import ClusterMetrics
from kyu.api.clusters.kubestellar import (
    BINDING_POLICY,
    CLUSTER_LABEL,
    COMBINED_STATUS,
    CUSTOM_TRANSFORM,
    PLACED_WORKLOAD,
)
from kyu.api.core import DEFINITION
from kyu.api.kueue import AdmissionCheck, AdmissionCheckState, Workload
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kinds import fields, metadata, table
from kyu.kinds.job import JOB
from kyu.kinds.kind import JobKind
from kyu.kinds.templates import Mismatch, TemplateConflict
from kyu.plans.clusters.placement import is_held
from kyu.plans.clusters.reports import silent_since
from kyu.plans.job import injection
from kyu.plans.status import StatusEdit, parse_time
from kyu.plans.workload import checks

ASSIGNED = "ClusterAssigned"
CHECK_CONDITIONS = {
    "Active": "The admission check is active",
    "SingleInstanceInClusterQueue": "A ClusterQueue may have one check of this controller",
    "FlavorIndependent": "The check cannot be applied to some flavors only",
}
# A report this much older than the timeout of lost workers means that the cluster is lost.
SILENCE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class SentRound:
    """The input of the rules: a Workload with the check of KubeStellar, and its job."""

    workload: Workload
    raw: Json
    kind: JobKind
    job: Json
    state: AdmissionCheckState
    view: View
    now: datetime

    @property
    def ref(self) -> Ref:
        return Ref(self.kind.kind, key_of(self.job))

    @property
    def label(self) -> str:
        """The cluster that the job is sent to."""
        return metadata.labels_of(self.job).get(CLUSTER_LABEL, "")

    @property
    def lost_at(self) -> datetime | None:
        """The time at which the cluster counts as lost; None while it reports, or if it does not say when."""
        report = self.view.find_json(ClusterMetrics.KIND, Key("", self.label))
        since = silent_since(self.view, report) if report is not None else None
        return since + SILENCE + self.view.configuration.multi_kueue.worker_lost_timeout if since else None

    def edit(self) -> StatusEdit:
        return StatusEdit(self.raw, self.now)

    def event(self, reason: str, message: str) -> Event:
        return Event(self.ref, "Normal", reason, message, metadata.uid_of(self.job))


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for one Workload."""
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    if workload is None or raw is None or metadata.is_deleted(raw):
        return []
    state = find_state(view, workload)
    found = find_job(view, workload)
    if state is None or found is None:
        return []
    if isinstance(found, str):
        if state.state != "Pending" or not is_held(workload):
            return []
        edit = StatusEdit(raw, now)
        checks.set_state(edit, state, "Rejected", found)
        return patches(edit)
    this = SentRound(workload, raw, *found, state, view, now)
    for rule in RULES:
        answer = rule(this)
        if answer is not None:
            return answer
    return []


def patches(edit: StatusEdit) -> list[Action]:
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def find_state(view: View, workload: Workload) -> AdmissionCheckState | None:
    for state in workload.status.admission_checks:
        check = view.get(AdmissionCheck, Key("", state.name))
        if check is not None and check.spec.controller_name == kubestellar.CONTROLLER:
            return state
    return None


def find_job(view: View, workload: Workload) -> tuple[JobKind, Json] | str | None:
    """Return the job of the Workload, why it cannot be sent, or None if the job is not known yet."""
    owner = next((one for one in workload.metadata.owner_references if one.controller), None)
    if owner is None:
        return "It belongs to no job, so there is nothing to run in another cluster"
    kind = table.find({"apiVersion": owner.api_version, "kind": owner.kind})
    if kind is None or kind.queued_as != "itself" or kind.stops_by_deletion:
        return f"A {owner.kind} cannot be held here while it runs in another cluster"
    job = view.find_json(kind.kind, Key(workload.metadata.namespace, owner.name))
    return (kind, job) if job is not None and metadata.uid_of(job) == owner.uid else None


# The rules.


def leave_ended(this: SentRound) -> list[Action] | None:
    """Leave a job that has ended in its cluster, with its logs, until it is deleted."""
    return [] if this.workload.is_true("Finished") else None


def withdraw(this: SentRound) -> list[Action] | None:
    """Take the label from a job without quota, so that KubeStellar deletes its copy."""
    if is_held(this.workload) and this.state.state == "Pending":
        return None
    if this.label:
        told = this.event("DeleteJobFromCluster", f"Deleted in cluster {this.label}: it has no quota any more")
        return [Patch(this.ref, {"metadata": {"labels": {CLUSTER_LABEL: None}}}), told]
    edit = this.edit()
    if edit.is_true(ASSIGNED):
        edit.set_condition(ASSIGNED, "False", "Withdrawn", "The job was taken back")
    return [*patches(edit), *forget_lost(this)]


def forget_lost(this: SentRound) -> list[Action]:
    """Treat a job as stopped whose status KubeStellar does not clear, as its cluster is lost."""
    assigned = this.workload.condition(ASSIGNED)
    if assigned is None or assigned.status == "True" or not this.kind.is_active(this.job):
        return []
    since = parse_time(assigned.last_transition_time) or this.now
    gives_up_at = since + this.view.configuration.multi_kueue.worker_lost_timeout
    if this.now < gives_up_at:
        return [WakeAt(gives_up_at)]
    return [Patch(this.ref, {"status": this.kind.forget_patch(this.job)}, "status")]


def follow(this: SentRound) -> list[Action] | None:
    """Note the cluster of a job that is sent, and requeue the job of a lost cluster."""
    if not this.label:
        return None
    edit = this.edit()
    lost_at = this.lost_at
    if lost_at is not None and this.now >= lost_at:
        checks.set_state(edit, this.state, "Retry", f"Cluster {this.label} does not report any more")
        return patches(edit)
    status = this.workload.status
    if not status.cluster_name and this.label not in status.nominated_cluster_names:
        # Another controller has chosen the cluster. Servers take a cluster only if it was nominated.
        edit.status["nominatedClusterNames"] = [this.label]
        return patches(edit)
    edit.status["clusterName"] = this.label if not status.cluster_name else status.cluster_name
    edit.status.pop("nominatedClusterNames", None)
    edit.set_condition(ASSIGNED, "True", "Placed", f"The job runs in cluster {this.label}")
    checks.set_state(edit, this.state, "Pending", f"Runs in cluster {this.label}")
    return [*patches(edit), *([WakeAt(lost_at)] if lost_at is not None else [])]


def send(this: SentRound) -> list[Action] | None:
    """Label the job with its cluster, together with what its flavors add to the templates."""
    names = this.workload.status.nominated_cluster_names
    if this.workload.status.cluster_name:
        # The label was taken away. Where its job runs is unknown, so it starts over.
        edit = this.edit()
        checks.set_state(edit, this.state, "Retry", "The label of its cluster was removed")
        return patches(edit)
    if len(names) != 1:
        return None
    injected = injection.is_injected(this.kind.pod_sets(this.job)) or injection.is_placed(this.job, this.raw)
    if not this.kind.is_suspended(this.job) or injected:
        # It is being stopped, or restored after an earlier admission.
        return []
    # The labels and annotations of pods are for a cluster that has this Workload.
    infos = [
        replace(info, labels={}, annotations={}, scheduling_gates=())
        for info in injection.pod_set_infos(this.view, this.workload, this.kind.queue_name(this.job))
    ]
    patch = this.kind.placement_patch(this.job, infos)
    if isinstance(patch, TemplateConflict | Mismatch):
        edit = this.edit()
        checks.set_state(edit, this.state, "Rejected", str(patch))
        return patches(edit)
    mark = {PLACED_WORKLOAD: this.workload.metadata.name}
    labels = {"metadata": {"labels": {CLUSTER_LABEL: names[0]}, "annotations": mark}}
    flavors = sorted(checks.assigned_flavors(this.workload) or ())
    return [
        *transform(this.view, this.kind),
        Patch(this.ref, fields.merged(patch, labels), "", this.job["metadata"].get("resourceVersion", "")),
        this.event("AssignedFlavor", f"Assigned flavor {', '.join(flavors)}"),
        this.event("AssignedCluster", f"Assigned cluster {names[0]}"),
    ]


RULES: tuple[Callable[[SentRound], list[Action] | None], ...] = (leave_ended, withdraw, follow, send)


# KubeStellar's own objects.


def is_served(view: View, kind: Kind) -> bool:
    return view.find_json(DEFINITION, Key("", f"{kind.plural}.{kind.group}")) is not None


def transform(view: View, kind: JobKind) -> list[Action]:
    """Return the CustomTransform that removes the suspension from copies. KubeStellar does it for Jobs by itself."""
    if kind.kind == JOB or not is_served(view, CUSTOM_TRANSFORM):
        return []
    for one in view.list_json(CUSTOM_TRANSFORM):
        spec = one.get("spec") or {}
        if (spec.get("apiGroup", ""), spec.get("resource")) == (kind.kind.group, kind.kind.plural):
            return []
    path = f"$.{'.'.join(map(str, kind.suspend_path))}"
    spec = {"apiGroup": kind.kind.group, "resource": kind.kind.plural, "remove": [path]}
    return [Create(CUSTOM_TRANSFORM, {"metadata": {"name": f"kyu-{kind.kind.plural}"}, "spec": spec})]


def plan_policy(view: View, key: Key, now: datetime) -> list[Action]:
    """Create the BindingPolicy of a cluster that reports, if there is none. One that exists stays as it is."""
    used = any(check.spec.controller_name == kubestellar.CONTROLLER for check in view.list(AdmissionCheck))
    if not used or view.find_json(ClusterMetrics.KIND, key) is None or not is_served(view, BINDING_POLICY):
        return []
    if view.find_json(BINDING_POLICY, key) is not None:
        return []
    # Older definitions ask for the status at the level of the spec, newer ones in each clause. Each drops the other.
    clause = {
        "createOnly": True,
        "objectSelectors": [{"matchLabels": {CLUSTER_LABEL: key.name}}],
        "wantSingletonReportedState": True,
    }
    spec = {
        "clusterSelectors": [{"matchLabels": {"location-group": "edge", "name": key.name}}],
        "downsync": [clause],
        "wantSingletonReportedState": True,
    }
    return [Create(BINDING_POLICY, {"metadata": {"name": key.name}, "spec": spec})]


def plan_check(view: View, key: Key, now: datetime) -> list[Action]:
    """Set the conditions of the AdmissionCheck, which its ClusterQueues need to be active."""
    check, raw = view.get(AdmissionCheck, key), view.find_json(AdmissionCheck.KIND, key)
    if check is None or raw is None or check.spec.controller_name != kubestellar.CONTROLLER:
        return []
    edit = StatusEdit(raw, now)
    for type_, message in CHECK_CONDITIONS.items():
        if not edit.is_true(type_):
            edit.set_condition(type_, "True", type_, message)
    patch = edit.patch(AdmissionCheck.KIND)
    return [patch] if patch else []


def plan_combined_status(view: View, key: Key, now: datetime) -> list[Action]:
    """Copy the status of a job from its CombinedStatus, where no policy asks for the status in the job itself."""
    raw = view.find_json(COMBINED_STATUS, key)
    if raw is None:
        return []
    about = {
        name: metadata.labels_of(raw).get(f"status.kubestellar.io/{name}", "")
        for name in ("api-group", "resource", "namespace", "name")
    }
    kind = next(
        (
            one
            for one in table.KINDS
            if (one.kind.group, one.kind.plural) == (about["api-group"], about["resource"]) and one.framework
        ),
        None,
    )
    job = view.find_json(kind.kind, Key(about["namespace"], about["name"])) if kind is not None else None
    if kind is None or job is None:
        return []
    cluster = metadata.labels_of(job).get(CLUSTER_LABEL, "")
    if not cluster or not kind.is_suspended(job) or has_singleton_status(view, cluster):
        return []
    status = reported_status(raw, cluster)
    patch = fields.merge_patch(fields.json_at(job, ("status",)), status) if status is not None else {}
    return [Patch(Ref(kind.kind, key_of(job)), {"status": patch}, "status")] if patch else []


def has_singleton_status(view: View, cluster: str) -> bool:
    """Return whether KubeStellar writes the status of the copies into the jobs here."""
    spec = fields.json_at(view.find_json(BINDING_POLICY, Key("", cluster)) or {}, ("spec",))
    clauses = fields.list_at(spec, ("downsync",))
    return any(bool(one.get("wantSingletonReportedState")) for one in (spec, *clauses))


def reported_status(combined: Json, cluster: str) -> Json | None:
    """Return the status that a CombinedStatus has for a cluster: the columns ``wec`` and ``status`` of a row."""
    for result in combined.get("results") or ():
        names = result.get("columnNames") or ()
        for row in result.get("rows") or ():
            columns = dict(zip(names, row.get("columns") or (), strict=False))
            if (columns.get("wec") or {}).get("string") == cluster:
                found = (columns.get("status") or {}).get("object")
                return found if isinstance(found, dict) else None
    return None
