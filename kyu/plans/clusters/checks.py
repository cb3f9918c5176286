"""
The state of MultiKueue: whether each cluster is connected, whether a check has a usable cluster, and what to delete
in clusters.

Kueue: pkg/controller/admissionchecks/multikueue/multikueuecluster.go, admissioncheck.go
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.actions import Action, View, WakeAt
from kyu.api.kueue import MULTIKUEUE_CONTROLLER, AdmissionCheck, MultiKueueCluster, Workload
from kyu.api.meta import Key, is_true
from kyu.kinds import metadata
from kyu.plans.clusters import workers as clusters
from kyu.plans.clusters.dispatch import config_of
from kyu.plans.clusters.workers import Workers
from kyu.plans.status import StatusEdit


def plan_cluster(workers: Workers, view: View, key: Key, now: datetime) -> list[Action]:
    """Set the condition Active of a MultiKueueCluster."""
    raw, worker = view.find_json(MultiKueueCluster.KIND, key), workers().get(key.name)
    if raw is None or worker is None:
        return []
    edit = StatusEdit(raw, now)
    edit.set_condition("Active", "True" if worker.is_connected else "False", worker.reason, worker.message)
    patch = edit.patch(MultiKueueCluster.KIND)
    return [patch] if patch else []


def plan_check(view: View, key: Key, now: datetime) -> list[Action]:
    """Set the condition Active of an AdmissionCheck: whether one of its clusters can be used."""
    check, raw = view.get(AdmissionCheck, key), view.find_json(AdmissionCheck.KIND, key)
    if check is None or raw is None or check.spec.controller_name != MULTIKUEUE_CONTROLLER:
        return []
    edit = StatusEdit(raw, now)
    config = config_of(view, key.name)
    if not view.configuration.gates.enabled("MultiKueue"):
        edit.set_condition("Active", "False", "BadConfig", "The feature gate MultiKueue is off")
    elif config is None:
        edit.set_condition("Active", "False", "BadConfig", "Its MultiKueueConfig is not there")
    else:
        tell_usable(view, edit, config.clusters)
    patch = edit.patch(AdmissionCheck.KIND)
    return [patch] if patch else []


def tell_usable(view: View, edit: StatusEdit, names: tuple[str, ...]) -> None:
    found = {name: view.get(MultiKueueCluster, Key("", name)) for name in names}
    missing = [name for name, cluster in found.items() if cluster is None]
    inactive = [name for name, one in found.items() if one is not None and not is_true(one.status.conditions, "Active")]
    lacking = [
        f"{word}: {', '.join(listed)}" for word, listed in (("Missing", missing), ("Inactive", inactive)) if listed
    ]
    if not lacking:
        edit.set_condition("Active", "True", "Active", "The admission check is active")
    elif len(missing) + len(inactive) < len(names):
        edit.set_condition("Active", "True", "SomeActiveClusters", "; ".join(lacking))
    else:
        edit.set_condition("Active", "False", "NoUsableClusters", "; ".join(lacking))


def plan_garbage(workers: Workers, view: View, key: Key, now: datetime) -> list[Action]:
    """Delete the copies in a MultiKueueCluster that are not needed any more."""
    settings, worker = view.configuration.multi_kueue, workers().get(key.name)
    if worker is None or not worker.is_connected or not settings.gc_interval:
        return []

    def is_wanted(workload: Key) -> bool:
        found = view.find_json(Workload.KIND, workload)
        return found is not None and not metadata.is_deleted(found)

    return [*clusters.garbage(worker, is_wanted, settings.origin), WakeAt(now + settings.gc_interval)]
