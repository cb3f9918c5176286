"""The annotations of pods that are tasks of an array."""

from __future__ import annotations

from collections.abc import Mapping

# The index of Kubernetes counts from 0 without gaps. The number of the task is the user's.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
TASK = "kyu.dev/task"


def task_number(annotations: Mapping[str, str]) -> str:
    """Return the user's number of a pod's task, or an empty text for a pod that is no task."""
    return annotations.get(TASK) or annotations.get(COMPLETION_INDEX) or ""
