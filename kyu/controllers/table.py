"""
The table of all controllers. Start here to find what reacts to what.

A row has a name, a pure plan, and its watches: a kind, the keys of the row that a change concerns, and whether the
change matters (the status of a queue changes all the time, and most rows need its spec only).

Rows of pools are in controllers/pools/rows.py, rows of worker clusters in controllers/clusters/rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kyu.api.actions import View
from kyu.api.core import Node, PriorityClass
from kyu.api.kueue import (
    HOSTNAME_LABEL,
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kyu.api.meta import Json, Key, Kind, is_true, key_of
from kyu.controllers.loop import Controller, Owned, Watch
from kyu.kinds import conditions, fields, job_order, metadata, pod_group, table, templates
from kyu.kinds.job import JOB
from kyu.kinds.kind import JobKind
from kyu.kinds.pod import POD
from kyu.plans.clusters import checks
from kyu.plans.job import dependencies, lifecycle, slices
from kyu.plans.provisioning import requests
from kyu.plans.queues import in_use_finalizers
from kyu.plans.queues.in_use_finalizers import is_listed_check, is_listed_flavor, is_topology_of_flavor
from kyu.plans.workload import failure_recovery, node_failures, priority_class, topology
from kyu.plans.workload import lifecycle as workload


def controllers() -> tuple[Controller, ...]:
    """Return the rows of every mode, except those of pools."""
    return (
        Controller(
            "workload",
            workload.plan,
            (
                Watch(Workload.KIND),
                Watch(LocalQueue.KIND, workloads_of_local_queue, spec_changed),
                Watch(ClusterQueue.KIND, workloads_of_cluster_queue, spec_or_activity_changed),
            ),
        ),
        Controller(
            "provisioning",
            requests.plan,
            (
                Watch(Workload.KIND, matters=is_checked),
                Watch(ProvisioningRequestConfig.KIND, checked_workloads),
                Watch(AdmissionCheck.KIND, workloads_of_check, spec_changed),
            ),
            Owned((requests.REQUEST,), Workload.KIND),
        ),
        Controller(
            "admission-check",
            requests.plan_check,
            (
                Watch(AdmissionCheck.KIND),
                Watch(ProvisioningRequestConfig.KIND, every(AdmissionCheck.KIND)),
            ),
        ),
        Controller(
            "multikueue-check",
            checks.plan_check,
            (
                Watch(AdmissionCheck.KIND),
                Watch(MultiKueueConfig.KIND, every(AdmissionCheck.KIND), spec_changed),
                Watch(MultiKueueCluster.KIND, every(AdmissionCheck.KIND), spec_or_activity_changed),
            ),
        ),
        Controller(
            "job-dependencies", dependencies.plan, (Watch(JOB, matters=is_gated), Watch(JOB, dependent_jobs, has_ended))
        ),
        Controller(
            "topology",
            topology.plan,
            (Watch(Workload.KIND, matters=placement_changed), Watch(POD, workload_of_gated_pod)),
        ),
        Controller(
            "elastic-gates",
            slices.plan_gates,
            (Watch(POD, job_of_elastic_pod), Watch(Workload.KIND, job_of_elastic_workload)),
        ),
        Controller(
            "node-failure",
            node_failures.plan,
            (
                Watch(Workload.KIND, matters=placement_changed),
                Watch(Node.KIND, workloads_on_node, health_changed),
                Watch(POD, workload_of_pod_in_trouble),
            ),
        ),
        Controller(
            "failure-recovery",
            failure_recovery.plan,
            (
                Watch(POD, matters=became_deletable_by_force),
                Watch(Node.KIND, failure_recovery.stuck_pods_on, health_changed),
            ),
        ),
        Controller(
            "workload-priority-class", priority_class.plan, (Watch(WorkloadPriorityClass.KIND, matters=value_changed),)
        ),
        *in_use_rows(),
        Controller(
            "pod-group",
            lifecycle.plan_group,
            (
                Watch(POD, group_of_pod),
                Watch(Workload.KIND, matters=is_of_group),
                Watch(WorkloadPriorityClass.KIND, every_group, is_created),
                Watch(PriorityClass.KIND, every_group, is_created),
            ),
        ),
        *(job_row(kind) for kind in table.KINDS if kind.framework),
    )


def in_use_rows() -> Iterator[Controller]:
    """Yield the rows of in-use finalizers. ClusterQueues are released by a row of plane.py, which knows their usage."""
    kept = partial(in_use_finalizers.keep, ClusterQueue.KIND)
    yield Controller("clusterqueues-in-use", kept, (Watch(ClusterQueue.KIND, matters=spec_changed),))
    for kind, is_used, user in (
        (ResourceFlavor.KIND, is_listed_flavor, Watch(ClusterQueue.KIND, flavors_of_queue, spec_changed)),
        (AdmissionCheck.KIND, is_listed_check, Watch(ClusterQueue.KIND, checks_of_queue, spec_changed)),
        (Topology.KIND, is_topology_of_flavor, Watch(ResourceFlavor.KIND, topology_of_flavor, spec_changed)),
    ):
        plan = partial(in_use_finalizers.plan, kind, is_used)
        yield Controller(f"{kind.plural}-in-use", plan, (Watch(kind, matters=spec_changed), user))


def job_row(kind: JobKind) -> Controller:
    prebuilt = (Watch(Workload.KIND, partial(jobs_of_prebuilt, kind), is_without_owner),)
    return Controller(
        f"job/{kind.framework}",
        partial(lifecycle.plan, kind),
        (
            Watch(kind.kind),
            Watch(WorkloadPriorityClass.KIND, partial(jobs_without_workload, kind), is_created),
            Watch(PriorityClass.KIND, partial(jobs_without_workload, kind), is_created),
            *(prebuilt if kind.may_be_prebuilt else ()),
            *((Watch(POD, partial(sets_of_pod, kind)),) if kind.is_in_parts else ()),
            *(Watch(other, every(kind.kind)) for other in kind.refers_to),
        ),
        Owned((Workload.KIND, POD) if kind.has_groups else (Workload.KIND,), kind.kind),
    )


# Keys that a change concerns.


def owner_of(kind: Kind) -> Callable[[View, Json], Iterable[Key]]:
    """Return a function to the keys of owners of this kind."""

    def keys(view: View, obj: Json) -> Iterable[Key]:
        meta = obj["metadata"]
        for owner in meta.get("ownerReferences") or ():
            if owner["kind"] == kind.kind and owner["apiVersion"].rpartition("/")[0] == kind.group:
                yield Key(meta.get("namespace", "") if kind.namespaced else "", owner["name"])

    return keys


def every(kind: Kind) -> Callable[[View, Json], Iterable[Key]]:
    def keys(view: View, obj: Json) -> Iterable[Key]:
        for one in view.list_json(kind):
            yield key_of(one)

    return keys


def workloads_of_local_queue(view: View, obj: Json) -> Iterable[Key]:
    name = obj["metadata"]["name"]
    for one in view.list_json(Workload.KIND, obj["metadata"]["namespace"]):
        if (one.get("spec") or {}).get("queueName") == name:
            yield key_of(one)


def workloads_of_cluster_queue(view: View, obj: Json) -> Iterable[Key]:
    name = obj["metadata"]["name"]
    for queue in view.list_json(LocalQueue.KIND):
        if (queue.get("spec") or {}).get("clusterQueue") == name:
            yield from workloads_of_local_queue(view, queue)


def flavors_of_queue(view: View, obj: Json) -> Iterable[Key]:
    for group in (obj.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            yield Key("", flavor["name"])


def checks_of_queue(view: View, obj: Json) -> Iterable[Key]:
    for rule in fields.json_at(obj, ("spec", "admissionChecksStrategy")).get("admissionChecks") or ():
        yield Key("", rule["name"])


def topology_of_flavor(view: View, obj: Json) -> Iterable[Key]:
    if name := (obj.get("spec") or {}).get("topologyName"):
        yield Key("", name)


def checked_workloads(view: View, obj: Json) -> Iterable[Key]:
    for one in view.list_json(Workload.KIND):
        if has_checks(one):
            yield key_of(one)


def workloads_of_check(view: View, obj: Json) -> Iterable[Key]:
    name = obj["metadata"]["name"]
    for one in view.list_json(Workload.KIND):
        if any(check["name"] == name for check in (one.get("status") or {}).get("admissionChecks") or ()):
            yield key_of(one)


def group_of_pod(view: View, obj: Json) -> Iterable[Key]:
    if name := pod_group.name(obj):
        yield Key(obj["metadata"]["namespace"], name)


def dependent_jobs(view: View, obj: Json) -> Iterable[Key]:
    """Yield the Jobs that start after this one, and singletons of its generateName."""
    name, prefix = obj["metadata"]["name"], job_order.prefix_of(obj)
    for one in view.list_json(JOB, obj["metadata"]["namespace"]):
        # Each end of thousands of Jobs looks at all others: the cheapest question rules most of them out.
        annotations = one["metadata"].get("annotations")
        if not annotations or metadata.DEPENDENCY_GATE not in annotations.get(metadata.ADMISSION_GATED_BY, ""):
            continue
        if not dependencies.is_held(one):
            continue
        is_rival = job_order.is_singleton(one) and job_order.prefix_of(one) == prefix
        if is_rival or any(before.job == name for before in job_order.dependencies(one)):
            yield key_of(one)


def workload_of_gated_pod(view: View, obj: Json) -> Iterable[Key]:
    name = metadata.annotations_of(obj).get(metadata.WORKLOAD)
    if name and templates.has_gate(obj, metadata.TOPOLOGY_GATE):
        yield Key(obj["metadata"]["namespace"], name)


def job_of_elastic_pod(view: View, obj: Json) -> Iterable[Key]:
    """Yield the Job whose slices the pod belongs to, by the name of the first slice."""
    name = metadata.annotations_of(obj).get(metadata.SLICE_NAME)
    if not name:
        return
    for one in view.list_json(Workload.KIND, obj["metadata"]["namespace"]):
        if name in (one["metadata"]["name"], metadata.annotations_of(one).get(metadata.SLICE_NAME)):
            yield from owner_of(JOB)(view, one)


def job_of_elastic_workload(view: View, obj: Json) -> Iterable[Key]:
    annotations = obj["metadata"].get("annotations")
    return owner_of(JOB)(view, obj) if annotations and metadata.ELASTIC_JOB in annotations else ()


def workloads_on_node(view: View, obj: Json) -> Iterable[Key]:
    for one in view.list(Workload):
        if one.status.admission is not None and obj["metadata"]["name"] in node_failures.nodes_of(one):
            yield one.key


def workload_of_pod_in_trouble(view: View, obj: Json) -> Iterable[Key]:
    """Yield the Workload of a pod whose node is gone or unhealthy."""
    name = metadata.annotations_of(obj).get(metadata.WORKLOAD)
    if not name:
        return
    selected = fields.json_at(obj, ("spec", "nodeSelector")).get(HOSTNAME_LABEL)
    if placed := selected or fields.text_at(obj, ("spec", "nodeName")):
        node = view.get(Node, Key("", placed))
        if node is None or node.spec.taints or not is_true(node.status.conditions, "Ready"):
            yield Key(obj["metadata"]["namespace"], name)


def jobs_without_workload(kind: JobKind, view: View, obj: Json) -> Iterable[Key]:
    """Yield the jobs that may wait for the class of their label or of their pods."""
    for one in view.list_json(kind.kind):
        is_named = metadata.labels_of(one).get(metadata.PRIORITY_CLASS) == obj["metadata"]["name"]
        if is_named or not view.owned_by(Workload.KIND, metadata.uid_of(one)):
            yield key_of(one)


def jobs_of_prebuilt(kind: JobKind, view: View, obj: Json) -> Iterable[Key]:
    """Yield the jobs that name a Workload which has no owner yet."""
    name = obj["metadata"]["name"]
    for one in view.list_json(kind.kind, obj["metadata"]["namespace"]):
        if metadata.identifier(one, metadata.PREBUILT_WORKLOAD) == name:
            yield key_of(one)


def sets_of_pod(kind: JobKind, view: View, obj: Json) -> Iterable[Key]:
    """Yield the sets that the pod is a part of, also through objects between the two."""
    if metadata.annotations_of(obj).get(metadata.POD_SUSPENDING_PARENT) != kind.framework:
        return
    for one in view.list_json(kind.kind, obj["metadata"]["namespace"]):
        if kind.group_place(one, obj) is not None:
            yield key_of(one)


def every_group(view: View, obj: Json) -> Iterable[Key]:
    for pod in view.list_json(POD):
        yield from group_of_pod(view, pod)


# Changes that matter.


def is_created(old: Json | None, new: Json | None) -> bool:
    return old is None


def is_without_owner(old: Json | None, new: Json | None) -> bool:
    """Return whether a Workload was created without an owner, or has lost its own."""
    if new is None or new["metadata"].get("ownerReferences"):
        return False
    return old is None or bool(old["metadata"].get("ownerReferences"))


def spec_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the object was created or deleted, has a deletion timestamp, or another spec."""
    if old is None or new is None:
        return True
    return old.get("spec") != new.get("spec") or is_deleting(old) != is_deleting(new)


def value_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a class was created or has another value."""
    return new is not None and (old is None or old.get("value") != new.get("value"))


def is_gated(old: Json | None, new: Json | None) -> bool:
    """Return whether a gate holds the job."""
    return new is not None and bool(dependencies.gates(new))


def has_ended(old: Json | None, new: Json | None) -> bool:
    """Return whether the Job has ended or is deleted."""
    return new is None or (is_over(new) and (old is None or not is_over(old)))


def is_over(job: Json) -> bool:
    return conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed")


def became_deletable_by_force(old: Json | None, new: Json | None) -> bool:
    """Return whether the pod is terminating, and may now be deleted by force."""
    may_be_forced = failure_recovery.may_be_forced
    return new is not None and may_be_forced(new) and (old is None or not may_be_forced(old))


def is_checked(old: Json | None, new: Json | None) -> bool:
    """Return whether the Workload has or had admission checks."""
    return (new is not None and has_checks(new)) or (old is not None and has_checks(old))


def has_checks(workload: Json) -> bool:
    status = workload.get("status")
    return bool(status and status.get("admissionChecks"))


def is_of_group(old: Json | None, new: Json | None) -> bool:
    """Return whether the Workload belongs to a pod group, or may become that of one."""
    return (new is not None and is_group(new)) or (old is not None and is_group(old)) or is_without_owner(old, new)


def is_group(workload: Json) -> bool:
    annotations = workload["metadata"].get("annotations")
    return bool(annotations and annotations.get(metadata.IS_GROUP_WORKLOAD) == "true")


def placement_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a Workload with a topology assignment was admitted, or its assignment has changed."""
    after = (new or {}).get("status") or {}
    admission = after.get("admission")
    if not admission or not any(one.get("topologyAssignment") for one in admission.get("podSetAssignments") or ()):
        return False
    before = (old or {}).get("status") or {}
    return before.get("admission") != admission or is_admitted(before) != is_admitted(after)


def health_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a Node was created or deleted, or has another readiness or other taints."""
    return health(old) != health(new)


def health(node: Json | None) -> object:
    if node is None:
        return None
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    return (ready, (node.get("spec") or {}).get("taints"))


def is_admitted(status: Json) -> bool:
    return any(c["type"] == "Admitted" and c["status"] == "True" for c in status.get("conditions") or ())


def reservation(queue: Json) -> object:
    """Return the quota that workloads of a ClusterQueue hold, as its status has it."""
    return (queue.get("status") or {}).get("flavorsReservation")


def spec_or_activity_changed(old: Json | None, new: Json | None) -> bool:
    return spec_changed(old, new) or activity(old or {}) != activity(new or {})


def is_deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def activity(obj: Json) -> object:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c.get("status") for c in conditions if c.get("type") == "Active"), None)
