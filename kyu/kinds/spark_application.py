"""
SparkApplication: a driver, and executors that the driver asks for.

It has no pod templates but fields of its own, from which the pods' requests are computed as Spark does: cores, memory
and the memory beside the heap. The driver decides the end. In embedded mode the driver runs spark-submit with a local
master unless its template has a command; executor pods then only hold the share that was admitted for them.

Kueue: pkg/controller/jobs/sparkapplication. Spark operator: v1beta2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import ROUND_UP, Decimal, InvalidOperation

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods, templates
from kyu.kinds.kind import Finished, JobKind, Slot
from kyu.kinds.pods import Blueprint, Completion
from kyu.kinds.templates import Conflict, PodSet, PodSetInfo

DRIVER, EXECUTOR = "driver", "executor"
CONTAINER = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
HOLD_SHARE = ["/bin/sh", "-c", "exec sleep 2147483647"]
MIN_OVERHEAD_MIB = 384
# Of the heap: what a JVM needs beside it, and what an interpreter beside the JVM needs.
JVM_OVERHEAD, OTHER_OVERHEAD = Decimal("0.1"), Decimal("0.4")
UNIT_KIB = {"": Decimal(1) / 1024, "k": Decimal(1), "m": Decimal(1024), "g": Decimal(1024**2), "t": Decimal(1024**3)}
DEFAULT_MEMORY = "1g"
FINAL = ("COMPLETED", "FAILED", "SUBMISSION_FAILED")


class SparkApplication(JobKind):
    kinds = (Kind("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),)
    framework = "sparkoperator.k8s.io/sparkapplication"
    completion = Completion("OneRoleDecides", (DRIVER,), others_may_fail=True)
    managed_by_path = None
    may_be_prebuilt = False

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot(DRIVER, ("spec", DRIVER), 1), Slot(EXECUTOR, ("spec", EXECUTOR), executors(obj))]

    def template(self, obj: Json, slot: Slot) -> Json:
        return pod_template(obj, slot.name)

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | Conflict:
        """The fields of a role are merged as if they were a template; gates go to the template that it may have."""
        role = fields.json_at(obj, slot.template)
        shape = {
            "metadata": {key: role[key] for key in ("labels", "annotations") if role.get(key)},
            "spec": {"nodeSelector": node_selector(obj, role), "tolerations": role.get("tolerations") or []},
        }
        gates = info.scheduling_gates
        result = templates.merged(shape, replace(info, scheduling_gates=()))
        if isinstance(result, Conflict):
            return result
        role = with_shape(role, result)
        if gates:
            role = {**role, "template": templates.with_gates(role_template(role, slot.name), *gates)}
        return fields.with_value(obj, slot.template, role)

    def with_original(self, obj: Json, slot: Slot, original: PodSet) -> Json:
        role = with_shape(fields.json_at(obj, slot.template), original.template)
        if "template" in role:
            gates = fields.list_at(original.template, ("spec", "schedulingGates"))
            spec = {k: v for k, v in fields.json_at(role, ("template", "spec")).items() if k != "schedulingGates"}
            templates.append_missing(spec, "schedulingGates", gates)
            role = {**role, "template": {**role["template"], "spec": spec}}
        return fields.with_value(obj, slot.template, role)

    def is_active(self, obj: Json) -> bool:
        return state(obj) not in ("", "NEW", "SUSPENDED", *FINAL)

    def pods_ready(self, obj: Json) -> bool:
        listed = fields.json_at(obj, ("status", "executorState")).values()
        ready = sum(value in ("RUNNING", "COMPLETED") for value in listed)
        return state(obj) == "RUNNING" and ready >= executors(obj)

    def finished(self, obj: Json) -> Finished | None:
        if state(obj) not in FINAL:
            return None
        success = state(obj) == "COMPLETED"
        message = fields.text_at(obj, ("status", "applicationState", "errorMessage"))
        return Finished(success, message or ("Application completed" if success else "Application failed"))

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        errors = []
        mode = fields.text_at(obj, ("spec", "mode"))
        if mode not in ("", "cluster"):
            errors.append(invalid("spec.mode", mode, "only cluster mode can be queued: the driver must run in a pod"))
        if is_dynamic(obj):
            field = "spec.dynamicAllocation.enabled"
            errors.append(forbidden(field, "the number of executors must be fixed, since quota is reserved for it"))
        for role in (DRIVER, EXECUTOR):
            for key in ("memory", "memoryOverhead"):
                text = fields.text_at(obj, ("spec", role, key))
                if text and mebibytes(text) is None:
                    errors.append(invalid(f"spec.{role}.{key}", text, "must be an amount of memory such as 512m or 4g"))
        return errors

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        name = metadata.name_of(obj)
        labels = {"sparkoperator.k8s.io/app-name": name}
        driver = Blueprint(
            f"{name}-driver", DRIVER, 0, with_default_command(pod_template(obj, DRIVER), submit_command(obj)),
            labels={**labels, "spark-role": DRIVER},
        )  # fmt: skip
        executor = with_default_command(pod_template(obj, EXECUTOR), HOLD_SHARE)
        return [driver] + [
            Blueprint(f"{name}-exec-{i + 1}", EXECUTOR, i, executor, labels={**labels, "spark-role": EXECUTOR})
            for i in range(executors(obj))
        ]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        if self.is_suspended(obj):
            word = "SUSPENDING" if pods.any_left(parts) else "SUSPENDED"
            return {"applicationState": {"state": word}, "executorState": {}}
        name = metadata.name_of(obj)
        verdict = pods.verdict(self.completion, self.pods_of(obj), parts)
        words = {"Pending": "SUBMITTED", "Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}
        application: Json = {"state": words[verdict.state]}
        if verdict.state == "Failed":
            application["errorMessage"] = verdict.message
        executor_state = {
            metadata.name_of(pod): (pods.phase(pod) or "Pending").upper()
            for pod in parts
            if metadata.name_of(pod) != f"{name}-driver"
        }
        status: Json = {
            "applicationState": application,
            "executorState": executor_state,
            "driverInfo": {"podName": f"{name}-driver"},
        }
        started = fields.text_at(obj, ("status", "lastSubmissionAttemptTime")) or conditions.timestamp(now)
        status["lastSubmissionAttemptTime"] = started
        if verdict.state in ("Succeeded", "Failed"):
            ended = fields.text_at(obj, ("status", "terminationTime"))
            status["terminationTime"] = ended or conditions.timestamp(now)
        return status


def state(obj: Json) -> str:
    return fields.text_at(obj, ("status", "applicationState", "state"))


def is_dynamic(obj: Json) -> bool:
    return fields.value_at(obj, ("spec", "dynamicAllocation", "enabled")) is True


def executors(obj: Json) -> int:
    """How many executors it starts with; with dynamic allocation the largest of what it names, as Spark takes it."""
    fixed = fields.int_at(obj, ("spec", EXECUTOR, "instances"))
    if not is_dynamic(obj):
        return fixed
    keys = ("initialExecutors", "minExecutors")
    return max(fixed, *(fields.int_at(obj, ("spec", "dynamicAllocation", key)) for key in keys))


def pod_template(obj: Json, name: str) -> Json:
    """The pod that Spark would make for a role: its template, with the fields of the role laid over it."""
    role = fields.json_at(obj, ("spec", name))
    template = role_template(role, name)
    spec = dict(template["spec"])
    containers = list(spec["containers"])
    position = next((i for i, c in enumerate(containers) if c.get("name") == CONTAINER[name]), 0)
    containers[position] = with_requests(containers[position], obj, role)
    containers += fields.list_at(role, ("sidecars",))
    spec["containers"] = containers
    if selector := {**(spec.get("nodeSelector") or {}), **node_selector(obj, role)}:
        spec["nodeSelector"] = selector
    templates.append_missing(spec, "tolerations", fields.list_at(role, ("tolerations",)))
    templates.append_missing(spec, "initContainers", fields.list_at(role, ("initContainers",)))
    spec |= {key: role[key] for key in ("affinity", "priorityClassName", "schedulerName") if role.get(key)}
    meta = {
        "labels": {**metadata.labels_of(template), **fields.json_at(role, ("labels",))},
        "annotations": {**metadata.annotations_of(template), **fields.json_at(role, ("annotations",))},
    }
    return {"metadata": {key: value for key, value in meta.items() if value}, "spec": spec}


def role_template(role: Json, name: str) -> Json:
    template = fields.json_at(role, ("template",))
    containers = fields.list_at(template, ("spec", "containers")) or [{"name": CONTAINER[name]}]
    return fields.with_value(template, ("spec", "containers"), containers)


def node_selector(obj: Json, role: Json) -> Json:
    return {**fields.json_at(obj, ("spec", "nodeSelector")), **fields.json_at(role, ("nodeSelector",))}


def with_requests(container: Json, obj: Json, role: Json) -> Json:
    requests = dict(fields.json_at(container, ("resources", "requests")))
    limits = dict(fields.json_at(container, ("resources", "limits")))
    requests.setdefault("cpu", str(role.get("coreRequest") or role.get("cores") or 1))
    if role.get("coreLimit"):
        limits["cpu"] = str(role["coreLimit"])
    requests["memory"] = f"{memory_mebibytes(obj, role)}Mi"
    gpu = fields.json_at(role, ("gpu",))
    name = fields.text_at(gpu, ("name",))
    if name and gpu.get("quantity"):
        requests[name] = limits[name] = str(gpu["quantity"])
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    image = role.get("image") or fields.text_at(obj, ("spec", "image"))
    extra = {"image": image} if image and not container.get("image") else {}
    return {**container, **extra, "resources": resources}


def memory_mebibytes(obj: Json, role: Json) -> int:
    """Heap and what is beside it. Text that is no amount was refused before; here it counts as the default."""
    heap = mebibytes(str(role.get("memory") or DEFAULT_MEMORY)) or 1024
    overhead = mebibytes(str(role.get("memoryOverhead") or ""))
    if overhead is None:
        share = Decimal(heap) * overhead_factor(obj)
        overhead = max(MIN_OVERHEAD_MIB, int(share.to_integral_value(ROUND_UP)))
    return heap + overhead


def overhead_factor(obj: Json) -> Decimal:
    text = fields.text_at(obj, ("spec", "memoryOverheadFactor"))
    conf = fields.json_at(obj, ("spec", "sparkConf")).get("spark.kubernetes.memoryOverheadFactor")
    try:
        return Decimal(text or str(conf))
    except InvalidOperation:
        return JVM_OVERHEAD if fields.text_at(obj, ("spec", "type")) in ("", "Java", "Scala") else OTHER_OVERHEAD


def mebibytes(text: str) -> int | None:
    """Java's notation: 512m, 4g, 1024k, or Kubernetes' 4Gi; rounded up."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)i?b?", text.strip().lower())
    if match is None:
        return None
    return int((Decimal(match[1]) * UNIT_KIB[match[2]] / 1024).to_integral_value(ROUND_UP))


def with_shape(role: Json, template: Json) -> Json:
    """The fields of a role, as a template has them."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    changed = {k: v for k, v in role.items() if k not in ("labels", "annotations", "nodeSelector", "tolerations")}
    for holder, keys in ((meta, ("labels", "annotations")), (spec, ("nodeSelector", "tolerations"))):
        changed |= {key: holder[key] for key in keys if holder.get(key)}
    return changed


def with_default_command(template: Json, command: list[str]) -> Json:
    template = fields.with_value(template, ("spec", "restartPolicy"), "Never")
    if fields.value_at(template, ("spec", "containers", 0, "command")):
        return template
    return fields.with_value(template, ("spec", "containers", 0, "command"), command)


def submit_command(obj: Json) -> list[str]:
    command = ["spark-submit", "--master", f"local[{fields.int_at(obj, ('spec', DRIVER, 'cores'), 1)}]"]
    command += ["--name", metadata.name_of(obj)]
    if main_class := fields.text_at(obj, ("spec", "mainClass")):
        command += ["--class", main_class]
    for key, value in sorted(fields.json_at(obj, ("spec", "sparkConf")).items()):
        command += ["--conf", f"{key}={value}"]
    command.append(fields.text_at(obj, ("spec", "mainApplicationFile")).removeprefix("local://"))
    arguments = fields.value_at(obj, ("spec", "arguments"))
    return command + [str(a) for a in arguments] if isinstance(arguments, list) else command
