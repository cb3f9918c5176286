"""The rows of placement and of KubeStellar, and the changes that wake them."""

from __future__ import annotations

from collections.abc import Iterable

from kyu.api.actions import View
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
from kyu.api.kueue import AdmissionCheck, MultiKueueCluster, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.controllers.clusters.changes import report_changed
from kyu.controllers.clusters.rows import workloads_of_job
from kyu.controllers.loop import Controller, Watch
from kyu.controllers.table import every, has_checks, is_checked, is_created, spec_changed, spec_or_activity_changed
from kyu.kinds import metadata, table
from kyu.plans.clusters import kubestellar as sending
from kyu.plans.clusters import placement

# Workloads compete for the same nodes, so one plan places all.
ALL = Key("", "workloads")


def controllers() -> tuple[Controller, ...]:
    jobs = [kind.kind for kind in table.KINDS if kind.framework and kind.queued_as == "itself"]
    return (
        Controller(
            "placement",
            placement.plan,
            (
                Watch(Workload.KIND, all_workloads, is_checked),
                Watch(ClusterMetrics.KIND, all_workloads, report_changed),
                Watch(MultiKueueCluster.KIND, all_workloads, spec_or_activity_changed),
            ),
        ),
        Controller(
            "kubestellar",
            sending.plan,
            (
                Watch(Workload.KIND, matters=is_checked),
                Watch(ClusterMetrics.KIND, workloads_of_cluster, report_changed),
                *(Watch(kind, workloads_of_job, placement_or_spec_changed) for kind in jobs),
            ),
        ),
        Controller(
            "kubestellar-policy",
            sending.plan_policy,
            (
                Watch(ClusterMetrics.KIND, matters=is_created),
                Watch(BINDING_POLICY, matters=spec_changed),
                Watch(AdmissionCheck.KIND, every(ClusterMetrics.KIND), is_created),
                Watch(DEFINITION, clusters_of_definition, is_created),
            ),
        ),
        Controller("kubestellar-check", sending.plan_check, (Watch(AdmissionCheck.KIND),)),
        Controller(
            "kubestellar-status",
            sending.plan_combined_status,
            (Watch(COMBINED_STATUS), Watch(CUSTOM_TRANSFORM, no_keys)),
        ),
    )


def no_keys(view: View, obj: Json) -> Iterable[Key]:
    """Return nothing: the kind is only read."""
    return ()


def all_workloads(view: View, obj: Json) -> Iterable[Key]:
    return (ALL,)


def workloads_of_cluster(view: View, obj: Json) -> Iterable[Key]:
    """Yield the Workloads that run in the cluster of the report."""
    name = obj["metadata"]["name"]
    for one in view.list_json(Workload.KIND):
        if has_checks(one) and (one.get("status") or {}).get("clusterName") == name:
            yield key_of(one)


def clusters_of_definition(view: View, obj: Json) -> Iterable[Key]:
    """Yield all clusters once KubeStellar's kinds are there."""
    if (obj.get("spec") or {}).get("group") == kubestellar.GROUP:
        yield from every(ClusterMetrics.KIND)(view, obj)


def placement_or_spec_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a job is sent to another cluster, started, stopped or changed. The status matters while it is."""
    if new is None or old is None or spec_changed(old, new):
        return True
    return placement_of(old) != placement_of(new)


def placement_of(job: Json) -> object:
    return metadata.labels_of(job).get(CLUSTER_LABEL), metadata.annotations_of(job).get(PLACED_WORKLOAD)
