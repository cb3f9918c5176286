"""
A Flyte workflow whose map task is one gang in a Kueue queue. Needs `pip install flytekit`.

    python flyte_task.py        runs the workflow on this machine and prints what its pods would carry

Flyte gives a task's pod template to every pod of the task, so the labels go there: the queue, and the group that Kueue
admits as a whole. A group is one execution, so the template must be made for each: here when the script starts.
"""

from __future__ import annotations

import json

from flytekit import PodTemplate, map_task, task, workflow
from kubernetes.client import V1Container, V1Pod, V1PodSpec, V1ResourceRequirements

from kyu.workflows import plugin
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.task import Task

SIZE = 4


def queued_pod_template(execution_id: str) -> PodTemplate:
    """Return the pod template, with the labels that let Kueue admit all pods at once."""
    container = V1Container(name="primary", resources=V1ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"}))
    spec = V1PodSpec(containers=[container])
    pod = V1Pod(api_version="v1", kind="Pod", spec=spec)
    submission = Task("organization1", execution_id, project="flytesnacks", domain="development", array_size=SIZE)
    result = plugin.render(plugin.load(QueueConfig("kueue")), submission, pod)
    if isinstance(result, plugin.NotRendered):
        raise SystemExit(str(result))
    metadata = result.object["metadata"]
    return PodTemplate(pod_spec=spec, labels=metadata["labels"], annotations=metadata["annotations"])


TEMPLATE = queued_pod_template("squares-2026-01-01")


@task(pod_template=TEMPLATE)
def square(number: int) -> int:
    return number * number


@workflow
def squares(numbers: list[int]) -> list[int]:
    return map_task(square)(number=numbers)


if __name__ == "__main__":
    print(json.dumps({"labels": TEMPLATE.labels, "annotations": TEMPLATE.annotations}, indent=2))
    print(squares(numbers=list(range(SIZE))))
