"""Checks of a running system: quota that nothing uses, finalizers that nothing removes, conditions that contradict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from kyu.doctor.world import DoctorFinding, FoundObject, World, items, section, texts
from kyu.kinds import table

Findings = Iterator[DoctorFinding]
# An object that is still being deleted after so long is stuck.
STUCK_AFTER = timedelta(minutes=10)
KUEUE = "kueue.x-k8s.io/"


def is_true(placed: FoundObject, condition: str) -> bool:
    """Return whether a condition of an object is True."""
    conditions = items(section(placed.object, "status"), "conditions")
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


def find_stuck_finalizers(world: World, now: datetime) -> Findings:
    """Find objects that were deleted long ago, and that a finalizer of a queue keeps."""
    for placed in world.objects:
        metadata = section(placed.object, "metadata")
        since = metadata.get("deletionTimestamp")
        held = [name for name in texts(metadata, "finalizers") if name.startswith(KUEUE)]
        if not held or not isinstance(since, str):
            continue
        if now - datetime.fromisoformat(since) > STUCK_AFTER:
            yield placed.error(
                "finalizer-stuck", f"deleted at {since}, but the finalizer {held[0]} keeps it",
                "its name cannot be used again, and its quota may stay taken",
                "check that the controller runs; if the object is not in use, remove the finalizer with a patch",
            )  # fmt: skip


def find_leaked_quota(world: World, now: datetime) -> Findings:
    """Find Workloads that hold quota although their job is gone, finished, or evicted and stopped."""
    uids = {section(p.object, "metadata").get("uid") for p in world.objects}
    kinds = {str(placed.object.get("kind")) for placed in world.objects if table.find(placed.object)}
    for placed in world.all("Workload"):
        if not is_true(placed, "QuotaReserved") or is_true(placed, "Finished"):
            continue
        owners = items(section(placed.object, "metadata"), "ownerReferences")
        gone = [owner for owner in owners if owner.get("kind") in kinds and owner.get("uid") not in uids]
        if owners and len(gone) == len(owners):
            yield placed.error(
                "quota-held-by-nothing", f"it holds quota, but its {gone[0].get('kind')} {gone[0].get('name')} is gone",
                "the quota is lost until the Workload is deleted", f"`kubectl delete workload {placed.name}` frees it",
            )  # fmt: skip
        if is_true(placed, "Admitted") and is_true(placed, "Evicted"):
            yield placed.warning(
                "conditions-contradict", "it is Admitted and Evicted at once",
                "its job may have stopped while its quota stays reserved",
                "if it lasts, set spec.active to false and to true again",
            )  # fmt: skip


CHECKS = (find_stuck_finalizers, find_leaked_quota)
