"""
Is this job queued by us? It depends on its queue label, its namespace, its owners and the settings.

Called by: plans/job.py, plans/door.py.
Kueue: pkg/controller/jobframework (WorkloadShouldBeSuspended, ancestors)
"""

from __future__ import annotations

from kyu.api.actions import View
from kyu.api.core import Namespace
from kyu.api.kueue import MULTIKUEUE_CONTROLLER, AdmissionCheck, ClusterQueue, LocalQueue, WorkloadPriorityClass
from kyu.api.meta import Json, Key, selects
from kyu.kinds import metadata, table
from kyu.kinds.kind import Context, JobKind

# A job that a job made is looked for this far up.
HIGHEST_OWNER = 10


def context_of(view: View, kind: JobKind, obj: Json) -> Context | None:
    """What surrounds the job; None where the settings keep us out of its namespace or its kind is not enabled."""
    settings = view.configuration
    namespace = str((obj.get("metadata") or {}).get("namespace") or "")
    labels = namespace_labels(view, namespace)
    if kind.framework not in settings.integrations.frameworks or not selects(settings.managed_namespaces, labels):
        return None
    return Context(
        manages_without_queue_name=settings.manage_jobs_without_queue_name,
        has_default_queue=view.get(LocalQueue, Key(namespace, metadata.DEFAULT_NAME)) is not None,
        has_default_priority_class=settings.gates.enabled("WorkloadPriorityClassDefaulting")
        and view.get(WorkloadPriorityClass, Key("", metadata.DEFAULT_NAME)) is not None,
        owner_is_managed=has_managed_owner(view, obj, namespace),
        dispatching_queues=dispatching_queues(view, namespace),
    )


def namespace_labels(view: View, name: str) -> dict[str, str]:
    namespace = view.get(Namespace, Key("", name))
    return namespace.metadata.labels if namespace else {"kubernetes.io/metadata.name": name}


def has_managed_owner(view: View, obj: Json, namespace: str) -> bool:
    """Does a controller above it queue it already? Owners of kinds that we do not know end the walk."""
    for _ in range(HIGHEST_OWNER):
        owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
        owner = next((o for o in owners if o.get("controller")), None)
        kind = table.find(owner) if owner else None
        if owner is None or kind is None:
            return False
        above = view.find_json(kind.kind, Key(namespace, owner["name"]))
        if above is None or above["metadata"].get("uid") != owner.get("uid"):
            return False
        if kind.framework in view.configuration.integrations.frameworks and kind.queue_name(above):
            return True
        obj = above
    return False


def dispatching_queues(view: View, namespace: str) -> frozenset[str]:
    """LocalQueues whose ClusterQueue sends its jobs to other clusters."""
    remote = {
        check.metadata.name
        for check in view.list(AdmissionCheck)
        if check.spec.controller_name == MULTIKUEUE_CONTROLLER
    }
    if not remote:
        return frozenset()
    names = set()
    for queue in view.list(LocalQueue, namespace):
        cluster_queue = view.get(ClusterQueue, Key("", queue.spec.cluster_queue))
        strategy = cluster_queue.spec.admission_checks_strategy if cluster_queue else None
        if strategy and any(rule.name in remote for rule in strategy.admission_checks):
            names.add(queue.metadata.name)
    return frozenset(names)
