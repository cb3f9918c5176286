"""
The training jobs of Kubeflow: PyTorchJob, TFJob, XGBoostJob, PaddleJob and JAXJob.

They differ in the names of their roles, in the environment that names the other processes, and in the role that decides
the end; so each is a row. All keep suspend and managedBy in ``runPolicy``, and their state in conditions.

Kueue: pkg/controller/jobs/kubeflow. Kubeflow: training-operator v1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods
from kyu.kinds.kind import Finished, JobKind, Slot, finished_by
from kyu.kinds.pods import Blueprint, Completion, PodsVerdict
from kyu.kinds.templates import RankLabels

PREFIX = "training.kubeflow.org/"
REPLICA_INDEX = PREFIX + "replica-index"
RANKS = RankLabels(index_label=REPLICA_INDEX)
# An exit code from here on is a signal: with restartPolicy ExitCode the pod is worth another try.
FIRST_RETRIABLE_EXIT_CODE = 128


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """One process of a training job, as the others see it."""

    role: str
    index: int
    address: str
    # Its place among all processes.
    rank: int


Environment: TypeAlias = Callable[[Json, Sequence[TrainingProcess], TrainingProcess], dict[str, str]]


class TrainingJob(JobKind):
    suspend_path = ("spec", "runPolicy", "suspend")
    managed_by_path = ("spec", "runPolicy", "managedBy")
    own_manager = "kubeflow.org/training-operator"
    time_to_live_path = ("spec", "runPolicy", "ttlSecondsAfterFinished")

    def __init__(
        self,
        kind: Kind,
        *,
        replicas: str,
        roles: tuple[str, ...],
        completion: Completion,
        restart_policy: str,
        environment: Environment,
        may_be_prebuilt: bool = True,
        operator_fields: tuple[fields.Path, ...] = (),
    ) -> None:
        self.kinds = (kind,)
        self.framework = f"{kind.group}/{kind.kind.lower()}"
        self.replicas_path: fields.Path = ("spec", replicas)
        self.roles = roles
        self.completion = completion
        self.restart_policy = restart_policy
        self.environment = environment
        self.may_be_prebuilt = may_be_prebuilt
        self.operator_fields = operator_fields

    def slots(self, obj: Json) -> list[Slot]:
        present = fields.json_at(obj, self.replicas_path)
        return [
            Slot(
                role.lower(),
                (*self.replicas_path, role, "template"),
                fields.int_at(present, (role, "replicas"), 1),
                ranks=RANKS,
            )
            for role in self.roles
            if role in present
        ]

    def priority_class(self, obj: Json) -> str:
        own = fields.text_at(obj, ("spec", "runPolicy", "schedulingPolicy", "priorityClass"))
        return own or super().priority_class(obj)

    def is_active(self, obj: Json) -> bool:
        counts = fields.json_at(obj, ("status", "replicaStatuses"))
        return any(fields.int_at(counts, (role, "active")) for role in counts)

    def pods_ready(self, obj: Json) -> bool:
        return conditions.is_true(obj, "Running")

    def finished(self, obj: Json) -> Finished | None:
        return finished_by(obj, "Succeeded")

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        members = self.members(obj, address)
        return [self.blueprint(obj, members, member) for member in members]

    def members(self, obj: Json, address: pods.Address) -> list[TrainingProcess]:
        name = metadata.name_of(obj)
        places = [
            (role, index)
            for role, slot in zip(self.present_roles(obj), self.slots(obj), strict=True)
            for index in range(slot.count)
        ]
        return [
            TrainingProcess(role, index, address(f"{name}-{role.lower()}-{index}", ""), rank)
            for rank, (role, index) in enumerate(places)
        ]

    def present_roles(self, obj: Json) -> list[str]:
        present = fields.json_at(obj, self.replicas_path)
        return [role for role in self.roles if role in present]

    def blueprint(self, obj: Json, members: Sequence[TrainingProcess], member: TrainingProcess) -> Blueprint:
        role = member.role.lower()
        name = f"{metadata.name_of(obj)}-{role}-{member.index}"
        labels = {
            PREFIX + "job-name": metadata.name_of(obj),
            PREFIX + "operator-name": f"{self.kind.kind.lower()}-controller",
            PREFIX + "replica-type": role,
            REPLICA_INDEX: str(member.index),
        }
        replica = fields.json_at(obj, (*self.replicas_path, member.role))
        template = fields.json_at(replica, ("template",))
        policy = self.replica_restart_policy(replica)
        pod_policy = "Never" if policy == "ExitCode" else policy
        template = fields.with_value(template, ("spec", "restartPolicy"), pod_policy)
        env = self.environment(obj, members, member)
        return Blueprint(name, role, member.index, template, labels=labels, env=env, hostname=name)

    def replica_restart_policy(self, replica: Json) -> str:
        return fields.text_at(replica, ("restartPolicy",)) or self.restart_policy

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        present = fields.list_at(obj, ("status", "conditions"))
        if self.is_suspended(obj):
            # Until its pods are gone they count as active, so that their quota is not given away too early.
            return {
                "conditions": self.with_state(present, "Suspended", "The job is suspended", now),
                "replicaStatuses": self.replica_statuses(obj, parts) if pods.any_left(parts) else {},
                "startTime": None,
            }
        if self.finished(obj) is not None:
            return {"replicaStatuses": self.replica_statuses(obj, parts)}
        start = fields.text_at(obj, ("status", "startTime")) or conditions.timestamp(now)
        verdict = self.judge(obj, parts, start, now)
        status: Json = {"replicaStatuses": self.replica_statuses(obj, parts), "startTime": start}
        if verdict.state == "Pending":
            made = self.with_state(present, "Created", "Not all pods are ready yet", now)
            return {**status, "conditions": made}
        status["conditions"] = self.with_state(present, verdict.state, verdict.message, now)
        if verdict.state in ("Succeeded", "Failed"):
            status["completionTime"] = conditions.timestamp(now)
        return status

    def with_state(self, present: list[Json], state: str, message: str, now: datetime) -> list[Json]:
        """Return the conditions with this state. One of Suspended, Running and the two ends holds at a time."""
        kind = self.kind.kind
        for other in ("Suspended", "Running"):
            if other != state and any(c.get("type") == other and c.get("status") == "True" for c in present):
                reason = f"{kind}{'Resumed' if other == 'Suspended' else state}"
                present = conditions.with_condition(present, other, "False", reason=reason, message=message, now=now)
        return conditions.with_condition(present, state, "True", reason=f"{kind}{state}", message=message, now=now)

    def judge(self, obj: Json, parts: Sequence[Json], start: str, now: datetime) -> PodsVerdict:
        limit = fields.int_at(obj, ("spec", "runPolicy", "backoffLimit"), -1)
        if limit >= 0 and pods.restarts(parts) > limit:
            return PodsVerdict("Failed", f"The containers were restarted more than {limit} times (backoffLimit)")
        deadline = deadline_of(obj, start)
        if deadline is not None and now >= deadline:
            return PodsVerdict("Failed", "It was active for too long (activeDeadlineSeconds)")
        retried = set(self.retried_pods(obj, parts))
        kept = [pod for pod in parts if metadata.name_of(pod) not in retried]
        return pods.verdict(self.completion_of(obj), self.pods_of(obj), kept)

    def completion_of(self, obj: Json) -> Completion:
        """Return the rule of the end. A TFJob may ask for the success of all workers instead of the first."""
        if fields.text_at(obj, ("spec", "successPolicy")) == "AllWorkers":
            return replace(self.completion, by_first=())
        return self.completion

    def wakes_at(self, obj: Json) -> datetime | None:
        if self.is_suspended(obj) or self.finished(obj) is not None:
            return None
        return deadline_of(obj, fields.text_at(obj, ("status", "startTime")))

    def retried_pods(self, obj: Json, parts: Sequence[Json]) -> list[str]:
        """Return the failed pods of a role with restartPolicy ExitCode whose exit code is retriable."""
        replica_by_role = {
            role.lower(): fields.json_at(obj, (*self.replicas_path, role)) for role in self.present_roles(obj)
        }
        role_by_name = {plan.name: plan.role for plan in self.pods_of(obj)}
        return [
            name
            for pod in parts
            if (name := metadata.name_of(pod)) in role_by_name
            and pods.phase(pod) == "Failed"
            and self.replica_restart_policy(replica_by_role[role_by_name[name]]) == "ExitCode"
            and (pods.exit_code(pod) or 0) >= FIRST_RETRIABLE_EXIT_CODE
        ]

    def surplus_pods(self, obj: Json, its_pods: Sequence[Json]) -> list[str]:
        surplus = super().surplus_pods(obj, its_pods)
        if surplus or self.is_suspended(obj) or self.finished(obj) is not None:
            return surplus
        return self.retried_pods(obj, its_pods)

    def replica_statuses(self, obj: Json, parts: Sequence[Json]) -> Json:
        counts = pods.role_counts(self.pods_of(obj), parts)
        return {
            role: {
                "active": counts[role.lower()]["Pending"] + counts[role.lower()]["Running"],
                "succeeded": counts[role.lower()]["Succeeded"],
                "failed": counts[role.lower()]["Failed"],
            }
            for role in self.present_roles(obj)
            if role.lower() in counts
        }


def deadline_of(obj: Json, start: str) -> datetime | None:
    """Return the end of activeDeadlineSeconds of a job that started then, if it has one."""
    seconds = fields.int_at(obj, ("spec", "runPolicy", "activeDeadlineSeconds"))
    return conditions.add_seconds(conditions.parse_timestamp(start), seconds) if seconds and start else None


def pytorch(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    per_node = fields.value_at(obj, ("spec", "nprocPerNode")) or "1"
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": members[0].address,
        "MASTER_PORT": "23456",
        "WORLD_SIZE": str(len(members)),
        "RANK": str(me.rank),
        "PET_MASTER_ADDR": members[0].address,
        "PET_MASTER_PORT": "23456",
        "PET_NNODES": str(len(members)),
        "PET_NODE_RANK": str(me.rank),
        "PET_NPROC_PER_NODE": str(per_node),
    }


def tensorflow(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    cluster: dict[str, list[str]] = {}
    for member in members:
        # An evaluator watches the cluster and is no part of it.
        if member.role != "Evaluator":
            cluster.setdefault(member.role.lower(), []).append(f"{member.address}:2222")
    task = {"type": me.role.lower(), "index": me.index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


def xgboost(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    workers = [member.address for member in members if member.role == "Worker"]
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": members[0].address,
        "MASTER_PORT": "9999",
        "WORLD_SIZE": str(len(members)),
        "RANK": str(me.rank),
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": ",".join(workers),
    }


def paddle(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": metadata.name_of(obj),
        "PADDLE_NNODES": str(len(members)),
        "PADDLE_MASTER": f"{members[0].address}:36543",
    }


def jax(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_ADDRESS": members[0].address,
        "COORDINATOR_PORT": "6666",
        "NUM_PROCESSES": str(len(members)),
        "PROCESS_ID": str(me.rank),
    }


def kubeflow(name: str) -> Kind:
    return Kind("kubeflow.org", "v1", name, f"{name.lower()}s")


TRAINING_KINDS = (
    TrainingJob(
        kubeflow("PyTorchJob"),
        replicas="pytorchReplicaSpecs",
        roles=("Master", "Worker"),
        completion=Completion("OneRoleDecides", ("master",)),
        restart_policy="OnFailure",
        environment=pytorch,
        operator_fields=(("spec", "elasticPolicy"),),
    ),
    TrainingJob(
        kubeflow("TFJob"),
        replicas="tfReplicaSpecs",
        roles=("Chief", "Master", "PS", "Worker", "Evaluator"),
        completion=Completion("OneRoleDecides", ("chief", "master", "worker"), by_first=("worker",)),
        restart_policy="Never",
        environment=tensorflow,
    ),
    TrainingJob(
        kubeflow("XGBoostJob"),
        replicas="xgbReplicaSpecs",
        roles=("Master", "Worker"),
        completion=Completion("OneRoleDecides", ("master",)),
        restart_policy="Never",
        environment=xgboost,
    ),
    TrainingJob(
        kubeflow("PaddleJob"),
        replicas="paddleReplicaSpecs",
        roles=("Master", "Worker"),
        completion=Completion("OneRoleDecides", ("worker",)),
        restart_policy="OnFailure",
        environment=paddle,
    ),
    TrainingJob(
        kubeflow("JAXJob"),
        replicas="jaxReplicaSpecs",
        roles=("Worker",),
        completion=pods.ALL_PODS_SUCCEED,
        restart_policy="Never",
        environment=jax,
        may_be_prebuilt=False,
    ),
)
