"""
The table of Kueue's metrics: names, labels, and the kinds whose labels may extend them.

Every family but the build info also has the label replica_role. ``source`` is the kind of the objects whose labels
extend the family, as metrics.customLabels of the settings says.

Kueue: pkg/metrics/metrics.go
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Source: TypeAlias = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]
QUEUE_AND_CLASS = ("cluster_queue", "priority_class")
QUEUE_AND_QUOTA = ("cohort", "cluster_queue", "flavor", "resource")
LOCAL = ("name", "namespace")
LOCAL_AND_CLASS = (*LOCAL, "priority_class")
LOCAL_AND_QUOTA = (*LOCAL, "flavor", "resource")
COHORT_AND_QUOTA = ("cohort", "flavor", "resource")
# Buckets of client_golang that apply where Kueue names none.
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAIT_BUCKETS = (1.0, *(2.5 * 2**n for n in range(13)))
ADMISSION_WAIT_BUCKETS = (1.0, *(2.5 * 2**n for n in range(15)))
CREATION_BUCKETS = tuple(0.01 * 2**n for n in range(11))


class Family(NamedTuple):
    """A metric family. ``buckets`` are the upper bounds of a histogram; other types have none."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str
    source: Source | None = None
    buckets: tuple[float, ...] = ()

    @property
    def is_local(self) -> bool:
        """Return whether the family is about LocalQueues."""
        return self.labels[:2] == LOCAL


def _counter(name: str, labels: tuple[str, ...], text: str, source: Source | None = None) -> Family:
    return Family(name, "counter", labels, text, source)


def _gauge(name: str, labels: tuple[str, ...], text: str, source: Source | None = None) -> Family:
    return Family(name, "gauge", labels, text, source)


def _wait(
    name: str, labels: tuple[str, ...], text: str, source: Source, buckets: tuple[float, ...] = WAIT_BUCKETS
) -> Family:
    return Family(name, "histogram", labels, text, source, buckets)


# Scheduling cycles.
ATTEMPTS = _counter("kueue_admission_attempts_total", ("result",), "Scheduling cycles, by their result.")
ATTEMPT_SECONDS = Family(
    "kueue_admission_attempt_duration_seconds",
    "histogram",
    ("result",),
    "Duration of a scheduling cycle.",
    buckets=DEFAULT_BUCKETS,
)
PREEMPTION_SKIPS = _gauge(
    "kueue_admission_cycle_preemption_skips",
    ("cluster_queue",),
    "Workloads that were skipped because another workload of the same cycle preempts the same victims.",
    "ClusterQueue",
)
PREEMPTED = _counter(
    "kueue_preempted_workloads_total",
    ("preempting_cluster_queue", "reason"),
    "Preempted workloads, by the ClusterQueue of the preemptor.",
    "ClusterQueue",
)
BUILD_INFO = _gauge(
    "kueue_build_info",
    ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
    "The version of Kyu.",
)

# Steps of Workloads, by ClusterQueue and by LocalQueue.
RESERVED = _counter(
    "kueue_quota_reserved_workloads_total", QUEUE_AND_CLASS, "Workloads that got quota.", "ClusterQueue"
)
ADMITTED = _counter("kueue_admitted_workloads_total", QUEUE_AND_CLASS, "Admitted workloads.", "ClusterQueue")
FINISHED = _counter("kueue_finished_workloads_total", QUEUE_AND_CLASS, "Finished workloads.", "ClusterQueue")
EVICTION_LABELS = ("cluster_queue", "reason", "underlying_cause", "priority_class")
EVICTED = _counter("kueue_evicted_workloads_total", EVICTION_LABELS, "Evictions.", "ClusterQueue")
EVICTED_ONCE = _counter(
    "kueue_evicted_workloads_once_total", EVICTION_LABELS, "Workloads evicted at least once.", "ClusterQueue"
)
REPLACED_SLICES = _counter(
    "kueue_replaced_workload_slices_total", ("cluster_queue",), "Replaced slices of elastic jobs.", "ClusterQueue"
)
RESERVED_WAIT = _wait(
    "kueue_quota_reserved_wait_time_seconds", QUEUE_AND_CLASS, "Time from queued to quota reserved.", "ClusterQueue"
)
ADMISSION_WAIT = _wait(
    "kueue_admission_wait_time_seconds",
    QUEUE_AND_CLASS,
    "Time from queued to admitted.",
    "ClusterQueue",
    ADMISSION_WAIT_BUCKETS,
)
CHECKS_WAIT = _wait(
    "kueue_admission_checks_wait_time_seconds",
    QUEUE_AND_CLASS,
    "Time from quota reserved to admitted.",
    "ClusterQueue",
)
READY_WAIT = _wait(
    "kueue_ready_wait_time_seconds", QUEUE_AND_CLASS, "Time from queued to all pods ready.", "ClusterQueue"
)
ADMITTED_UNTIL_READY = _wait(
    "kueue_admitted_until_ready_wait_time_seconds",
    QUEUE_AND_CLASS,
    "Time from admitted to all pods ready.",
    "ClusterQueue",
)
READY_TO_EVICTED = _wait(
    "kueue_pods_ready_to_evicted_time_seconds",
    ("cluster_queue", "reason", "underlying_cause"),
    "Time from all pods ready to the eviction.",
    "ClusterQueue",
)
EVICTION_LATENCY = _wait(
    "kueue_workload_eviction_latency_seconds",
    ("cluster_queue", "reason"),
    "Time from the eviction to the return of the quota.",
    "ClusterQueue",
)
GATE_REMOVAL = _wait(
    "kueue_pod_scheduling_gate_removal_seconds",
    ("name", "cluster_queue", "is_group"),
    "Time from admitted to the removal of the scheduling gate of a pod.",
    "ClusterQueue",
    DEFAULT_BUCKETS,
)
CREATION_LATENCY = _wait(
    "kueue_workload_creation_latency_seconds",
    ("job_kind",),
    "Time from the creation of a job to that of its Workload.",
    "LocalQueue",
    CREATION_BUCKETS,
)
LOCAL_RESERVED = _counter(
    "kueue_local_queue_quota_reserved_workloads_total", LOCAL_AND_CLASS, RESERVED.text, "LocalQueue"
)
LOCAL_ADMITTED = _counter("kueue_local_queue_admitted_workloads_total", LOCAL_AND_CLASS, ADMITTED.text, "LocalQueue")
LOCAL_FINISHED = _counter("kueue_local_queue_finished_workloads_total", LOCAL_AND_CLASS, FINISHED.text, "LocalQueue")
LOCAL_EVICTED = _counter(
    "kueue_local_queue_evicted_workloads_total", (*LOCAL, *EVICTION_LABELS[1:]), EVICTED.text, "LocalQueue"
)
LOCAL_RESERVED_WAIT = _wait(
    "kueue_local_queue_quota_reserved_wait_time_seconds", LOCAL_AND_CLASS, RESERVED_WAIT.text, "LocalQueue"
)
LOCAL_ADMISSION_WAIT = _wait(
    "kueue_local_queue_admission_wait_time_seconds", LOCAL_AND_CLASS, ADMISSION_WAIT.text, "LocalQueue"
)
LOCAL_CHECKS_WAIT = _wait(
    "kueue_local_queue_admission_checks_wait_time_seconds", LOCAL_AND_CLASS, CHECKS_WAIT.text, "LocalQueue"
)
LOCAL_READY_WAIT = _wait("kueue_local_queue_ready_wait_time_seconds", LOCAL_AND_CLASS, READY_WAIT.text, "LocalQueue")
LOCAL_ADMITTED_UNTIL_READY = _wait(
    "kueue_local_queue_admitted_until_ready_wait_time_seconds",
    LOCAL_AND_CLASS,
    ADMITTED_UNTIL_READY.text,
    "LocalQueue",
)
COHORT_ADMITTED = _counter(
    "kueue_cohort_subtree_admitted_workloads_total",
    ("cohort", "priority_class"),
    "Workloads admitted in a Cohort and below it.",
    "Cohort",
)

# Contents of ClusterQueues.
PENDING = _gauge("kueue_pending_workloads", ("cluster_queue", "status"), "Pending workloads.", "ClusterQueue")
FINISHED_NOW = _gauge(
    "kueue_finished_workloads", ("cluster_queue",), "Finished workloads that still exist.", "ClusterQueue"
)
RESERVING = _gauge("kueue_reserving_active_workloads", ("cluster_queue",), "Workloads with quota.", "ClusterQueue")
ADMITTED_NOW = _gauge("kueue_admitted_active_workloads", ("cluster_queue",), "Admitted workloads.", "ClusterQueue")
UNADMITTED = _gauge(
    "kueue_unadmitted_workloads",
    ("cluster_queue", "reason", "underlying_cause"),
    "Workloads that are not admitted, by reason.",
    "ClusterQueue",
)
QUEUE_STATUS = _gauge(
    "kueue_cluster_queue_status", ("cluster_queue", "status"), "1 for the current status.", "ClusterQueue"
)
QUEUE_INFO = _gauge(
    "kueue_cluster_queue_info",
    ("cluster_queue", "parent_cohort", "root_cohort"),
    "The place of a ClusterQueue in its tree.",
    "ClusterQueue",
)
RESERVATION = _gauge("kueue_cluster_queue_resource_reservation", QUEUE_AND_QUOTA, "Reserved quota.", "ClusterQueue")
USAGE = _gauge("kueue_cluster_queue_resource_usage", QUEUE_AND_QUOTA, "Quota of admitted workloads.", "ClusterQueue")
PENDING_RESOURCES = _gauge(
    "kueue_cluster_queue_resource_pending",
    ("cluster_queue", "resource"),
    "Requests of pending workloads.",
    "ClusterQueue",
)
NOMINAL = _gauge("kueue_cluster_queue_nominal_quota", QUEUE_AND_QUOTA, "Nominal quota.", "ClusterQueue")
BORROWING = _gauge("kueue_cluster_queue_borrowing_limit", QUEUE_AND_QUOTA, "Borrowing limit.", "ClusterQueue")
LENDING = _gauge("kueue_cluster_queue_lending_limit", QUEUE_AND_QUOTA, "Lending limit.", "ClusterQueue")
SHARE = _gauge(
    "kueue_cluster_queue_weighted_share",
    ("cluster_queue", "cohort"),
    "The share above nominal quota; NaN for a ClusterQueue of weight 0 that borrows.",
    "ClusterQueue",
)

# Contents of LocalQueues.
LOCAL_PENDING = _gauge("kueue_local_queue_pending_workloads", (*LOCAL, "status"), PENDING.text, "LocalQueue")
LOCAL_FINISHED_NOW = _gauge("kueue_local_queue_finished_workloads", LOCAL, FINISHED_NOW.text, "LocalQueue")
LOCAL_RESERVING = _gauge("kueue_local_queue_reserving_active_workloads", LOCAL, RESERVING.text, "LocalQueue")
LOCAL_ADMITTED_NOW = _gauge("kueue_local_queue_admitted_active_workloads", LOCAL, ADMITTED_NOW.text, "LocalQueue")
LOCAL_UNADMITTED = _gauge(
    "kueue_local_queue_unadmitted_workloads",
    (*LOCAL, "cluster_queue", "reason", "underlying_cause"),
    UNADMITTED.text,
    "LocalQueue",
)
LOCAL_STATUS = _gauge(
    "kueue_local_queue_status", (*LOCAL, "active"), "1 for the status of the condition Active.", "LocalQueue"
)
LOCAL_RESERVATION = _gauge("kueue_local_queue_resource_reservation", LOCAL_AND_QUOTA, RESERVATION.text, "LocalQueue")
LOCAL_USAGE = _gauge("kueue_local_queue_resource_usage", LOCAL_AND_QUOTA, USAGE.text, "LocalQueue")
LOCAL_PAST_USAGE = _gauge(
    "kueue_local_queue_admission_fair_sharing_usage",
    (*LOCAL, "cluster_queue"),
    "Past usage by which AdmissionFairSharing orders LocalQueues.",
    "LocalQueue",
)

# Contents of Cohorts.
COHORT_SHARE = _gauge("kueue_cohort_weighted_share", ("cohort",), "The share above the quota of a Cohort.", "Cohort")
COHORT_QUOTA = _gauge(
    "kueue_cohort_subtree_quota", COHORT_AND_QUOTA, "Quota of a Cohort and of all below it.", "Cohort"
)
COHORT_RESERVATION = _gauge(
    "kueue_cohort_subtree_resource_reservations",
    COHORT_AND_QUOTA,
    "Quota reserved in a Cohort and below it.",
    "Cohort",
)
COHORT_ADMITTED_NOW = _gauge(
    "kueue_cohort_subtree_admitted_active_workloads",
    ("cohort",),
    "Admitted workloads in a Cohort and below it.",
    "ClusterQueue",
)
COHORT_INFO = _gauge(
    "kueue_cohort_info", ("cohort", "parent_cohort", "root_cohort"), "The place of a Cohort in its tree.", "Cohort"
)

ALL: tuple[Family, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Family))
COUNTED: tuple[Family, ...] = tuple(family for family in ALL if family.type != "gauge")
