"""
When a batch Job is over, and when its next pod may start: limits, policies, deadlines, back-off.

Every rule reads the tally and the Job's own fields; the first that applies decides. Failing comes before success.

Kubernetes: pkg/controller/job (syncJob, pod_failure_policy.go, success_policy.go,
backoff_utils.go, indexed_job_utils.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api.meta import Json, key_of
from kyu.kinds import conditions, fields, pods
from kyu.plans.pods.job_tally import Judgement, PodTally, index_of, parse_indexes

FIRST_BACK_OFF = timedelta(seconds=10)
LONGEST_BACK_OFF = timedelta(minutes=10)
DEFAULT_BACKOFF_LIMIT = 6
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
ACTIONS: dict[object, Judgement] = {"Ignore": "Ignore", "FailJob": "FailJob", "FailIndex": "FailIndex"}


@dataclass(frozen=True, slots=True)
class Success:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    message: str


def find_outcome(job: Json, tally: PodTally, now: datetime) -> Success | Failure | None:
    """Return the end of the Job once it is certain. Pods may still have to end."""
    if (decided := conditions.find(job, "FailureTarget")) is not None and decided.get("status") == "True":
        return Failure(decided.get("reason", ""), decided.get("message", ""))
    if (decided := conditions.find(job, "SuccessCriteriaMet")) is not None and decided.get("status") == "True":
        return Success(decided.get("reason", ""), decided.get("message", ""))
    failure = find_failure(job, tally, now)
    return failure if failure is not None else find_success(job, tally)


def find_failure(job: Json, tally: PodTally, now: datetime) -> Failure | None:
    if tally.failing_pod is not None:
        return Failure("PodFailurePolicy", why_failed_job(job, tally.failing_pod))
    limit = backoff_limit(job)
    if tally.failed > limit or restarts_exceed(job, tally, limit):
        return Failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = active_deadline(job)
    if deadline is not None and now >= deadline:
        return Failure("DeadlineExceeded", "Job was active longer than specified deadline")
    if tally.failed_indexes:
        most = fields.value_at(job, ("spec", "maxFailedIndexes"))
        if isinstance(most, int) and len(tally.failed_indexes) > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Failure("MaxFailedIndexesExceeded", message)
        if len(tally.failed_indexes | tally.completed_indexes) >= (tally.completions or 0):
            return Failure("FailedIndexes", "Job has failed indexes")
    return None


def backoff_limit(job: Json) -> int:
    # If each index has a limit of its own, the sum has none unless it is given.
    default = 2**31 - 1 if per_index_limit(job) is not None else DEFAULT_BACKOFF_LIMIT
    return fields.int_at(job, ("spec", "backoffLimit"), default)


def per_index_limit(job: Json) -> int | None:
    value = fields.value_at(job, ("spec", "backoffLimitPerIndex"))
    return value if isinstance(value, int) else None


def restarts_exceed(job: Json, tally: PodTally, limit: int) -> bool:
    """Return whether restarts in place exceed the limit: such pods do not fail."""
    if fields.text_at(job, ("spec", "template", "spec", "restartPolicy")) != "OnFailure":
        return False
    count = pods.restarts(tally.active)
    return count > 0 if limit == 0 else count >= limit


def active_deadline(job: Json) -> datetime | None:
    seconds = fields.value_at(job, ("spec", "activeDeadlineSeconds"))
    started = fields.text_at(job, ("status", "startTime"))
    if not isinstance(seconds, int) or not started or fields.value_at(job, ("spec", "suspend")) is True:
        return None
    return conditions.add_seconds(conditions.parse_timestamp(started), seconds)


def find_success(job: Json, tally: PodTally) -> Success | None:
    if tally.indexed and (matched := matching_success_rule(job, tally)) is not None:
        return Success("SuccessPolicy", f"Matched rules at index {matched}")
    if tally.completions is None:
        # A work queue: the pods know among themselves when it is empty, and one success means that it is.
        if tally.succeeded > 0 and not tally.active and not tally.terminating:
            return Success("CompletionsReached", "Reached expected number of succeeded pods")
        return None
    if tally.succeeded >= tally.completions and not tally.failed_indexes:
        return Success("CompletionsReached", "Reached expected number of succeeded pods")
    return None


def matching_success_rule(job: Json, tally: PodTally) -> int | None:
    """Return the position of the first rule of the success policy that holds."""
    for position, rule in enumerate(fields.list_at(job, ("spec", "successPolicy", "rules"))):
        wanted = parse_indexes(str(rule.get("succeededIndexes") or ""))
        done = tally.completed_indexes & wanted if wanted else tally.completed_indexes
        if len(done) >= int(rule.get("succeededCount") or len(wanted) or 1):
            return position
    return None


def judge(job: Json) -> Callable[[Json], Judgement]:
    """Return the function that judges a failed pod by the policy of the Job."""
    rules = fields.list_at(job, ("spec", "podFailurePolicy", "rules"))
    limit = per_index_limit(job)

    def judged(pod: Json) -> Judgement:
        for rule in rules:
            if matching_exit(rule, pod) or matches_condition(rule, pod):
                if action := ACTIONS.get(rule.get("action")):
                    return action
                break
        if limit is not None and failures_of_index(pod) > limit:
            return "FailIndex"
        return "Count"

    return judged


def failures_of_index(pod: Json) -> int:
    """Return the number of failures of the pod's index, with this one."""
    before = fields.text_at(pod, ("metadata", "annotations", FAILURE_COUNT))
    return 1 + (int(before) if before.isascii() and before.isdigit() else 0)


def matching_exit(rule: Json, pod: Json) -> tuple[str, int] | None:
    """Return the container and exit code that match the rule."""
    wanted = rule.get("onExitCodes")
    if not wanted:
        return None
    for name, code in exits(pod):
        if code == 0 or wanted.get("containerName") not in (None, "", name):
            continue
        if (code in (wanted.get("values") or ())) == (wanted.get("operator") == "In"):
            return name, code
    return None


def exits(pod: Json) -> Iterator[tuple[str, int]]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for status in fields.list_at(pod, ("status", key)):
            code = fields.value_at(status, ("state", "terminated", "exitCode"))
            if isinstance(code, int):
                yield str(status.get("name")), code


def matches_condition(rule: Json, pod: Json) -> bool:
    present = {c.get("type"): c.get("status") for c in fields.list_at(pod, ("status", "conditions"))}
    return any(
        present.get(wanted.get("type")) == (wanted.get("status") or "True")
        for wanted in fields.list_at(rule, ("onPodConditions",))
    )


def why_failed_job(job: Json, pod: Json) -> str:
    name = key_of(pod)
    for position, rule in enumerate(fields.list_at(job, ("spec", "podFailurePolicy", "rules"))):
        if rule.get("action") != "FailJob":
            continue
        if exit_ := matching_exit(rule, pod):
            container, code = exit_
            return (
                f"Container {container} for pod {name} failed with exit code {code} matching FailJob rule"
                f" at index {position}"
            )
        if matches_condition(rule, pod):
            return f"Pod {name} has a condition matching FailJob rule at index {position}"
    return f"Pod {name} failed"


def back_off_end(failures: Sequence[Json], successes: Sequence[Json]) -> datetime | None:
    """Return when the next pod may start: ten seconds after a failure, doubled with each, up to ten minutes."""
    last_success = max((at for pod in successes if (at := finished_at(pod))), default=None)
    times = [at for pod in failures if (at := finished_at(pod)) and (last_success is None or at > last_success)]
    if not times:
        return None
    doublings = min(len(times) - 1, 16)
    return max(times) + min(FIRST_BACK_OFF * (1 << doublings), LONGEST_BACK_OFF)


def back_off_by_index(failures: Sequence[Json]) -> dict[int, datetime]:
    """Return the same by index, for Jobs that count the failures of each index."""
    by_index: dict[int, list[Json]] = {}
    for pod in failures:
        if (index := index_of(pod)) is not None:
            by_index.setdefault(index, []).append(pod)
    ends = {index: back_off_end(its_pods, ()) for index, its_pods in by_index.items()}
    return {index: end for index, end in ends.items() if end is not None}


def finished_at(pod: Json) -> datetime | None:
    texts = [
        fields.text_at(status, ("state", "terminated", "finishedAt"))
        for status in fields.list_at(pod, ("status", "containerStatuses"))
    ]
    times = [conditions.parse_timestamp(text) for text in texts if text]
    if not times and (deleted := fields.text_at(pod, ("metadata", "deletionTimestamp"))):
        times = [conditions.parse_timestamp(deleted)]
    return max(times, default=None)
