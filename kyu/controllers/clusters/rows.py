"""The rows of MultiKueue, and the local changes that wake them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kyu.api.actions import View
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.controllers.loop import Controller, Watch
from kyu.controllers.table import checked_workloads, every, is_checked, spec_changed
from kyu.kinds import fields, metadata, table
from kyu.kinds.kind import JobKind
from kyu.plans.clusters import checks, dispatch, worker_quotas
from kyu.plans.clusters.workers import Workers

WORKLOADS = "multikueue"
CLUSTERS = "multikueue-cluster"
GARBAGE = "multikueue-garbage"
QUOTAS = "multikueue-quota"


def controllers(workers: Workers) -> tuple[Controller, ...]:
    return (
        Controller(
            WORKLOADS,
            partial(dispatch.plan, workers),
            (
                Watch(Workload.KIND, matters=is_checked),
                Watch(MultiKueueConfig.KIND, checked_workloads, spec_changed),
                *(job_watch(kind) for kind in table.KINDS if kind.may_be_dispatched),
            ),
        ),
        Controller(
            CLUSTERS,
            partial(checks.plan_cluster, workers),
            (Watch(MultiKueueCluster.KIND, None, spec_changed),),
        ),
        Controller(GARBAGE, partial(checks.plan_garbage, workers), ()),
        Controller(
            QUOTAS,
            partial(worker_quotas.plan, workers),
            (
                Watch(ClusterQueue.KIND, None, spec_changed),
                Watch(LocalQueue.KIND, cluster_queue_of, spec_changed),
                Watch(AdmissionCheck.KIND, every(ClusterQueue.KIND), spec_changed),
                Watch(MultiKueueConfig.KIND, every(ClusterQueue.KIND), spec_changed),
            ),
        ),
    )


def job_watch(kind: JobKind) -> Watch:
    """Return a watch for the start and stop of a dispatched job. Its local status only comes from its worker."""

    def is_sent(old: Json | None, new: Json | None) -> bool:
        assert kind.managed_by_path is not None
        if new is None or fields.text_at(new, kind.managed_by_path) != metadata.MULTI_KUEUE:
            return False
        return spec_changed(old, new)

    return Watch(kind.kind, workloads_of_job, is_sent)


def cluster_queue_of(view: View, obj: Json) -> Iterable[Key]:
    """Return the ClusterQueue of a LocalQueue."""
    return [Key("", worker_quotas.target_of(obj))]


def workloads_of_job(view: View, obj: Json) -> Iterable[Key]:
    return [key_of(one) for one in view.owned_by(Workload.KIND, metadata.uid_of(obj))]
