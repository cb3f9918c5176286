"""
Pods made from a job in embedded mode, and what they say about it.

Where no operator runs, Kyu makes the pods of a job itself: each is a ``Blueprint`` with a fixed name, so that the same
pod is never made twice and a pod tells by its name which part of the job it is. What the pods do then decides the job
by one of three rules: all succeed, one role decides, or it never finishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from kyu.api.meta import Json
from kyu.kinds import conditions, fields, metadata

# The node ends all processes of a pod at the end of its grace period. A pod that stays longer than this is stuck.
STUCK_AFTER_SECONDS = 60

# How a pod of a job is reached by the others, from its host name and its subdomain.
Address: TypeAlias = Callable[[str, str], str]


def dns_address(hostname: str, subdomain: str) -> str:
    """Return the DNS name that a pod with a subdomain has in a cluster."""
    return f"{hostname}.{subdomain}" if subdomain else hostname


def loopback_address(hostname: str, subdomain: str) -> str:
    """Return the address of all pods of one machine, since they share its network."""
    return "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One pod of a job: which role it plays, and what is added to the template of that role."""

    name: str
    role: str
    index: int
    template: Json
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""

    def to_pod(self, owner: Json) -> Json:
        """Return the Pod, owned by the object it was made from. Variables of the user stay."""
        meta = self.template.get("metadata") or {}
        spec = dict(self.template.get("spec") or {})
        for key in ("initContainers", "containers"):
            if key in spec:
                spec[key] = [with_env(container, self.env) for container in spec[key]]
        if self.hostname:
            spec.setdefault("hostname", self.hostname)
        if self.subdomain:
            spec.setdefault("subdomain", self.subdomain)
        body: Json = {
            "name": self.name,
            "namespace": fields.text_at(owner, ("metadata", "namespace")),
            "labels": {**(meta.get("labels") or {}), **self.labels},
            "annotations": {**(meta.get("annotations") or {}), **self.annotations},
            "ownerReferences": [owner_reference(owner)],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": body, "spec": spec}


def with_env(container: Json, env: Mapping[str, str]) -> Json:
    present = container.get("env") or []
    names = {item.get("name") for item in present}
    # Ours first: a user's variable may then refer to them as $(NAME).
    added = [{"name": name, "value": value} for name, value in env.items() if name not in names]
    return {**container, "env": added + present} if added else container


def owner_reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata.name_of(owner),
        "uid": metadata.uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def phase(pod: Json) -> str:
    return fields.text_at(pod, ("status", "phase"))


def is_terminal(pod: Json) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def any_left(pods: Iterable[Json]) -> bool:
    """Return whether some of the pods still run, or may."""
    return any(not is_terminal(pod) for pod in pods)


def holds_quota(pod: Json, now: datetime) -> bool:
    """Return whether processes of the pod run, or may still start.

    A deleted pod holds its quota until its node has ended its processes and the object is gone. A pod that is still
    there a while after the end of its grace period is stuck: its node is gone or broken.
    """
    if is_terminal(pod):
        return False
    deleted = fields.text_at(pod, ("metadata", "deletionTimestamp"))
    if not deleted:
        return True
    if not fields.text_at(pod, ("spec", "nodeName")):
        return False
    return now < conditions.add_seconds(conditions.parse_timestamp(deleted), STUCK_AFTER_SECONDS)


def is_stuck(pod: Json, now: datetime) -> bool:
    """Return whether the pod should be gone: it is bound, not over, and its grace period ended a while ago."""
    return not is_terminal(pod) and not holds_quota(pod, now) and bool(fields.text_at(pod, ("spec", "nodeName")))


def is_ready(pod: Json) -> bool:
    conditions = fields.list_at(pod, ("status", "conditions"))
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def deletion_order(pod: Json) -> tuple[bool, bool, str]:
    """Return the sort key for deleting surplus pods: unbound before bound, not ready before ready, then by name."""
    return (bool(fields.text_at(pod, ("spec", "nodeName"))), is_ready(pod), metadata.name_of(pod))


def exit_code(pod: Json) -> int | None:
    """Return the exit code of the first container that failed."""
    for status in fields.list_at(pod, ("status", "containerStatuses")):
        code = fields.int_at(status, ("state", "terminated", "exitCode"))
        if code:
            return code
    return None


def restarts(pods: Iterable[Json]) -> int:
    return sum(
        fields.int_at(status, ("restartCount",))
        for pod in pods
        for status in fields.list_at(pod, ("status", "containerStatuses"))
    )


@dataclass(frozen=True, slots=True)
class Completion:
    """
    When a job is over. With roles, the first of them that the job has decides; otherwise all pods must succeed.

    A failed pod of another role fails the job too, unless ``others_may_fail`` (an operator would replace it). Of the
    roles in ``by_first`` the success of the first pod is enough.
    """

    rule: Literal["AllPodsSucceed", "OneRoleDecides", "NeverFinishes"]
    roles: tuple[str, ...] = ()
    others_may_fail: bool = False
    by_first: tuple[str, ...] = ()


ALL_PODS_SUCCEED = Completion("AllPodsSucceed")
NEVER_FINISHES = Completion("NeverFinishes")


@dataclass(frozen=True, slots=True)
class PodsVerdict:
    """The state of a job by its pods."""

    state: Literal["Pending", "Running", "Succeeded", "Failed"]
    message: str = ""


def verdict(completion: Completion, blueprints: Sequence[Blueprint], pods: Sequence[Json]) -> PodsVerdict:
    """Judge a job by its pods. A pod that is not in the plan of the job says nothing."""
    pod_by_name = {metadata.name_of(pod): pod for pod in pods}
    present = {plan.role for plan in blueprints}
    decisive = next((role for role in completion.roles if role in present), None)
    if completion.rule != "NeverFinishes":
        failed = find_failure(completion, decisive, blueprints, pod_by_name)
        if failed is not None:
            code = exit_code(failed)
            why = f" with exit code {code}" if code is not None else ""
            return PodsVerdict("Failed", f"Pod {metadata.name_of(failed)} failed{why}")
        deciding = [plan for plan in blueprints if decisive is None or plan.role == decisive]
        who = "All pods" if decisive is None else f"All pods of role {decisive}"
        if decisive in completion.by_first:
            deciding, who = deciding[:1], f"Pod {deciding[0].name}"
        if deciding and all(phase(pod_by_name.get(plan.name, {})) == "Succeeded" for plan in deciding):
            return PodsVerdict("Succeeded", f"{who} succeeded")
    # Readiness of all, not of one: a gang that is half there does no work.
    planned = [pod_by_name.get(plan.name, {}) for plan in blueprints]
    if planned and all(is_ready(pod) or phase(pod) == "Succeeded" for pod in planned):
        return PodsVerdict("Running", f"All {len(planned)} pods are ready")
    return PodsVerdict("Pending")


def find_failure(
    completion: Completion, decisive: str | None, blueprints: Sequence[Blueprint], pod_by_name: Mapping[str, Json]
) -> Json | None:
    for plan in blueprints:
        counts = decisive is None or plan.role == decisive or not completion.others_may_fail
        if counts and phase(pod := pod_by_name.get(plan.name, {})) == "Failed":
            return pod
    return None


def role_counts(blueprints: Sequence[Blueprint], pods: Sequence[Json]) -> dict[str, Counter[str]]:
    """Return the number of pods of each role in each phase, and of ready ones under the key ``Ready``."""
    role_by_name = {plan.name: plan.role for plan in blueprints}
    counts: dict[str, Counter[str]] = {plan.role: Counter() for plan in blueprints}
    for pod in pods:
        role = role_by_name.get(metadata.name_of(pod))
        if role is None:
            continue
        counts[role][phase(pod) or "Pending"] += 1
        if is_ready(pod):
            counts[role]["Ready"] += 1
    return counts
