"""
The pods of a job for a scheduler plugin: its roles, the requests of a pod of each, and the places of its labels,
annotations and scheduler name.

They come from the job kinds, with differences: an autoscaled RayCluster counts with its minimum, a SparkApplication
has fields in place of templates, and Dask is not queued by Kyu.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kyu.api.meta import Json
from kyu.api.quantity import QuantityError
from kyu.kinds import fields, shape
from kyu.kinds.kind import JobKind, Slot
from kyu.kinds.ray import kinds, pods
from kyu.kinds.requests import Requests, pod_requests
from kyu.kinds.spark import pods as spark_pods
from kyu.workflows.settings import Refusal

DASK = "kubernetes.dask.org/v1"
# The path of the cluster in a kind of Dask. Its parts are templates with settings of Dask beside them.
DASK_CLUSTERS: dict[tuple[str, str], fields.Path] = {
    (DASK, "DaskCluster"): ("spec",),
    (DASK, "DaskJob"): ("spec", "cluster", "spec"),
}


class Role(msgspec.Struct, frozen=True):
    """
    Pods of one template, with their number and requests.

    ``labels``, ``annotations`` and ``spec`` are their paths in the object.
    """

    name: str
    count: int
    template: Json
    requests: Requests
    labels: fields.Path
    annotations: fields.Path
    spec: fields.Path
    # False for a pod that is created only when the others run.
    starts_with_the_others: bool = True


def slots_of(obj: Json, job_kind: JobKind | None) -> list[Slot]:
    """Return the pod templates of the kind or of Dask; none of an unknown kind."""
    if job_kind is not None:
        return job_kind.slots(obj)
    cluster = DASK_CLUSTERS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if cluster is None:
        return []
    workers = fields.int_at(obj, (*cluster, "worker", "replicas"), 1)
    slots = [Slot("scheduler", (*cluster, "scheduler"), 1), Slot("worker", (*cluster, "worker"), workers)]
    return [*slots, Slot("runner", ("spec", "job"), 1)] if obj["kind"] == "DaskJob" else slots


def roles_of(obj: Json, job_kind: JobKind | None, slots: Sequence[Slot]) -> list[Role] | Refusal:
    """Return the roles of an object, or the reason why they are unknown."""
    try:
        return find_roles(obj, job_kind, slots)
    except QuantityError as error:
        return Refusal(f"a request cannot be read: {error}", "write it as a Kubernetes quantity")


def find_roles(obj: Json, job_kind: JobKind | None, slots: Sequence[Slot]) -> list[Role] | Refusal:
    kind = str(obj.get("kind"))
    if kind in REFUSED_KINDS:
        return REFUSED_KINDS[kind]
    if job_kind is None and not slots:
        known = "the kinds that `kyu plugin list` shows"
        return Refusal(f"where {obj.get('apiVersion')} {kind} keeps its pods is not known", f"submit one of {known}")
    if job_kind is None:
        return [at_template(slot.name, slot.count, fields.json_at(obj, slot.template), slot.template) for slot in slots]
    if isinstance(job_kind, kinds.RayKind):
        return ray_roles(job_kind, obj, slots)
    if kind == "SparkApplication":
        return spark_roles(obj)
    if kind == "MiniCluster":
        slot = slots[0]
        pod: fields.Path = ("spec", "pod")
        template = job_kind.template(obj, slot)
        if problem := shape.why_not_template(template):
            return Refusal(f"the containers of the MiniCluster are malformed: {problem}", "correct the object")
        asked = requests_of("flux", template)
        return [Role("flux", slot.count, template, asked, (*pod, "labels"), (*pod, "annotations"), pod)]
    return [at_template(slot.name, slot.count, job_kind.template(obj, slot), slot.template) for slot in slots]


def requests_of(name: str, template: Json) -> Requests:
    try:
        return pod_requests(template)
    except QuantityError as error:
        raise QuantityError(f"{name}: {error}") from None


def at_template(name: str, count: int, template: Json, path: fields.Path, *, with_others: bool = True) -> Role:
    labels, annotations = (*path, "metadata", "labels"), (*path, "metadata", "annotations")
    asked = requests_of(name, template)
    return Role(name, count, template, asked, labels, annotations, (*path, "spec"), starts_with_the_others=with_others)


def ray_roles(kind: kinds.RayKind, obj: Json, slots: Sequence[Slot]) -> list[Role] | Refusal:
    if fields.json_at(obj, ("spec", "clusterSelector")):
        return Refusal(
            "a RayJob with clusterSelector has no pods of its own, so labels on it would be ignored",
            "label the RayCluster that it selects, or use rayClusterSpec",
        )
    autoscales = kind.has_autoscaler(obj)
    roles = []
    for slot in slots:
        name, count = slot.name, slot.count
        if slot.name == pods.HEAD:
            name = "headgroup"
        elif slot.name == pods.SUBMITTER:
            if fields.value_at(obj, slot.template) is None:
                continue
        elif autoscales:
            group = fields.json_at(obj, slot.template[:-1])
            count = fields.int_at(group, ("minReplicas",)) * max(1, fields.int_at(group, ("numOfHosts",), 1))
        late = slot.name == pods.SUBMITTER
        roles.append(at_template(name, count, kind.template(obj, slot), slot.template, with_others=not late))
    return roles


def spark_roles(obj: Json) -> list[Role]:
    counts = {spark_pods.DRIVER: 1, spark_pods.EXECUTOR: spark_pods.executors(obj)}
    roles = []
    for name, count in counts.items():
        template = spark_pods.pod_template(obj, name)
        at: fields.Path = ("spec", name)
        asked = requests_of(f"spark-{name}", template)
        roles.append(Role(f"spark-{name}", count, template, asked, (*at, "labels"), (*at, "annotations"), at))
    return roles


REFUSED_KINDS = {
    "TrainJob": Refusal(
        "the pods of a TrainJob come from its training runtime, so there is no template to label",
        "for Kueue set the queue label on the TrainJob alone; for YuniKorn label the templates of the runtime",
    ),
    "AppWrapper": Refusal(
        "the pods of an AppWrapper are inside the objects that it wraps",
        "render the wrapped objects, then wrap them",
    ),
}
