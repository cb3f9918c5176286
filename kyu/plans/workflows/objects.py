"""
The objects of a step: the Job of a command, the job of a template, or the Pods of a group.

Names are made from the uid of the Workflow, the step and its attempt, so the same attempt never has two objects. All of
them have a queue and begin suspended, also where no webhook suspends them. The Workflow owns them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kyu.api.meta import Json, Kind
from kyu.api.workflows import Workflow, WorkflowSpec, WorkflowStep
from kyu.kinds import fields, metadata, requests, table, templates
from kyu.kinds.job import JOB, BatchJob
from kyu.kinds.kind import JobKind
from kyu.kinds.pod import POD
from kyu.kinds.pods import owner_reference, with_env
from kyu.plans.job.webhook import pools_of, with_wish
from kyu.plans.workflows.values import NoValue, Values

WORKFLOW_LABEL = "kyu.dev/workflow"
STEP_LABEL = "kyu.dev/step"
# Names of pods and labels are made from the name of a job, so it is much shorter than 63 characters.
LONGEST_READABLE = 36
HASH_LENGTH = 8
# The parts of the metadata of a template that its object gets.
KEPT_METADATA = ("labels", "annotations")
DEFAULT_CPU = "1"
NOT_QUEUED = "is not queued here: the settings leave out this kind or this namespace"
TIME_TO_LIVE: fields.Path = ("spec", "ttlSecondsAfterFinished")


@dataclass(frozen=True, slots=True)
class StepRun:
    """One attempt of a step, or of one item of it. ``in_image``: commands run in an image, not on this machine."""

    workflow: Json
    spec: WorkflowSpec
    step: WorkflowStep
    name: str
    values: Values
    in_image: bool = False

    @property
    def kind(self) -> JobKind:
        return kind_of(self.step)

    @property
    def namespace(self) -> str:
        return str(self.workflow["metadata"]["namespace"])


def kind_of(step: WorkflowStep) -> JobKind:
    """Return the kind of the object of a step. The step is valid."""
    found = table.find(step.template) if step.template is not None else None
    return found or BatchJob()


def object_name(workflow: str, uid: str, entry: str, attempt: int) -> str:
    """Return the name of the object of an attempt: a readable part, and a hash of all that it is made from."""
    digest = hashlib.sha256(f"{uid}\n{entry}\n{attempt}".encode()).hexdigest()[:HASH_LENGTH]
    readable = f"{workflow}-{entry}".replace("[", "-").replace("]", "").replace(".", "-")[:LONGEST_READABLE]
    return f"{readable.rstrip('-')}-{digest}"


def member_names(step: WorkflowStep, name: str) -> list[str]:
    """Return the names of the objects of an attempt: one, or the Pods of a group."""
    return [f"{name}-{index}" for index in range(step.count or 1)] if kind_of(step).kind == POD else [name]


def queue_of(spec: WorkflowSpec, step: WorkflowStep) -> str:
    """Return the queue of a step: its own, that of its template, or that of the Workflow."""
    own = kind_of(step).queue_name(step.template) if step.template is not None else ""
    return step.queue or own or spec.queue


def make(run: StepRun) -> list[Json]:
    """Return the objects of an attempt. Raise NoValue if they cannot be made from the values of this attempt."""
    filled = from_command(run) if run.step.template is None else from_template(run)
    kind = run.kind
    for key, value in labels_of(run).items():
        filled = kind.with_label(filled, key, value)
    if pools_of(filled):
        raise NoValue("the step chooses a pool by hand, which only admission may do")
    filled = with_wish(filled, None)
    return members(run, filled) if kind.kind == POD else [started_by_queue(kind, filled)]


def started_by_queue(kind: JobKind, obj: Json) -> Json:
    """Return the object as its queue expects it: suspended, or a Pod with a gate."""
    return kind.with_suspend(obj, suspend=True) if kind.queued_as == "itself" else obj


def members(run: StepRun, filled: Json) -> list[Json]:
    """Return the Pods of a group. A member that fails ends the group, so that the step is tried again as a whole."""
    names = member_names(run.step, run.name)
    group = {
        metadata.POD_GROUP_TOTAL_COUNT: str(len(names)),
        metadata.RETRIABLE_IN_GROUP: "false",
        metadata.POD_GROUP_POD_INDEX_LABEL: STEP_LABEL + "-index",
    }
    found = []
    for index, name in enumerate(names):
        pod = fields.with_value(filled, ("metadata", "name"), name)
        pod = fields.with_value(pod, ("metadata", "labels", metadata.POD_GROUP_NAME), run.name)
        pod = fields.with_value(pod, ("metadata", "labels", STEP_LABEL + "-index"), str(index))
        pod = templates.with_annotations(pod, group)
        found.append(started_by_queue(run.kind, pod))
    return found


def labels_of(run: StepRun) -> dict[str, str]:
    """Return the labels that queueing reads."""
    labels = {metadata.QUEUE_NAME: queue_of(run.spec, run.step)}
    if priority := run.step.priority_class or run.spec.priority_class:
        labels[metadata.PRIORITY_CLASS] = priority
    if limit := run.step.maximum_execution_time_seconds:
        labels[metadata.MAX_EXEC_TIME_SECONDS] = str(limit)
    return labels


def own_metadata(run: StepRun, given: Json) -> Json:
    """Return the metadata of the object, with the labels and annotations of the template."""
    kept = {name: given[name] for name in KEPT_METADATA if given.get(name)}
    # A label has 63 characters at most, the name of a Workflow may have more.
    marks = {WORKFLOW_LABEL: metadata.name_of(run.workflow)[: metadata.MAX_LABEL_VALUE], STEP_LABEL: run.step.name}
    return {
        **kept,
        "name": run.name,
        "namespace": run.namespace,
        "labels": {**(kept.get("labels") or {}), **marks},
        "ownerReferences": [owner_reference({**typed(Workflow.KIND), **run.workflow})],
    }


def typed(kind: Kind) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def from_template(run: StepRun) -> Json:
    """Return the object of a template, with values in its texts. Its own time to live is left out."""
    assert run.step.template is not None
    kind = run.kind
    filled: Json = run.values.fill_all({name: run.step.template.get(name) or {} for name in ("metadata", "spec")})
    body = {**typed(kind.kind), "metadata": own_metadata(run, filled["metadata"]), "spec": filled["spec"]}
    path = TIME_TO_LIVE if kind.kind == JOB else kind.time_to_live_path
    if path is not None and fields.value_at(body, path) is not None:
        # The Workflow must see how the step ended. It deletes its objects itself.
        parent = {name: value for name, value in fields.json_at(body, path[:-1]).items() if name != path[-1]}
        body = fields.with_value(body, path[:-1], parent)
    return body


def from_command(run: StepRun) -> Json:
    """Return the Job of a command. A failed pod fails the Job: the Workflow counts the attempts."""
    step, count = run.step, run.step.count or 1
    spec: Json = {
        "backoffLimit": 0,
        "parallelism": count,
        "completions": count,
        "template": {
            "metadata": {"labels": {STEP_LABEL: step.name}},
            "spec": {"restartPolicy": "Never", "containers": [container(run)]},
        },
    }
    if count > 1:
        spec["completionMode"] = "Indexed"
    return {**typed(JOB), "metadata": own_metadata(run, {}), "spec": spec}


def container(run: StepRun) -> Json:
    step, values = run.step, run.values
    wanted = {"cpu": str(step.cpu or DEFAULT_CPU), **{name: str(amount) for name, amount in step.requests.items()}}
    if step.memory is not None:
        wanted["memory"] = str(step.memory)
    env = {name: values.fill(value) for name, value in {**run.spec.env, **step.env}.items()}
    made: Json = {
        "name": "main",
        "image": step.image or run.spec.image or templates.HOST_IMAGE,
        "command": [values.fill(word) for word in step.command],
        "resources": requests.with_limits(wanted),
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    if folder := step.working_dir or run.spec.working_dir:
        made["workingDir"] = values.fill(folder)
    return with_env(made, own_variables(run))


def own_variables(run: StepRun) -> dict[str, str]:
    found = {"KYU_WORKFLOW": run.values.workflow, "KYU_STEP": run.step.name}
    if run.in_image:
        # The node of embedded mode sets it itself.
        found["KYU_TERMINATION_LOG"] = "/dev/termination-log"
    if run.values.item is not None:
        found |= {"KYU_ITEM": run.values.item, "KYU_INDEX": str(run.values.index)}
    return found
