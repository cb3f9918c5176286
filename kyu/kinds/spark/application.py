"""
SparkApplication: a driver, and executors that the driver asks for. The driver decides the end.

It has no pod templates but fields of its own; ``pods.py`` makes pods of them. In embedded mode the driver runs
spark-submit with a local master unless its template has a command; executor pods then only hold the share that was
admitted for them. ``restartPolicy`` is honoured there: all pods go, and after the interval they are made again.

Kueue: site docs on SparkApplications. Spark operator: v1beta2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods, templates
from kyu.kinds.kind import Finished, JobKind, Slot
from kyu.kinds.pods import Blueprint, Completion, PodsVerdict
from kyu.kinds.spark.pods import (
    DRIVER,
    EXECUTOR,
    as_template,
    executors,
    from_template,
    is_dynamic,
    mebibytes,
    pod_template,
    with_gates,
)
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, TemplateConflict

HOLD_SHARE = ["/bin/sh", "-c", "exec sleep 2147483647"]
DEFAULT_RETRY_SECONDS = 5
STATE_OF_VERDICT = {"Pending": "SUBMITTED", "Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}
OVER = ("COMPLETED", "FAILED", "SUBMISSION_FAILED")
# States in which it has no pods.
IDLE = ("", "NEW", "SUSPENDED", *OVER)
# Its pods are removed, to be made again.
WAITS_FOR_NEXT_RUN = "PENDING_RERUN"


class SparkApplication(JobKind):
    kinds = (Kind("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),)
    framework = "sparkoperator.k8s.io/sparkapplication"
    completion = Completion("OneRoleDecides", (DRIVER,), others_may_fail=True)
    managed_by_path = None
    may_be_prebuilt = False
    time_to_live_path = ("spec", "timeToLiveSeconds")

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot(DRIVER, ("spec", DRIVER), 1), Slot(EXECUTOR, ("spec", EXECUTOR), executors(obj))]

    def template(self, obj: Json, slot: Slot) -> Json:
        return pod_template(obj, slot.name)

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        role = fields.json_at(obj, slot.template)
        result = templates.merged(as_template(obj, role), replace(info, scheduling_gates=()))
        if isinstance(result, TemplateConflict):
            return result
        role = from_template(role, result)
        gates = dict.fromkeys((*gates_of(fields.json_at(role, ("template",))), *info.scheduling_gates))
        return fields.with_value(obj, slot.template, with_gates(role, slot.name, tuple(gates)))

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        role = from_template(fields.json_at(obj, slot.template), original.template)
        return fields.with_value(obj, slot.template, with_gates(role, slot.name, gates_of(original.template)))

    def is_active(self, obj: Json) -> bool:
        return state(obj) not in IDLE

    def pods_ready(self, obj: Json) -> bool:
        known = fields.json_at(obj, ("status", "executorState")).values()
        there = sum(word in ("RUNNING", "COMPLETED") for word in known)
        return state(obj) == "RUNNING" and there >= executors(obj)

    def finished(self, obj: Json) -> Finished | None:
        if state(obj) not in OVER:
            return None
        success = state(obj) == "COMPLETED"
        told = fields.text_at(obj, ("status", "applicationState", "errorMessage"))
        return Finished(success, told or ("The application has completed" if success else "The application has failed"))

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return list(role_errors(obj))

    # Embedded mode

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        if state(obj) == WAITS_FOR_NEXT_RUN:
            return []
        name = metadata.name_of(obj)
        driver = runnable(pod_template(obj, DRIVER), submit_command(obj))
        executor = runnable(pod_template(obj, EXECUTOR), HOLD_SHARE)
        plans = [Blueprint(driver_name(obj), DRIVER, 0, driver, labels=labels_of_role(obj, DRIVER))]
        for index in range(executors(obj)):
            labels = labels_of_role(obj, EXECUTOR)
            plans.append(Blueprint(f"{name}-exec-{index + 1}", EXECUTOR, index, executor, labels=labels))
        return plans

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        if self.is_suspended(obj):
            word = "SUSPENDING" if pods.any_left(parts) else "SUSPENDED"
            nothing = {"executionAttempts": None, "terminationTime": None}
            return {"applicationState": {"state": word}, "executorState": {}, **nothing}
        if state(obj) == WAITS_FOR_NEXT_RUN:
            return {} if parts or now < next_run(obj) else self.new_run(obj, now)
        if self.finished(obj) is not None:
            return {"executorState": executor_states(obj, parts)}
        verdict = pods.verdict(self.completion, self.pods_of(obj), parts)
        status: Json = {
            "applicationState": application_state(obj, verdict),
            "executorState": executor_states(obj, parts),
            "driverInfo": {"podName": driver_name(obj)},
            "executionAttempts": attempts(obj),
            "lastSubmissionAttemptTime": submission_time(obj, now),
        }
        if verdict.state in ("Succeeded", "Failed"):
            status["terminationTime"] = conditions.timestamp(now)
        return status

    def new_run(self, obj: Json, now: datetime) -> Json:
        return {
            "applicationState": {"state": "SUBMITTED"},
            "executorState": {},
            "executionAttempts": attempts(obj) + 1,
            "lastSubmissionAttemptTime": conditions.timestamp(now),
            "terminationTime": None,
        }

    def ended_at(self, obj: Json) -> str:
        return fields.text_at(obj, ("status", "terminationTime"))

    def wakes_at(self, obj: Json) -> datetime | None:
        return next_run(obj) if state(obj) == WAITS_FOR_NEXT_RUN else None


def state(obj: Json) -> str:
    return fields.text_at(obj, ("status", "applicationState", "state"))


def role_errors(obj: Json) -> Iterator[FieldError]:
    mode = fields.text_at(obj, ("spec", "mode"))
    if mode not in ("", "cluster"):
        yield invalid("spec.mode", mode, "only cluster mode can be queued: the driver must run in a pod")
    if is_dynamic(obj):
        field = "spec.dynamicAllocation.enabled"
        yield forbidden(field, "the number of executors must be fixed, since quota is reserved for it")
    for role in (DRIVER, EXECUTOR):
        for key in ("memory", "memoryOverhead"):
            text = fields.text_at(obj, ("spec", role, key))
            if text and mebibytes(text) is None:
                yield invalid(f"spec.{role}.{key}", text, "must be an amount of memory such as 512m or 4g")


def gates_of(template: Json) -> tuple[str, ...]:
    return tuple(str(gate.get("name")) for gate in fields.list_at(template, ("spec", "schedulingGates")))


# Runs


def attempts(obj: Json) -> int:
    return fields.int_at(obj, ("status", "executionAttempts"), 1)


def runs_again(obj: Json, verdict: PodsVerdict) -> bool:
    policy = fields.json_at(obj, ("spec", "restartPolicy"))
    match policy.get("type"):
        case "Always":
            return verdict.state in ("Succeeded", "Failed")
        case "OnFailure":
            return verdict.state == "Failed" and attempts(obj) <= fields.int_at(policy, ("onFailureRetries",))
        case _:
            return False


def next_run(obj: Json) -> datetime:
    """Return the time of the next run. The pause grows with every run."""
    ended = conditions.parse_timestamp(fields.text_at(obj, ("status", "terminationTime")))
    seconds = fields.int_at(obj, ("spec", "restartPolicy", "onFailureRetryInterval"), DEFAULT_RETRY_SECONDS)
    return conditions.add_seconds(ended, seconds * attempts(obj))


def application_state(obj: Json, verdict: PodsVerdict) -> Json:
    word = WAITS_FOR_NEXT_RUN if runs_again(obj, verdict) else STATE_OF_VERDICT[verdict.state]
    return {"state": word, "errorMessage": verdict.message} if verdict.state == "Failed" else {"state": word}


def executor_states(obj: Json, its_pods: Sequence[Json]) -> Json:
    names = {metadata.name_of(pod): pods.phase(pod) or "Pending" for pod in its_pods}
    return {name: phase.upper() for name, phase in names.items() if name != driver_name(obj)}


def submission_time(obj: Json, now: datetime) -> str:
    return fields.text_at(obj, ("status", "lastSubmissionAttemptTime")) or conditions.timestamp(now)


# Pods


def driver_name(obj: Json) -> str:
    return f"{metadata.name_of(obj)}-driver"


def labels_of_role(obj: Json, role: str) -> dict[str, str]:
    return {"sparkoperator.k8s.io/app-name": metadata.name_of(obj), "spark-role": role}


def runnable(template: Json, command: list[str]) -> Json:
    """Run once, with this command unless the template has one."""
    template = fields.with_value(template, ("spec", "restartPolicy"), "Never")
    if fields.value_at(template, ("spec", "containers", 0, "command")):
        return template
    return fields.with_value(template, ("spec", "containers", 0, "command"), command)


def submit_command(obj: Json) -> list[str]:
    spec = fields.json_at(obj, ("spec",))
    command = ["spark-submit", "--master", f"local[{fields.int_at(spec, (DRIVER, 'cores'), 1)}]"]
    command += ["--name", metadata.name_of(obj)]
    if main_class := fields.text_at(spec, ("mainClass",)):
        command += ["--class", main_class]
    for key, value in sorted(fields.json_at(spec, ("sparkConf",)).items()):
        command += ["--conf", f"{key}={value}"]
    command.append(fields.text_at(spec, ("mainApplicationFile",)).removeprefix("local://"))
    arguments = spec.get("arguments")
    return command + [str(argument) for argument in arguments] if isinstance(arguments, list) else command
