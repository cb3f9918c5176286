"""
The plugin for YuniKorn: the scheduler name, application and queue on every pod, and the task groups.

YuniKorn sees pods, not jobs. All pods with one application id are one application. Its task groups say how many pods of
which size must fit before one starts. For most kinds no operator computes these, so each role becomes a group.

YuniKorn: docs on labels and annotations, gang scheduling, user and group resolution.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from kyu.api.meta import Json
from kyu.api.quantity import Format, Quantity
from kyu.kinds import fields, metadata
from kyu.workflows import roles
from kyu.workflows.kueue import OBJECT_ANNOTATIONS, OBJECT_LABELS, on_object
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.settings import Refusal, Setting
from kyu.workflows.submission import Submission
from kyu.workflows.task import Task, queue_path, safe_name

PREFIX = "yunikorn.apache.org/"
APP_ID = PREFIX + "app-id"
QUEUE = PREFIX + "queue"
USER_INFO = PREFIX + "user.info"
TASK_GROUP_NAME = PREFIX + "task-group-name"
TASK_GROUPS = PREFIX + "task-groups"
PARAMETERS = PREFIX + "schedulingPolicyParameters"
ALLOW_PREEMPTION = PREFIX + "allow-preemption"
SCHEDULER_NAME = "yunikorn"
DEFAULT_QUEUE = "root.{organization}.{type}"

USER = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?", re.ASCII)
GROUP = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*", re.ASCII)
# Older label names, which YuniKorn reads only if the newer ones are missing.
SHADOWED_LABELS = {"applicationId": APP_ID, "spark-app-selector": APP_ID, "queue": QUEUE}
# Fields that a placeholder pod copies from its pod.
PLACEMENT = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


class YuniKornPlugin:
    name = "yunikorn"

    def __init__(self, config: QueueConfig) -> None:
        self.settings = lru_cache(config.settings)

    def set_scheduler_name(self, job: Submission) -> list[Setting] | Refusal:
        pods = job.roles
        if isinstance(pods, Refusal):
            return pods
        why = "YuniKorn places the pods that name it"
        return [Setting(role.spec, "schedulerName", SCHEDULER_NAME, why) for role in pods]

    def create_labels(self, job: Submission) -> list[Setting] | Refusal:
        pods = job.roles
        if isinstance(pods, Refusal):
            return pods
        queue = self.queue(job)
        if isinstance(queue, Refusal):
            return queue
        if problem := user_problem(job.task):
            return problem
        application, task = job.application_id, job.task
        settings = label_settings(application, queue, task, OBJECT_LABELS, OBJECT_ANNOTATIONS)
        for role in pods:
            # The labels of a single pod are those of the object.
            if role.labels != OBJECT_LABELS:
                settings += label_settings(application, queue, task, role.labels, role.annotations)
        return settings

    def create_group_labels(self, job: Submission) -> list[Setting] | Refusal:
        pods = job.roles
        if isinstance(pods, Refusal):
            return pods
        refused = REFUSED_OBJECTS.get(job.kind)
        if refused is not None and (refusal := refused(job.object)):
            return refusal
        copies = job.task.array_size if job.kind == "Pod" else 1
        gang = [role for role in pods if role.starts_with_the_others and role.count * copies > 0]
        if not gang:
            return Refusal("the job has no pods, so there is nothing to schedule", "give it at least one pod")
        groups: list[Json] = []
        for role in gang:
            group = task_group(role, role.count * copies)
            if isinstance(group, Refusal):
                return group
            groups.append(group)
        return self.gang_settings(job, gang, groups)

    def gang_settings(self, job: Submission, gang: list[roles.Role], groups: list[Json]) -> list[Setting]:
        own = self.settings(job.type)
        listed = msgspec.json.encode(groups).decode()
        pairs = [(TASK_GROUPS, listed, "how many pods of which size must fit before one starts")]
        if parameters := str(own.gang):
            pairs.append((PARAMETERS, parameters, "gangscheduling of this type of job"))
        if own.allow_preemption is not None:
            value = "true" if own.allow_preemption else "false"
            pairs.append((ALLOW_PREEMPTION, value, "allow-preemption of this type of job"))
        settings = []
        for role, group in zip(gang, groups, strict=True):
            place = role.annotations
            settings.append(Setting(place, TASK_GROUP_NAME, group["name"], "the task group of these pods"))
            settings += [Setting(place, key, value, why) for key, value, why in pairs]
        return settings

    def get_group_labels(self, job: Submission) -> tuple[dict[str, str], dict[str, str]]:
        return on_object([self.create_labels(job), self.create_group_labels(job)])

    def notes(self, job: Submission) -> list[str]:
        found = job.roles
        pods = [] if isinstance(found, Refusal) else found
        notes = [
            f"pods of {role.name} ask for no resources, so their placeholders hold no room"
            for role in pods
            if role.starts_with_the_others and not role.requests
        ]
        older = {key for role in pods for key in metadata.labels_of(role.template) if key in SHADOWED_LABELS}
        notes += [f"YuniKorn ignores the label {key} beside {SHADOWED_LABELS[key]}" for key in sorted(older)]
        if not job.task.user:
            notes.append("no user is given: YuniKorn uses the creator of the pods, often an operator")
        return notes

    def queue(self, job: Submission) -> str | Refusal:
        own = self.settings(job.type)
        path = queue_path(own.queue or DEFAULT_QUEUE, job.task, own.type)
        # Without root YuniKorn takes the dots for part of a name.
        return path if isinstance(path, Refusal) or path.startswith("root.") else f"root.{path}"


def label_settings(
    application: str, queue: str, task: Task, label_path: fields.Path, annotation_path: fields.Path
) -> list[Setting]:
    """Return the settings of the object and of every pod."""
    # A label holds 63 characters. YuniKorn reads the same key as an annotation, which has no such limit.
    queue_at = label_path if len(queue) <= metadata.MAX_LABEL_VALUE else annotation_path
    settings = [
        Setting(label_path, APP_ID, application, "one application per execution, the same over retries"),
        Setting(queue_at, QUEUE, queue, "the queue of this organisation and type of job"),
    ]
    if task.user:
        info = user_info(task.user, task.groups)
        settings.append(Setting(annotation_path, USER_INFO, info, "the submitter, for limits and access rules"))
    return settings


@lru_cache(maxsize=1024)
def user_info(user: str, groups: tuple[str, ...]) -> str:
    return msgspec.json.encode({"user": user, "groups": groups}).decode()


def user_problem(task: Task) -> Refusal | None:
    if task.user and not USER.fullmatch(task.user):
        return Refusal(f"YuniKorn does not accept the user name {task.user!r}", "map it to letters, digits and _.@-")
    wrong = next((group for group in task.groups if not GROUP.fullmatch(group)), None)
    if wrong is not None:
        return Refusal(f"YuniKorn does not accept the group {wrong!r}", "map it to letters, digits and _.:-")
    return None


def spark_refusal(obj: Json) -> Refusal | None:
    if fields.text_at(obj, ("spec", "batchScheduler")):
        return Refusal(
            "spec.batchScheduler makes the Spark operator write task groups of its own", "remove it from the object"
        )
    if fields.text_at(obj, ("spec", "mode")) == "client":
        return Refusal(
            "in client mode the driver is no pod, so its task group is never filled and the gang waits for ever",
            "use cluster mode",
        )
    return None


def ray_refusal(obj: Json) -> Refusal | None:
    if "ray.io/gang-scheduling-enabled" in metadata.labels_of(obj):
        return Refusal(
            "the label ray.io/gang-scheduling-enabled makes KubeRay write task groups of its own",
            "remove it from the object",
        )
    return None


# Operators that write task groups themselves would conflict with these.
REFUSED_OBJECTS: dict[str, Callable[[Json], Refusal | None]] = {
    "SparkApplication": spark_refusal,
    "RayCluster": ray_refusal,
    "RayJob": ray_refusal,
    "RayService": ray_refusal,
}


def task_group(role: roles.Role, count: int) -> Json | Refusal:
    """Return YuniKorn's task group: number and size of the pods, and constraints of their placement."""
    size = role.requests
    if problem := size_problem(role.name, size):
        return problem
    group: Json = {
        "name": safe_name(role.name),
        "minMember": count,
        "minResource": {name: text(size[name].nanos, size[name].format) for name in sorted(size)},
    }
    spec = role.template.get("spec") or {}
    for key in PLACEMENT:
        if wish := spec.get(key):
            group[key] = wish
    return group


@lru_cache(maxsize=4096)
def text(nanos: int, form: Format) -> str:
    return str(Quantity(nanos, form))


def size_problem(role: str, size: dict[str, Quantity]) -> Refusal | None:
    if "pods" in size:
        return Refusal(f"{role} requests the resource pods, which YuniKorn counts itself", "remove that request")
    if "cpu" in size and "vcore" in size:
        return Refusal(f"{role} requests both cpu and vcore, which are the same to YuniKorn", "keep cpu")
    negative = next((name for name, quantity in size.items() if quantity.nanos < 0), None)
    if negative is not None:
        return Refusal(f"{role} requests less than nothing of {negative}", "write a quantity of 0 or more")
    return None
