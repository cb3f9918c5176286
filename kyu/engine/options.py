"""
The options of the engine: the fields of a Configuration that change a decision, as one frozen value.

Each scheduling gate of Kueue is a field, with the gate's name in snake case and Kueue's default. No other module of the
engine reads a Configuration.

Called by: every caller that makes a State (controllers/scheduler.py, visibility/standby.py, cli/admin/decide.py,
cli/batch/why.py). Kueue: pkg/features, apis/config/v1beta2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kyu.api import quantity
from kyu.api.config import features
from kyu.api.config.config import BOTH_STRATEGIES, Configuration, PreemptionStrategy
from kyu.engine.requests import Transformation
from kyu.engine.topology.types import Gates


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """The rules that order workloads of a queue by the past usage of their LocalQueue."""

    half_life_seconds: float = 0.0
    """The time after which past usage counts half; 0 ignores past usage."""
    sampling_seconds: float = 300.0
    weight_by_resource: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of all decisions. The defaults are those of Kueue without a configuration file."""

    fair_sharing: bool = False
    fair_strategies: tuple[PreemptionStrategy, ...] = BOTH_STRATEGIES
    admission_fair_sharing: AdmissionFairSharing | None = None
    ignore_undeclared: bool = False
    """Requests for resources that the queue does not declare are not counted, instead of not admitted."""
    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict)
    block_admission: bool = False
    """Admit nothing while the pods of an admitted workload are not ready."""
    requeue_by_eviction: bool = True
    """A workload whose pods were not ready in time is queued by its eviction time, not by its creation."""

    # Feature gates.
    partial_admission: bool = True
    flavor_fungibility: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    priority_sorting_within_cohort: bool = True
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = False
    scheduling_equivalence_hashing: bool = True
    admission_gated_by: bool = True
    reclaimable_pods: bool = True
    elastic_jobs_via_workload_slices: bool = True
    priority_boost: bool = False
    prioritize_preemptor_workloads: bool = False
    scheduler_timestamp_preemption_buffer: bool = False
    concurrent_admission: bool = False
    multi_kueue_orchestrated_preemption: bool = False
    topology_aware_scheduling: bool = True
    tas_recompute_assignment_within_scheduling_cycle: bool = True
    tas_failed_node_replacement_fail_fast: bool = True
    skip_reassignment_for_pod_owned_workloads: bool = True
    tas_profile_mixed: bool = True
    tas_handle_overlapping_flavors: bool = True
    tas_balanced_placement: bool = False
    tas_respect_node_affinity_preferred: bool = False
    elastic_jobs_via_workload_slices_with_tas: bool = False

    @property
    def head_start(self) -> float:
        """The seconds by which a workload must be older than others of its own priority to preempt them."""
        return 300.0 if self.scheduler_timestamp_preemption_buffer else 0.0

    @property
    def topology_gates(self) -> Gates:
        return Gates(
            mixed_profile=self.tas_profile_mixed,
            overlapping_flavors=self.tas_handle_overlapping_flavors,
            balanced_placement=self.tas_balanced_placement,
            preferred_affinity=self.tas_respect_node_affinity_preferred,
        )


def from_configuration(configuration: Configuration) -> Options:
    """Return the options of a Configuration. Gates that change no decision are ignored."""
    gates = configuration.gates
    known = {option.name for option in fields(Options)}
    values: dict[str, Any] = {
        name: gates.enabled(gate.name) for gate in features.GATES if (name := snake_case(gate.name)) in known
    }
    values.pop("admission_fair_sharing")
    if configuration.fair_sharing is not None:
        values["fair_sharing"] = True
        values["fair_strategies"] = configuration.fair_sharing.effective_strategies
    past = configuration.admission_fair_sharing
    if past is not None and gates.enabled("AdmissionFairSharing"):
        values["admission_fair_sharing"] = AdmissionFairSharing(
            half_life_seconds=past.usage_half_life_time.total_seconds(),
            sampling_seconds=past.usage_sampling_interval.total_seconds(),
            weight_by_resource=dict(past.resource_weights),
        )
    resources = configuration.resources
    ignore = resources.quota_check_strategy == "IgnoreUndeclared"
    values["ignore_undeclared"] = ignore and gates.enabled("QuotaCheckStrategy")
    values["excluded_prefixes"] = tuple(resources.exclude_resource_prefixes)
    values["transformations"] = {
        rule.input: Transformation(
            strategy=rule.strategy,
            multiply_by=rule.multiply_by,
            outputs={name: quantity.parse(value) for name, value in rule.outputs.items()},
        )
        for rule in resources.transformations
    }
    ready = configuration.wait_for_pods_ready
    if ready is not None:
        values["block_admission"] = bool(ready.block_admission)
        values["requeue_by_eviction"] = ready.requeuing_strategy.timestamp == "Eviction"
    return Options(**values)


def snake_case(gate: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", gate).lower()
