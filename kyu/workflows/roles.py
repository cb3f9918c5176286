"""
The pods of a job, as a scheduler plugin sees them: which roles it has, what one pod of each asks for, and where labels,
annotations and the scheduler's name must be written so that they reach the pods.

Taken from the job kinds, with what a plugin sees differently: Ray with an autoscaler is sure of its minimum only, Spark
has fields where others have templates, and Dask is no kind that Kyu queues itself.

Used by: the plugins.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kyu.api.meta import Json
from kyu.api.quantity import QuantityError
from kyu.kinds import fields, ray, ray_pods, shape, spark_pods
from kyu.kinds.kind import JobKind, Slot
from kyu.kinds.requests import Requests, pod_requests
from kyu.workflows.settings import Refusal

DASK = "kubernetes.dask.org/v1"
# Where a kind of Dask keeps its cluster. Its parts are templates, with settings of Dask beside.
DASK_CLUSTERS: dict[tuple[str, str], fields.Path] = {
    (DASK, "DaskCluster"): ("spec",),
    (DASK, "DaskJob"): ("spec", "cluster", "spec"),
}


class Role(msgspec.Struct, frozen=True):
    """
    Pods of one shape, and what one of them asks for.

    ``labels``, ``annotations`` and ``spec`` say where they are written in the object.
    """

    name: str
    count: int
    template: Json
    requests: Requests
    labels: fields.Path
    annotations: fields.Path
    spec: fields.Path
    # A pod that is made only when the others run must not be waited for.
    starts_with_the_others: bool = True


def slots_of(obj: Json, job_kind: JobKind | None) -> list[Slot]:
    """Where the pod templates are: as the kind says, or as Dask has them; none of a kind that is not known."""
    if job_kind is not None:
        return job_kind.slots(obj)
    cluster = DASK_CLUSTERS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if cluster is None:
        return []
    workers = fields.int_at(obj, (*cluster, "worker", "replicas"), 1)
    slots = [Slot("scheduler", (*cluster, "scheduler"), 1), Slot("worker", (*cluster, "worker"), workers)]
    return [*slots, Slot("runner", ("spec", "job"), 1)] if obj["kind"] == "DaskJob" else slots


def roles_of(obj: Json, job_kind: JobKind | None, slots: Sequence[Slot]) -> list[Role] | Refusal:
    """The roles of an object of this kind, or why they are not known."""
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
    if isinstance(job_kind, ray.RayKind):
        return ray_roles(job_kind, obj, slots)
    if kind == "SparkApplication":
        return spark_roles(obj)
    if kind == "MiniCluster":
        slot = slots[0]
        pod: fields.Path = ("spec", "pod")
        template = job_kind.template(obj, slot)
        if problem := shape.why_not_template(template):
            return Refusal(
                f"the containers of the MiniCluster have not the shape of ones: {problem}", "correct the object"
            )
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


def ray_roles(kind: ray.RayKind, obj: Json, slots: Sequence[Slot]) -> list[Role] | Refusal:
    if fields.json_at(obj, ("spec", "clusterSelector")):
        return Refusal(
            "a RayJob with clusterSelector has no pods of its own, so labels on it would be ignored",
            "label the RayCluster that it selects, or use rayClusterSpec",
        )
    autoscales = kind.has_autoscaler(obj)
    roles = []
    for slot in slots:
        name, count = slot.name, slot.count
        if slot.name == ray_pods.HEAD:
            name = "headgroup"
        elif slot.name == ray_pods.SUBMITTER:
            if fields.value_at(obj, slot.template) is None:
                continue
        elif autoscales:
            group = fields.json_at(obj, slot.template[:-1])
            count = fields.int_at(group, ("minReplicas",)) * max(1, fields.int_at(group, ("numOfHosts",), 1))
        late = slot.name == ray_pods.SUBMITTER
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
