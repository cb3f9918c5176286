"""
Validation of scheduling: tolerations, node affinity, pod affinity and topology spread constraints.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, label_key, label_value, subdomain
from kyu.server.validation.checks import objections, one_of
from kyu.server.validation.metadata import validate_label_selector

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
OPERATORS: Final = ("Equal", "Exists")
# Operators of a feature that Kubernetes disables by default.
COMPARISONS: Final = ("Lt", "Gt")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
NODE_POLICIES: Final = ("Honor", "Ignore")
WEIGHT: Final = "must be in the range 1-100"
NOT_AN_OPERATOR: Final = "not a valid selector operator"
NO_SELECTOR: Final = "must not be specified when labelSelector is not set"


def placement_faults(spec: Json, path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    if affinity := spec.get("affinity"):
        yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
        for name in ("podAffinity", "podAntiAffinity"):
            yield from _pod_affinity(affinity.get(name) or {}, f"{path}.affinity.{name}")
    if constraints := spec.get("topologySpreadConstraints"):
        yield from _spread(constraints, f"{path}.topologySpreadConstraints")


def _toleration(toleration: Json, path: str) -> Iterator[FieldError]:
    operator, value, effect = toleration.get("operator", "Equal"), toleration.get("value"), toleration.get("effect")
    if toleration.get("key"):
        yield from objections(f"{path}.key", toleration["key"], label_key)
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield fields.invalid(f"{path}.operator", operator, detail)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield fields.invalid(
            f"{path}.effect", effect or "", "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )
    if operator not in OPERATORS:
        known = (*OPERATORS, *COMPARISONS) if operator in COMPARISONS else OPERATORS
        yield fields.not_supported(f"{path}.operator", operator, known)
    elif operator == "Exists" and value:
        yield fields.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator == "Equal" and value:
        yield from objections(f"{path}.operator", value, label_value)
    if effect and effect not in EFFECTS:
        yield fields.not_supported(f"{path}.effect", effect, EFFECTS)


def _node_affinity(affinity: Json, path: str) -> Iterator[FieldError]:
    if affinity.get(REQUIRED) is not None:
        terms = affinity[REQUIRED].get("nodeSelectorTerms") or ()
        if not terms:
            here = f"{path}.{REQUIRED}.nodeSelectorTerms"
            yield fields.required(here, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _term(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{index}]")
    yield from _preferred(affinity, path, "preference", _term)


def _preferred(
    affinity: Json, path: str, name: str, check: Callable[[Json, str], Iterator[FieldError]]
) -> Iterator[FieldError]:
    """Check the preferred terms and their weights; ``check`` validates a term."""
    for index, preferred in enumerate(affinity.get(PREFERRED) or ()):
        here = f"{path}.{PREFERRED}[{index}]"
        if not 1 <= preferred.get("weight", 0) <= 100:
            yield fields.invalid(f"{here}.weight", preferred.get("weight", 0), WEIGHT)
        yield from check(preferred.get(name) or {}, f"{here}.{name}")


def _term(term: Json, path: str) -> Iterator[FieldError]:
    """Check a node selector term."""
    for index, rule in enumerate(term.get("matchExpressions") or ()):
        yield from _expression(rule, f"{path}.matchExpressions[{index}]")
    for index, rule in enumerate(term.get("matchFields") or ()):
        yield from _field(rule, f"{path}.matchFields[{index}]")


def _expression(rule: Json, path: str) -> Iterator[FieldError]:
    values: Sequence[str] = rule.get("values") or ()
    match rule.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                yield fields.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield fields.forbidden(f"{path}.values", detail)
        case "Gt" | "Lt":
            if len(values) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield fields.required(f"{path}.values", detail)
        case operator:
            yield fields.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    key = rule.get("key", "")
    yield from objections(f"{path}.key", key, label_key)
    for index, value in enumerate(values):
        yield from objections(f"{path}.values[{index}]", value, label_value)


def _field(rule: Json, path: str) -> Iterator[FieldError]:
    """Check a requirement on a field. The only field of nodes is their name, which has one value."""
    values: Sequence[str] = rule.get("values") or ()
    operator, key = rule.get("operator", ""), rule.get("key", "")
    if operator not in ("In", "NotIn"):
        yield fields.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield fields.required(f"{path}.values", detail)
    if key != "metadata.name":
        yield fields.invalid(f"{path}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from objections(f"{path}.values[{index}]", value, subdomain)


def _pod_affinity(affinity: Json, path: str) -> Iterator[FieldError]:
    for index, term in enumerate(affinity.get(REQUIRED) or ()):
        yield from _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    yield from _preferred(affinity, path, "podAffinityTerm", _pod_term)


def _pod_term(term: Json, path: str) -> Iterator[FieldError]:
    yield from validate_label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    yield from validate_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        yield from objections(f"{path}.namespace", name, label)
    if (term.get("matchLabelKeys") or term.get("mismatchLabelKeys")) and term.get("labelSelector") is None:
        yield fields.forbidden(f"{path}.matchLabelKeys", NO_SELECTOR)
    key = term.get("topologyKey", "")
    if not key:
        yield fields.required(f"{path}.topologyKey", "can not be empty")
    yield from objections(f"{path}.topologyKey", key, label_key)


def _spread(constraints: Sequence[Json], path: str) -> Iterator[FieldError]:
    pairs = [(each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")) for each in constraints]
    for index, constraint in enumerate(constraints):
        yield from _constraint(constraint, f"{path}[{index}]")
        # Kubernetes reports the first of two equal constraints.
        if pairs[index] in pairs[index + 1 :]:
            shown = "{" + ", ".join(pairs[index]) + "}"
            yield fields.duplicate(f"{path}[{index}].{{topologyKey, whenUnsatisfiable}}", shown)


def _constraint(constraint: Json, path: str) -> Iterator[FieldError]:
    skew, domains = constraint.get("maxSkew", 0), constraint.get("minDomains")
    when = constraint.get("whenUnsatisfiable", "")
    if skew <= 0:
        yield fields.invalid(f"{path}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield fields.required(f"{path}.topologyKey", "can not be empty")
    if when not in WHEN_UNSATISFIABLE:
        yield fields.not_supported(f"{path}.whenUnsatisfiable", when, WHEN_UNSATISFIABLE)
    if domains is not None and domains <= 0:
        yield fields.invalid(f"{path}.minDomains", domains, "must be greater than zero")
    elif domains is not None and when != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        yield fields.invalid(f"{path}.minDomains", domains, detail)
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        yield from one_of(f"{path}.{name}", constraint.get(name), NODE_POLICIES)
    if constraint.get("matchLabelKeys") and constraint.get("labelSelector") is None:
        yield fields.forbidden(f"{path}.matchLabelKeys", NO_SELECTOR)
    yield from validate_label_selector(constraint.get("labelSelector"), f"{path}.labelSelector")
