"""
Flux MiniCluster: an HPC cluster made of pods, which runs one command.

It is one Indexed Job of its own name, with the labels of ``jobLabels``, so the Job is what is queued. Rank 0 runs the
command, the others wait for it, and its success ends the Job. The status tells when the Job waits in its queue.

Flux operator: v1alpha2, and the older v1alpha1.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kyu.api.errors import FieldError, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata
from kyu.kinds.conditions import Mark
from kyu.kinds.job import JOB, BatchJob
from kyu.kinds.kind import Context, Finished, Slot
from kyu.kinds.pods import owner_reference
from kyu.kinds.through_jobs import ThroughJobs

DEFAULT_BACKOFF_LIMIT = 100
DEFAULT_DEADLINE_SECONDS = 31_500_000
# The command of the pods beside the lead broker: wait until the Job is over.
FOLLOW = "exec sleep 2147483647"


class MiniCluster(ThroughJobs):
    kinds = (
        Kind("flux-framework.org", "v1alpha2", "MiniCluster", "miniclusters"),
        Kind("flux-framework.org", "v1alpha1", "MiniCluster", "miniclusters"),
    )
    job_labels = ("spec", "jobLabels")

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", ("spec", "pod"), size(obj))]

    def template(self, obj: Json, slot: Slot) -> Json:
        return make_template(obj)

    def is_suspended(self, obj: Json) -> bool:
        # It has no such field: its Job is held instead.
        return False

    def is_active(self, obj: Json) -> bool:
        return conditions.is_true(obj, "JobRunning")

    def pods_ready(self, obj: Json) -> bool:
        return conditions.is_true(obj, "JobMiniClusterReady")

    def finished(self, obj: Json) -> Finished | None:
        if not conditions.is_true(obj, "JobFinished"):
            return None
        found = conditions.find(obj, "JobFinished") or {}
        return Finished(found.get("reason") != "JobFailed", conditions.message(obj, "JobFinished"))

    def validate(self, obj: Json, old: Json | None, context: Context) -> list[FieldError]:
        least = fields.int_at(obj, ("spec", "minSize"), size(obj)) or size(obj)
        most = fields.int_at(obj, ("spec", "maxSize"), size(obj)) or size(obj)
        errors = []
        if not 1 <= least <= size(obj) <= most:
            errors.append(invalid("spec.size", size(obj), f"must be between minSize {least} and maxSize {most}"))
        if not fields.list_at(obj, ("spec", "containers")):
            errors.append(invalid("spec.containers", [], "at least one container is needed"))
        return errors

    def children_of(self, obj: Json) -> list[Json]:
        if self.finished(obj) is not None:
            return []
        spec: Json = {
            "completionMode": "Indexed",
            "completions": size(obj),
            "parallelism": size(obj),
            "backoffLimit": fields.int_at(obj, ("spec", "backoffLimit")) or DEFAULT_BACKOFF_LIMIT,
            "activeDeadlineSeconds": fields.int_at(obj, ("spec", "deadlineSeconds")) or DEFAULT_DEADLINE_SECONDS,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "template": make_template(obj),
        }
        return [
            {
                "apiVersion": JOB.api_version,
                "kind": JOB.kind,
                "metadata": {
                    "name": metadata.name_of(obj),
                    "namespace": fields.text_at(obj, ("metadata", "namespace")),
                    "labels": fields.json_at(obj, self.job_labels),
                    "ownerReferences": [owner_reference(obj)],
                },
                "spec": spec,
            }
        ]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        """Return the state of its Job in the words of the Flux operator. A held Job waits in its queue."""
        status: Json = {
            "size": size(obj),
            "maximumSize": fields.int_at(obj, ("spec", "maxSize")) or size(obj),
            "jobid": metadata.name_of(obj),
            "selector": f"hpa-selector={metadata.name_of(obj)}",
        }
        present = fields.list_at(obj, ("status", "conditions"))
        marks = marks_of(next(iter(parts), None))
        return {**status, "conditions": conditions.with_marks(present, marks, now)}


def marks_of(child: Json | None) -> list[Mark]:
    made = Mark("JobRequested", "True", "JobCreated", "The Job is made")
    if child is None:
        return [made]
    kind = BatchJob()
    end = kind.finished(child)
    if kind.is_suspended(child) and end is None:
        queue = metadata.queue_name(child)
        why = f"The Job waits in queue {queue}" if queue else "The Job is suspended"
        waits = Mark("JobWaitingForResources", "True", "Queued", why)
        return [made, *(Mark(type_, "False", "Queued", why) for type_ in ("JobRunning", "JobMiniClusterReady")), waits]
    marks = [made, Mark("JobWaitingForResources", "False", "Admitted", "The Job was admitted")]
    if end is not None:
        reason = "JobFinished" if end.success else "JobFailed"
        over = Mark("JobFinished", "True", reason, end.message)
        return [*marks, Mark("JobRunning", "False", reason, end.message), over]
    if kind.pods_ready(child):
        marks.append(Mark("JobMiniClusterReady", "True", "PodsReady", "All pods are ready"))
    if kind.is_active(child):
        marks.append(Mark("JobRunning", "True", "JobRunning", "The Job runs"))
    return marks


def size(obj: Json) -> int:
    return fields.int_at(obj, ("spec", "size"), 1) or 1


def make_template(obj: Json) -> Json:
    name = metadata.name_of(obj)
    own = fields.json_at(obj, ("spec", "pod"))
    passed = ("nodeSelector", "tolerations", "serviceAccountName", "schedulerName", "runtimeClassName", "dnsPolicy")
    spec: Json = {key: own[key] for key in (*passed, "securityContext") if own.get(key)}
    listed = fields.list_at(obj, ("spec", "containers"))
    spec["containers"] = [make_container(obj, c, position) for position, c in enumerate(listed)]
    spec["restartPolicy"] = own.get("restartPolicy") or "OnFailure"
    spec["subdomain"] = fields.text_at(obj, ("spec", "network", "headlessName")) or name
    spec["setHostnameAsFQDN"] = False
    if overhead := fields.json_at(own, ("resources",)):
        spec["overhead"] = overhead
    labels = {**fields.json_at(own, ("labels",)), "app.kubernetes.io/name": name, "hpa-selector": name}
    meta: Json = {"labels": labels}
    if annotations := fields.json_at(own, ("annotations",)):
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec}


def make_container(obj: Json, container: Json, position: int) -> Json:
    """Return a container of the pods. Flux runs its command at rank 0 only, a sidecar at every rank."""
    runs_flux = container.get("runFlux") is True or len(fields.list_at(obj, ("spec", "containers"))) == 1
    made: Json = {"name": container.get("name") or f"{metadata.name_of(obj)}-{position}"}
    made |= {key: container[key] for key in ("image", "workingDir", "resources") if container.get(key)}
    environment = fields.json_at(container, ("environment",))
    if environment:
        made["env"] = [{"name": key, "value": str(value)} for key, value in environment.items()]
    ports = container.get("ports")
    if isinstance(ports, list) and ports:
        made["ports"] = [{"containerPort": int(port), "protocol": "TCP"} for port in ports]
    command = fields.text_at(container, ("command",))
    if command:
        script = lead_script(container, command) if runs_flux else command
        made["command"] = ["/bin/sh", "-c", script]
    return made


def lead_script(container: Json, command: str) -> str:
    before = fields.text_at(container, ("commands", "pre")) or fields.text_at(container, ("preCommand",))
    after = fields.text_at(container, ("commands", "post"))
    lines = ['if [ "${JOB_COMPLETION_INDEX:-0}" != 0 ]; then', f"  {FOLLOW}", "fi"]
    lines += [line for line in (before,) if line]
    if not after:
        return "\n".join([*lines, command])
    return "\n".join([*lines, command, "code=$?", after, "exit $code"])
