"""
Requirements on labels, as label selectors, node selectors and ``?labelSelector=`` have them; the annotations of tasks.

Kubernetes: apimachinery/pkg/labels, component-helpers/scheduling/corev1/nodeaffinity
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

# Annotations of tasks of an array: the index of Kubernetes counts from 0 without gaps, the task is the user's number.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
TASK = "kyu.dev/task"


class LabelRequirement(Protocol):
    """A key, an operator and values: ``tier In (web, db)``."""

    @property
    def key(self) -> str: ...

    @property
    def operator(self) -> str: ...

    @property
    def values(self) -> Collection[str]: ...


def holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet a requirement. NotIn holds without the label; an unknown operator never holds."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(value, requirement)
        case _:
            return False


def _compares(value: str, requirement: LabelRequirement) -> bool:
    """Compare integers. Any other label or value does not match."""
    if len(requirement.values) != 1:
        return False
    try:
        label, bound = int(value), int(next(iter(requirement.values)))
    except ValueError:
        return False
    return label > bound if requirement.operator == "Gt" else label < bound


def task_number(annotations: Mapping[str, str]) -> str:
    """Return the user's number of a pod's task, or an empty text for a pod that is no task."""
    return annotations.get(TASK) or annotations.get(COMPLETION_INDEX) or ""
