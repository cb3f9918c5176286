"""
Deployments, StatefulSets, DaemonSets, ReplicaSets and ControllerRevisions: defaults and validation.

Kubernetes: pkg/apis/apps/v1/defaults.go, pkg/apis/apps/validation
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label
from kyu.server.builtin.limits import share_faults
from kyu.server.builtin.pods.pods import default_template
from kyu.server.builtin.pods.rules import validate_template
from kyu.server.builtin.pods.volumes import claim_faults
from kyu.server.builtin.pods.warnings import template_warnings
from kyu.server.validation.checks import AT_LEAST_ZERO, at_least_zero, immutable, objections, one_of
from kyu.server.validation.metadata import selector_matches

HISTORY_LIMIT = 10
ALWAYS = ("Always",)
STRATEGIES = ("Recreate", "RollingUpdate")
POD_MANAGEMENT = ("OrderedReady", "Parallel")
RETENTIONS = ("Retain", "Delete")
# The mutable fields of a StatefulSet.
STATEFUL_SET_CHANGES = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
                        "persistentVolumeClaimRetentionPolicy", "minReadySeconds")  # fmt: skip
_template_warnings = template_warnings("spec.template")
# A deprecated annotation that counts the templates of a DaemonSet.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def default_deployment(deployment: Json) -> None:
    spec = _spec(deployment)
    spec.setdefault("replicas", 1)
    _default_strategy(spec, "strategy", maxUnavailable="25%", maxSurge="25%")
    spec.setdefault("revisionHistoryLimit", HISTORY_LIMIT)
    spec.setdefault("progressDeadlineSeconds", 600)


def default_stateful_set(stateful_set: Json) -> None:
    spec = _spec(stateful_set)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = _default_strategy(spec, "updateStrategy", partition=0)
    if strategy["type"] == "RollingUpdate":
        # Disabled by default in Kubernetes.
        strategy["rollingUpdate"].pop("maxUnavailable", None)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", HISTORY_LIMIT)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim.setdefault("status", {}).setdefault("phase", "Pending")


def default_daemon_set(daemon_set: Json) -> None:
    spec = _spec(daemon_set)
    if not daemon_set["metadata"].get("uid"):
        _count_template(daemon_set, 1)
    _default_strategy(spec, "updateStrategy", maxUnavailable=1, maxSurge=0)
    spec.setdefault("revisionHistoryLimit", HISTORY_LIMIT)


def prepare_daemon_set_update(new: Json, old: Json) -> None:
    before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
    changed = new["spec"].get("template") != old["spec"].get("template")
    _count_template(new, int(before) + changed)


def _count_template(daemon_set: Json, count: int) -> None:
    annotations = daemon_set["metadata"].get("annotations") or {}
    daemon_set["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(count)}


def default_replica_set(replica_set: Json) -> None:
    _spec(replica_set).setdefault("replicas", 1)


def _spec(obj: Json) -> Json:
    spec: Json = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    return spec


def _default_strategy(spec: Json, name: str, **bounds: int | str) -> Json:
    """Set the defaults of an update strategy; ``bounds`` are those of a rolling update."""
    strategy: Json = spec.setdefault(name, {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for field, bound in bounds.items():
            rolling.setdefault(field, bound)
    return strategy


def validate_workload(obj: Json) -> Iterator[FieldError]:
    """Check the fields of all four kinds: a selector that selects the template, and pods that restart always."""
    spec = obj.get("spec") or {}
    yield from at_least_zero("spec.", spec, "replicas")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    detail = "`selector` does not match template `labels`"
    mismatch = fields.invalid("spec.template.metadata.labels", labels or None, detail)
    if selector is None:
        yield fields.required("spec.selector")
        yield mismatch
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        detail = f"empty selector is invalid for {(obj.get('kind') or 'deployment').lower()}"
        yield fields.invalid("spec.selector", selector, detail)
    elif not selector_matches(selector, labels):
        yield mismatch
    yield from validate_template(template, "spec.template")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always":
        yield fields.not_supported("spec.template.spec.restartPolicy", policy, ALWAYS)


def validate_deployment(deployment: Json) -> Iterator[FieldError]:
    spec = deployment.get("spec") or {}
    yield from validate_workload(deployment)
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        yield fields.forbidden("spec.strategy.rollingUpdate", detail)
    elif strategy.get("type") not in STRATEGIES:
        yield fields.not_supported("spec.strategy", strategy, STRATEGIES)
    yield from _rolling_update_faults(strategy.get("rollingUpdate") or {}, "spec.strategy.rollingUpdate")
    yield from at_least_zero("spec.", spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    ready, deadline = spec.get("minReadySeconds", 0), spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= ready:
        yield fields.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def validate_stateful_set(stateful_set: Json) -> Iterator[FieldError]:
    spec = stateful_set.get("spec") or {}
    yield from validate_workload(stateful_set)
    yield from _stateful_policy_faults(spec)
    yield from at_least_zero("spec.", spec, "minReadySeconds")
    yield from at_least_zero("spec.ordinals.", spec.get("ordinals") or {}, "start")
    if service := spec.get("serviceName"):
        yield from objections("spec.serviceName", service, label)
    if ((spec.get("template") or {}).get("spec") or {}).get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in StatefulSet is not Supported"
        yield fields.forbidden("spec.template.spec.activeDeadlineSeconds", detail)
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_faults(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")


def _stateful_policy_faults(spec: Json) -> Iterator[FieldError]:
    if (policy := spec.get("podManagementPolicy")) not in POD_MANAGEMENT:
        yield fields.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "RollingUpdate":
            if rolling is not None and rolling.get("partition", 0) < 0:
                yield fields.invalid(f"{path}.rollingUpdate.partition", rolling["partition"], AT_LEAST_ZERO)
        case "OnDelete":
            if rolling is not None:
                detail = "only allowed for updateStrategy 'RollingUpdate'"
                yield fields.invalid(f"{path}.rollingUpdate", rolling, detail)
        case _:
            yield fields.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")
    for name, word in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        yield from one_of(f"spec.persistentVolumeClaimRetentionPolicy.{name}", word, RETENTIONS)


def stateful_set_warnings(new: Json, old: Json | None) -> Iterator[str]:
    yield from _template_warnings(new, old)
    if new["spec"].get("revisionHistoryLimit", 0) < 0:
        path = "spec.revisionHistoryLimit"
        yield f"{path}: a negative value retains all historical revisions; a value >= 0 is recommended"


def _rolling_update_faults(update: Json, path: str) -> Iterator[FieldError]:
    for name in ("maxUnavailable", "maxSurge"):
        if update.get(name) is not None:
            yield from share_faults(update[name], f"{path}.{name}", may_exceed_all=name == "maxSurge")
    nothing = (0, "0%")
    if update.get("maxSurge") in nothing and update.get("maxUnavailable") in nothing:
        detail = "may not be 0 when `maxSurge` is 0"
        yield fields.invalid(f"{path}.maxUnavailable", update["maxUnavailable"], detail)


def validate_controller_revision(revision: Json) -> Iterator[FieldError]:
    if revision.get("data") is None:
        yield fields.required("data", "data is mandatory")
    yield from at_least_zero("", revision, "revision")


def validate_deployment_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from validate_deployment(new)
    yield from immutable("spec.", new.get("spec") or {}, old.get("spec") or {}, "selector")


def validate_workload_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from validate_workload(new)
    yield from immutable("spec.", new.get("spec") or {}, old.get("spec") or {}, "selector")


def validate_stateful_set_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from validate_stateful_set(new)
    after, before = new.get("spec") or {}, old.get("spec") or {}
    if any(after.get(name) != before.get(name) for name in {*after, *before} - set(STATEFUL_SET_CHANGES)):
        *names, last = (f"'{name}'" for name in STATEFUL_SET_CHANGES)
        detail = f"updates to statefulset spec for fields other than {', '.join(names)} and {last} are forbidden"
        yield fields.forbidden("spec", detail)


def validate_controller_revision_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from immutable("", new, old, "data")
