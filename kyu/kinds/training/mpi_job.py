"""
MPIJob: a launcher that runs mpirun, and workers that wait for it. The launcher decides the end.

Kueue: pkg/controller/jobs/mpijob. Kubeflow: mpi-operator v2beta1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata, pods
from kyu.kinds.kind import Slot
from kyu.kinds.pods import Blueprint, Completion
from kyu.kinds.templates import PodSetInfo, TemplateConflict, with_command
from kyu.kinds.training.kubeflow import TrainingJob, TrainingProcess

# The default command of a worker: it lets the launcher in.
WORKER_COMMAND = ["/usr/sbin/sshd", "-De"]


def environment(obj: Json, members: Sequence[TrainingProcess], me: TrainingProcess) -> dict[str, str]:
    slots = fields.int_at(obj, ("spec", "slotsPerWorker"), 1)
    return {"K_MPI_JOB_ROLE": me.role.lower(), "OMPI_MCA_orte_set_default_slots": str(slots)}


class MPIJob(TrainingJob):
    own_manager = "kubeflow.org/mpi-operator"

    def __init__(self) -> None:
        super().__init__(
            Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
            replicas="mpiReplicaSpecs",
            roles=("Launcher", "Worker"),
            completion=Completion("OneRoleDecides", ("launcher",), others_may_fail=True),
            restart_policy="Never",
            environment=environment,
        )

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        # The launcher takes rank 0 of the placement, so the workers are counted from 1.
        shares_ranks = fields.value_at(obj, ("spec", "runLauncherAsWorker")) is True
        if shares_ranks and slot.name == "worker" and metadata.TOPOLOGY_GATE in info.scheduling_gates:
            info = replace(info, annotations={**info.annotations, metadata.POD_INDEX_OFFSET: "1"})
        return super().with_info(obj, slot, info)

    def held(self, obj: Json, parts: Sequence[Json]) -> frozenset[str]:
        """Return the launcher, if it is made only when all workers are ready."""
        if fields.text_at(obj, ("spec", "launcherCreationPolicy")) != "WaitForWorkersReady":
            return frozenset()
        ready = {metadata.name_of(pod) for pod in parts if pods.is_ready(pod)}
        plans = self.pods_of(obj)
        if all(plan.name in ready for plan in plans if plan.role == "worker"):
            return frozenset()
        return frozenset(plan.name for plan in plans if plan.role == "launcher")

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        plans = super().pods_of(obj, address)
        return [
            replace(plan, template=with_command(plan.template, WORKER_COMMAND)) if plan.role == "worker" else plan
            for plan in plans
        ]
