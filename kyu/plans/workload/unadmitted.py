"""
The conditions of a Workload without quota: QuotaReserved=False, and Admitted=False.

With the gate UnadmittedWorkloadsObservability the reason is a fine word (WaitingForQuota, Misconfigured), and Admitted
is always written. Without it, as is Kueue's default, the reason is Pending, Waiting or Inadmissible.

Called by: plans/workload/admission.py, plans/workload/eviction.py, plans/workload/lifecycle.py.
Kueue: pkg/workload/workload.go (UnadmittedWorkloadReasonWithFallback), pkg/workload/admissionchecks.go
"""

from __future__ import annotations

from kyu.api.config.features import FeatureGates
from kyu.engine import reasons
from kyu.plans.queues import activity
from kyu.plans.status import StatusEdit

GATE = "UnadmittedWorkloadsObservability"
# With this gate, too, a new Workload has the conditions before the scheduler has tried it.
AT_ONCE = "UnadmittedWorkloadsExplicitStatus"
NO_RESERVATION = "The workload has no reservation"
# Words that Kueue writes with and without the gate.
SAME_WORDS = frozenset({"AdmissionGated", "OnHold", "Deactivated"})
# The scheduler of Kueue has only one word without the gate, also for a closed preemption gate.
SCHEDULER_MESSAGES = frozenset({reasons.PREEMPTION_GATED})


def reason_word(word: str, message: str, gates: FeatureGates) -> str:
    """Return the reason of QuotaReserved=False for a fine word and its message."""
    if gates.enabled(GATE) or (word in SAME_WORDS and message not in SCHEDULER_MESSAGES):
        return word
    if word == "WaitingForPodsReady":
        return "Waiting"
    return "Inadmissible" if activity.is_told_by_stop(word, message) else "Pending"


def set_no_quota(edit: StatusEdit, word: str, message: str, gates: FeatureGates) -> None:
    """Write why the Workload has no quota."""
    edit.set_condition("QuotaReserved", "False", reason_word(word, message, gates), message)
    if gates.enabled(GATE):
        edit.set_condition("Admitted", "False", "NoReservation", NO_RESERVATION)
    elif edit.is_true("Admitted"):
        if all(check.get("state") == "Ready" for check in edit.read("admissionChecks") or ()):
            edit.set_condition("Admitted", "False", "NoReservation", NO_RESERVATION)
        else:
            words = f"{NO_RESERVATION} and not all checks ready"
            edit.set_condition("Admitted", "False", "NoReservationUnsatisfiedChecks", words)
