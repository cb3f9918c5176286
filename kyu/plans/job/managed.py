"""
The jobs that Kyu queues, by their queue label, their namespace, their owners and the settings.

Kueue: pkg/controller/jobframework (WorkloadShouldBeSuspended, ancestors)
"""

from __future__ import annotations

from dataclasses import replace

from kyu.api.actions import View
from kyu.api.core import Namespace
from kyu.api.kueue import MULTIKUEUE_CONTROLLER, AdmissionCheck, ClusterQueue, LocalQueue, WorkloadPriorityClass
from kyu.api.meta import Json, Key, selects
from kyu.kinds import metadata, table
from kyu.kinds.job import JOB
from kyu.kinds.kind import Context, JobKind
from kyu.kinds.pod import POD
from kyu.plans import pods_of_jobs


def context_of(view: View, kind: JobKind, obj: Json) -> Context | None:
    """Return the surroundings of a job, or None where the settings exclude its namespace or its kind."""
    settings = view.configuration
    namespace = str((obj.get("metadata") or {}).get("namespace") or "")
    if not is_enabled(view, kind) or not is_managed_namespace(view, namespace):
        return None
    return Context(
        manages_without_queue_name=settings.manage_jobs_without_queue_name,
        has_default_queue=view.get(LocalQueue, Key(namespace, metadata.DEFAULT_NAME)) is not None,
        has_default_priority_class=settings.gates.enabled("WorkloadPriorityClassDefaulting")
        and view.get(WorkloadPriorityClass, Key("", metadata.DEFAULT_NAME)) is not None,
        owner_is_managed=find_managed_owner(view, obj) is not None,
        dispatching_queues=dispatching_queues(view, namespace),
    )


def is_enabled(view: View, kind: JobKind) -> bool:
    """Return whether the settings name the kind, or the kind that it is queued through."""
    framework = kind.framework
    if kind.queued_as == "its jobs":
        job = table.find_kind(JOB)
        framework = job.framework if job is not None else ""
    return framework in view.configuration.integrations.frameworks


def is_managed_namespace(view: View, name: str) -> bool:
    namespace = view.get(Namespace, Key("", name))
    labels = namespace.metadata.labels if namespace else {"kubernetes.io/metadata.name": name}
    return selects(view.configuration.managed_namespaces, labels)


def find_managed_owner(view: View, obj: Json) -> Json | None:
    """Return the highest controller above the object that is queued. The object runs with the quota of that.

    As in Kueue, a pod has quota for itself and for nothing else. The pods of a Deployment have quota of their own.
    """
    is_pod = table.find(obj) is table.find_kind(POD)
    found = None
    for owner in pods_of_jobs.owners(view, obj):
        kind = table.find(owner)
        if kind is None or kind.kind == POD or not is_enabled(view, kind):
            continue
        if is_pod and kind.queued_as == "its pods":
            continue
        if kind.is_managed(owner, Context(view.configuration.manage_jobs_without_queue_name)):
            found = owner
    return found


def is_queued(view: View, obj: Json) -> bool:
    """Return whether a job, a pod or an object above it is queued: it must not run without a Workload."""
    for one in (obj, *pods_of_jobs.owners(view, obj)):
        kind = table.find(one)
        context = context_of(view, kind, one) if kind is not None else None
        if kind is not None and context is not None and kind.is_managed(one, replace(context, owner_is_managed=False)):
            return True
    return False


def dispatching_queues(view: View, namespace: str) -> frozenset[str]:
    """Return the LocalQueues whose ClusterQueue sends its jobs to other clusters."""
    return queues_with_check(view, namespace, MULTIKUEUE_CONTROLLER)


def queues_with_check(view: View, namespace: str, controller: str) -> frozenset[str]:
    """Return the LocalQueues whose ClusterQueue has an admission check of this controller."""
    served = {check.metadata.name for check in view.list(AdmissionCheck) if check.spec.controller_name == controller}
    if not served:
        return frozenset()
    names = set()
    for queue in view.list(LocalQueue, namespace):
        cluster_queue = view.get(ClusterQueue, Key("", queue.spec.cluster_queue))
        strategy = cluster_queue.spec.admission_checks_strategy if cluster_queue else None
        if strategy and any(rule.name in served for rule in strategy.admission_checks):
            names.add(queue.metadata.name)
    return frozenset(names)
