"""
CONTROLLERS: the table of all controllers. START HERE to find what reacts to what.

A row has a name, a pure plan, and what it watches: a kind, which keys of the row a change concerns, and whether the
change matters at all (the status of a queue changes all the time; most rows care about its spec only).

Used by: plane.py, which gives the rows to the loop. Those of pools are in pool_rows.py, those that work in other
clusters in dispatch_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kyu.api.actions import View
from kyu.api.core import Node
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
from kyu.kinds import conditions, fields, metadata, pod_group, table, templates
from kyu.kinds.job import JOB
from kyu.kinds.kind import JobKind
from kyu.kinds.pod import POD
from kyu.plans import after, dispatch_clusters, in_use, job, node_failures, provisioning, slices, topology, workload


def controllers() -> tuple[Controller, ...]:
    """The rows that every mode has, but those of pools."""
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
            provisioning.plan,
            (
                Watch(Workload.KIND, matters=is_checked),
                Watch(ProvisioningRequestConfig.KIND, checked_workloads),
            ),
            Owned((provisioning.REQUEST,), Workload.KIND),
        ),
        Controller(
            "admission-check",
            provisioning.plan_check,
            (
                Watch(AdmissionCheck.KIND),
                Watch(ProvisioningRequestConfig.KIND, every(AdmissionCheck.KIND)),
            ),
        ),
        Controller(
            "multikueue-check",
            dispatch_clusters.plan_check,
            (
                Watch(AdmissionCheck.KIND),
                Watch(MultiKueueConfig.KIND, every(AdmissionCheck.KIND), spec_changed),
                Watch(MultiKueueCluster.KIND, every(AdmissionCheck.KIND), spec_or_activity_changed),
            ),
        ),
        Controller("after", after.plan, (Watch(JOB, matters=is_gated), Watch(JOB, jobs_after, has_ended))),
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
        *in_use_rows(),
        Controller(
            "pod-group",
            job.plan_group,
            (Watch(POD, group_of_pod), Watch(Workload.KIND, matters=is_of_group)),
        ),
        *(job_row(kind) for kind in table.KINDS if kind.framework),
    )


def in_use_rows() -> Iterator[Controller]:
    """What is deleted while it is used. ClusterQueues are let go by a row of plane.py, which knows what they hold."""
    kept = partial(in_use.keep, ClusterQueue.KIND)
    yield Controller("clusterqueues-in-use", kept, (Watch(ClusterQueue.KIND, matters=spec_changed),))
    for kind, is_used, user in (
        (ResourceFlavor.KIND, in_use.is_listed_flavor, Watch(ClusterQueue.KIND, flavors_of_queue, spec_changed)),
        (AdmissionCheck.KIND, in_use.is_listed_check, Watch(ClusterQueue.KIND, checks_of_queue, spec_changed)),
        (Topology.KIND, in_use.is_topology_of_flavor, Watch(ResourceFlavor.KIND, topology_of_flavor, spec_changed)),
    ):
        plan = partial(in_use.plan, kind, is_used)
        yield Controller(f"{kind.plural}-in-use", plan, (Watch(kind, matters=spec_changed), user))


def job_row(kind: JobKind) -> Controller:
    return Controller(
        f"job/{kind.framework}",
        partial(job.plan, kind),
        (
            Watch(kind.kind),
            Watch(WorkloadPriorityClass.KIND, partial(jobs_of_class, kind)),
            *(Watch(other, every(kind.kind)) for other in kind.refers_to),
        ),
        Owned((Workload.KIND,), kind.kind),
    )


# Which keys a change concerns.


def owner_of(kind: Kind) -> Callable[[View, Json], Iterable[Key]]:
    """The owner of this kind, if the object has one."""

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


def group_of_pod(view: View, obj: Json) -> Iterable[Key]:
    if name := pod_group.name(obj):
        yield Key(obj["metadata"]["namespace"], name)


def jobs_after(view: View, obj: Json) -> Iterable[Key]:
    """The jobs that start after this one."""
    name = obj["metadata"]["name"]
    for one in view.list_json(JOB, obj["metadata"]["namespace"]):
        # Most have no annotations at all, and there may be thousands.
        if one["metadata"].get("annotations") and name in metadata.jobs_before(one):
            yield key_of(one)


def workload_of_gated_pod(view: View, obj: Json) -> Iterable[Key]:
    name = metadata.annotations_of(obj).get(metadata.WORKLOAD)
    if name and templates.has_gate(obj, metadata.TOPOLOGY_GATE):
        yield Key(obj["metadata"]["namespace"], name)


def job_of_elastic_pod(view: View, obj: Json) -> Iterable[Key]:
    return owner_of(JOB)(view, obj) if metadata.SLICE_NAME in metadata.annotations_of(obj) else ()


def job_of_elastic_workload(view: View, obj: Json) -> Iterable[Key]:
    annotations = obj["metadata"].get("annotations")
    return owner_of(JOB)(view, obj) if annotations and metadata.ELASTIC_JOB in annotations else ()


def workloads_on_node(view: View, obj: Json) -> Iterable[Key]:
    for one in view.list(Workload):
        if one.status.admission is not None and obj["metadata"]["name"] in node_failures.nodes_of(one):
            yield one.key


def workload_of_pod_in_trouble(view: View, obj: Json) -> Iterable[Key]:
    """Of a pod that was placed on a node which is gone or not as it should be; all others cost nothing."""
    name = metadata.annotations_of(obj).get(metadata.WORKLOAD)
    placed = fields.json_at(obj, ("spec", "nodeSelector")).get(HOSTNAME_LABEL) if name else None
    if name and placed:
        node = view.get(Node, Key("", placed))
        if node is None or node.spec.taints or not is_true(node.status.conditions, "Ready"):
            yield Key(obj["metadata"]["namespace"], name)


def jobs_of_class(kind: JobKind, view: View, obj: Json) -> Iterable[Key]:
    for one in view.list_json(kind.kind):
        if metadata.labels_of(one).get(metadata.PRIORITY_CLASS) == obj["metadata"]["name"]:
            yield key_of(one)


# Which changes matter.


def spec_changed(old: Json | None, new: Json | None) -> bool:
    """Created, deleted, being deleted, or another spec; not what controllers write in the status."""
    if old is None or new is None:
        return True
    return old.get("spec") != new.get("spec") or is_deleting(old) != is_deleting(new)


def is_gated(old: Json | None, new: Json | None) -> bool:
    """Of a job: a gate holds it."""
    return new is not None and bool(after.gates(new))


def has_ended(old: Json | None, new: Json | None) -> bool:
    """Of a Job: it has ended, or is gone."""
    return new is None or (is_over(new) and (old is None or not is_over(old)))


def is_over(job: Json) -> bool:
    return conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed")


def is_checked(old: Json | None, new: Json | None) -> bool:
    """Of a Workload: it has admission checks, or had some."""
    return (new is not None and has_checks(new)) or (old is not None and has_checks(old))


def has_checks(workload: Json) -> bool:
    status = workload.get("status")
    return bool(status and status.get("admissionChecks"))


def is_of_group(old: Json | None, new: Json | None) -> bool:
    """Of a Workload: it stands for a group of pods."""
    return (new is not None and is_group(new)) or (old is not None and is_group(old))


def is_group(workload: Json) -> bool:
    annotations = workload["metadata"].get("annotations")
    return bool(annotations and annotations.get(metadata.IS_GROUP_WORKLOAD) == "true")


def placement_changed(old: Json | None, new: Json | None) -> bool:
    """Of a Workload with a place: it was admitted, or its place has changed."""
    after = (new or {}).get("status") or {}
    admission = after.get("admission")
    if not admission or not any(one.get("topologyAssignment") for one in admission.get("podSetAssignments") or ()):
        return False
    before = (old or {}).get("status") or {}
    return before.get("admission") != admission or is_admitted(before) != is_admitted(after)


def health_changed(old: Json | None, new: Json | None) -> bool:
    """Of a Node: it came or went, is ready or not, or has other taints."""
    return health(old) != health(new)


def health(node: Json | None) -> object:
    if node is None:
        return None
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    return (ready, (node.get("spec") or {}).get("taints"))


def is_admitted(status: Json) -> bool:
    return any(c["type"] == "Admitted" and c["status"] == "True" for c in status.get("conditions") or ())


def spec_or_activity_changed(old: Json | None, new: Json | None) -> bool:
    return spec_changed(old, new) or activity(old or {}) != activity(new or {})


def is_deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def activity(obj: Json) -> object:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c.get("status") for c in conditions if c.get("type") == "Active"), None)
