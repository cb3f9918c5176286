"""
Pod groups: plain pods that carry one group name are one job.

All is computed from the members that exist. The group has a Workload of its own name once enough members are there, one
pod set per role (pods of one shape). A member that failed may be replaced by a new one of its role; the group is over
when enough members succeeded, or when one says that the group is not to be retried and none runs any more.

Kueue: keps/976-plain-pods
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kyu.api.meta import Json
from kyu.kinds import fields, metadata, pods, requests, templates
from kyu.kinds import pod as plain
from kyu.kinds.kind import Finished
from kyu.kinds.templates import PodSetTemplate
from kyu.kinds.validation import positive


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The group cannot be queued yet, or not as it is."""

    message: str

    def __str__(self) -> str:
        return self.message


def name(pod: Json) -> str:
    return metadata.identifier(pod, metadata.POD_GROUP_NAME)


def total_count(pod: Json) -> int:
    return positive(metadata.annotations_of(pod).get(metadata.POD_GROUP_TOTAL_COUNT, "")) or 1


def role(pod: Json) -> str:
    return metadata.annotations_of(pod).get(metadata.ROLE_HASH) or plain.role_hash(pod)


def is_fast(members: Sequence[Json]) -> bool:
    return any(metadata.annotations_of(pod).get(metadata.POD_GROUP_FAST_ADMISSION) == "true" for pod in members)


def is_serving(members: Sequence[Json]) -> bool:
    return any(metadata.annotations_of(pod).get(metadata.POD_GROUP_SERVING) == "true" for pod in members)


def is_retriable(members: Sequence[Json]) -> bool:
    return all(metadata.annotations_of(pod).get(metadata.RETRIABLE_IN_GROUP) != "false" for pod in members)


def is_gated(pod: Json) -> bool:
    return templates.has_gate(pod, metadata.ADMISSION_GATE)


def runnable(members: Sequence[Json]) -> list[Json]:
    """Return the members that may still run, or have succeeded."""
    return [
        pod
        for pod in members
        if pods.phase(pod) == "Succeeded" or (not metadata.is_deleted(pod) and pods.phase(pod) != "Failed")
    ]


def pod_sets(members: Sequence[Json]) -> list[PodSetTemplate] | Incomplete:
    """Return the pod sets of the group's Workload, ordered by role, or why there are none."""
    if not members:
        return Incomplete("the group has no pods")
    candidates = runnable(members)
    first = min(candidates or members, key=age)
    total = total_count(first)
    if problem := disagreement(members, first):
        return problem
    if is_fast(members) and candidates:
        return [pod_set(first, total)]
    if len(candidates) < total:
        return Incomplete(f"'{name(first)}' group has fewer runnable pods than expected")
    kept = sorted(candidates, key=keep_order)[:total]
    count_by_role = Counter(role(pod) for pod in kept)
    example_by_role = {role(pod): pod for pod in sorted(kept, key=age, reverse=True)}
    return [pod_set(example_by_role[r], count_by_role[r]) for r in sorted(count_by_role)]


def pod_set(pod: Json, count: int) -> PodSetTemplate:
    template = plain.template(pod)
    return PodSetTemplate(role(pod), template, count, None, templates.topology_request(template, plain.ranks(pod)))


def disagreement(members: Sequence[Json], first: Json) -> Incomplete | None:
    for pod in members:
        pair = f"pods '{metadata.name_of(first)}' and '{metadata.name_of(pod)}' has different"
        queues = metadata.queue_name(first), metadata.queue_name(pod)
        if queues[0] != queues[1]:
            return Incomplete(f"{pair} queue names: {queues[0]}!={queues[1]}")
        totals = total_count(first), total_count(pod)
        if totals[0] != totals[1]:
            return Incomplete(f"{pair} '{metadata.POD_GROUP_TOTAL_COUNT}' values: {totals[0]}!={totals[1]}")
    return None


def age(pod: Json) -> tuple[str, str]:
    """Return the sort key of age. The name decides between pods of one second."""
    return fields.text_at(pod, ("metadata", "creationTimestamp")), metadata.name_of(pod)


def keep_order(pod: Json) -> tuple[bool, tuple[str, str]]:
    """Return the sort key of importance: started pods before gated ones, older before newer."""
    return is_gated(pod), age(pod)


def pod_set_of(pod: Json, names: Sequence[str], *, fast: bool) -> str | None:
    """Return the pod set that counts the pod: that of its role. A fast group has one pod set for all its pods."""
    own = role(pod)
    if own in names:
        return own
    return names[0] if fast and names else None


def excess_pods(members: Sequence[Json], pod_sets: Sequence[PodSetTemplate]) -> list[str]:
    """Return the members that the Workload has no quota for: too many of a pod set, or larger than its template."""
    names, fast = [pod_set.name for pod_set in pod_sets], is_fast(members)
    excess = []
    for one in pod_sets:
        same = [pod for pod in runnable(members) if pod_set_of(pod, names, fast=fast) == one.name]
        larger = [pod for pod in same if is_gated(pod) and not requests.fits_into(pod, one.template)]
        kept = sorted((pod for pod in same if pod not in larger), key=keep_order)
        excess += [metadata.name_of(pod) for pod in (*larger, *kept[one.count :])]
    return excess


def replaced_pods(members: Sequence[Json], pod_sets: Sequence[PodSetTemplate]) -> list[Json]:
    """Return the failed members that others have replaced. The last that failed are kept, as many as are missing."""
    names, fast = [pod_set.name for pod_set in pod_sets], is_fast(members)
    active = {metadata.name_of(pod) for pod in runnable(members)}
    replaced: list[Json] = []
    for one in pod_sets:
        same = [pod for pod in members if pod_set_of(pod, names, fast=fast) == one.name]
        failed = sorted((pod for pod in same if metadata.name_of(pod) not in active), key=age)
        replaced += failed[: max(0, len(same) - one.count)]
    return replaced


def is_suspended(members: Sequence[Json]) -> bool:
    return any(is_gated(pod) for pod in members if not pods.is_terminal(pod))


def is_active(members: Sequence[Json], now: datetime) -> bool:
    return any(pods.holds_quota(pod, now) and not is_gated(pod) for pod in members)


def pods_ready(members: Sequence[Json]) -> bool:
    if not members:
        return False
    good = [pod for pod in members if pods.is_ready(pod) or pods.phase(pod) == "Succeeded"]
    return len(good) >= total_count(members[0])


def reclaimable_pods(members: Sequence[Json]) -> dict[str, int]:
    """Return the number of succeeded members by role. Members of a serving group are replaced, so it has none."""
    if is_serving(members):
        return {}
    return dict(Counter(role(pod) for pod in members if pods.phase(pod) == "Succeeded"))


def missing_pods(members: Sequence[Json], wanted: dict[str, int]) -> dict[str, int]:
    """Return the number of members of each role that the group lacks."""
    present = Counter(role(pod) for pod in runnable(members))
    return {one_role: count - present[one_role] for one_role, count in wanted.items() if present[one_role] < count}


def finished(members: Sequence[Json]) -> Finished | None:
    if not members or is_serving(members):
        return None
    total = total_count(members[0])
    succeeded = sum(pods.phase(pod) == "Succeeded" for pod in members)
    message = f"Pods succeeded: {succeeded}/{total}."
    if succeeded >= total:
        return Finished(success=True, message=message)
    if not is_retriable(members) and not pods.any_left(members):
        return Finished(success=False, message=message)
    return None
