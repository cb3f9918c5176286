"""
JobSet: several groups of equal Jobs that start, succeed and are restarted together.

One pod set per replicated job. In embedded mode its Jobs are made as children; when one fails, the first rule of the
failure policy that speaks of the failure decides, and otherwise all are made again while restarts are left. What the
success policy names decides the end.

Kueue: pkg/controller/jobs/jobset. JobSet: v1alpha2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, not_supported
from kyu.api.meta import Json, Kind, Ref
from kyu.kinds import conditions, fields, metadata
from kyu.kinds import job as batch
from kyu.kinds.conditions import Mark
from kyu.kinds.kind import Finished, JobKind, Slot, child_ref, finished_by
from kyu.kinds.pods import owner_reference
from kyu.kinds.templates import RankLabels

JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
PREFIX = "jobset.sigs.k8s.io/"
RESTART_ATTEMPT = PREFIX + "restart-attempt"
REPLICATED_JOB = PREFIX + "replicatedjob-name"
REPLICATED_JOBS: fields.Path = ("spec", "replicatedJobs")
FAILURE_POLICY: fields.Path = ("spec", "failurePolicy")
# The parts of a failure policy that Kyu carries out if it makes the Jobs itself.
ACTIONS = ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")
STRATEGIES = ("Recreate", "BlockingRecreate")
SUSPENDED = Mark("Suspended", "True", "SuspendedJobs", "The Jobs are suspended")
RESUMED = Mark("Suspended", "False", "ResumeJobs", "The Jobs may run")
COMPLETED = Mark("Completed", "True", "AllJobsCompleted", "All Jobs that count have completed")


class JobSet(JobKind):
    kinds = (JOB_SET,)
    framework = "jobset.x-k8s.io/jobset"
    own_manager = "jobset.sigs.k8s.io/jobset-controller"
    time_to_live_path = ("spec", "ttlSecondsAfterFinished")

    def slots(self, obj: Json) -> list[Slot]:
        return [
            Slot(
                str(group.get("name")).lower(),
                (*REPLICATED_JOBS, position, "template", "spec", "template"),
                replicas(group) * batch.pods_at_once(fields.json_at(group, ("template",))),
                ranks=RankLabels(batch.INDEX, PREFIX + "job-index", replicas(group)),
            )
            for position, group in enumerate(fields.list_at(obj, REPLICATED_JOBS))
        ]

    def is_active(self, obj: Json) -> bool:
        return any(fields.int_at(s, ("active",)) > 0 for s in statuses(obj))

    def pods_ready(self, obj: Json) -> bool:
        wanted = sum(replicas(group) for group in fields.list_at(obj, REPLICATED_JOBS))
        there = sum(fields.int_at(s, ("ready",)) + fields.int_at(s, ("succeeded",)) for s in statuses(obj))
        return wanted == there

    def reclaimable_pods(self, obj: Json) -> dict[str, int]:
        """Return the pods of succeeded Jobs. A restart runs all Jobs again, so a JobSet that may restart has none."""
        if may_restart(obj):
            return {}
        succeeded = {str(s.get("name")): fields.int_at(s, ("succeeded",)) for s in statuses(obj)}
        reclaimable = {}
        for group in fields.list_at(obj, REPLICATED_JOBS):
            name = str(group.get("name"))
            done = min(succeeded.get(name, 0), replicas(group))
            if done > 0:
                reclaimable[name.lower()] = done * batch.pods_at_once(fields.json_at(group, ("template",)))
        return reclaimable

    def finished(self, obj: Json) -> Finished | None:
        return finished_by(obj, "Completed")

    def ended_at(self, obj: Json) -> str:
        end = next((c for type_ in ("Completed", "Failed") if (c := conditions.find(obj, type_)) is not None), {})
        return str(end.get("lastTransitionTime") or "")

    def stand_in_errors(self, obj: Json) -> list[FieldError]:
        return list(policy_errors(obj))

    def held(self, obj: Json, parts: Sequence[Json]) -> frozenset[str]:
        """Return all Jobs if BlockingRecreate is set and Jobs of the last attempt are still there."""
        blocking = fields.text_at(obj, (*FAILURE_POLICY, "restartStrategy")) == "BlockingRecreate"
        if not blocking or not any(attempt(child) < restarts(obj) for child in parts):
            return frozenset()
        return frozenset(map(metadata.name_of, self.children_of(obj)))

    def children_of(self, obj: Json) -> list[Json]:
        if self.is_suspended(obj) or self.finished(obj) is not None:
            return []
        groups = fields.list_at(obj, REPLICATED_JOBS)
        offset = 0
        children = []
        for position, group in enumerate(groups):
            if may_start(obj, groups, position):
                children += [make_job(obj, group, index, offset + index) for index in range(replicas(group))]
            offset += replicas(group)
        return children

    def surplus_children(self, obj: Json, children: Sequence[Json]) -> list[Ref]:
        doomed = [child for child in children if attempt(child) < restarts(obj)]
        if self.finished(obj) is not None:
            doomed = [child for child in children if batch.BatchJob().finished(child) is None]
        return super().surplus_children(obj, children) or [child_ref(child) for child in doomed]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        present = fields.list_at(obj, ("status", "conditions"))
        current = [child for child in parts if attempt(child) == restarts(obj)]
        groups = fields.list_at(obj, REPLICATED_JOBS)
        status: Json = {"restarts": restarts(obj), "replicatedJobsStatus": [group_status(g, current) for g in groups]}
        if self.finished(obj) is not None:
            return status
        if self.is_suspended(obj):
            return {**status, "conditions": conditions.with_marks(present, [SUSPENDED], now)}
        if conditions.is_true(obj, "Suspended"):
            present = conditions.with_marks(present, [RESUMED], now)
            status["conditions"] = present
        failed = [child for child in current if conditions.is_true(child, "Failed")]
        if failed:
            return {**status, **after_failure(obj, min(failed, key=failure_time), present, now)}
        if has_succeeded(obj, status["replicatedJobsStatus"]):
            ended = conditions.with_marks(present, [COMPLETED], now)
            return {**status, "conditions": ended, "terminalState": "Completed"}
        return status


def statuses(obj: Json) -> list[Json]:
    return fields.list_at(obj, ("status", "replicatedJobsStatus"))


def replicas(group: Json) -> int:
    return fields.int_at(group, ("replicas",), 1)


def restarts(obj: Json) -> int:
    return fields.int_at(obj, ("status", "restarts"))


def attempt(child: Json) -> int:
    text = metadata.labels_of(child).get(RESTART_ATTEMPT, "0")
    return int(text) if text.isdigit() else 0


def may_restart(obj: Json) -> bool:
    counted = fields.int_at(obj, ("status", "restartsCountTowardsMax"))
    rules = fields.list_at(obj, (*FAILURE_POLICY, "rules"))
    ignores_limit = any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules)
    return ignores_limit or counted < fields.int_at(obj, (*FAILURE_POLICY, "maxRestarts"))


def may_start(obj: Json, groups: Sequence[Json], position: int) -> bool:
    """Return whether the replicated jobs that this one depends on are ready or complete."""
    status_by_name = {str(s.get("name")): s for s in statuses(obj)}
    replicas_by_name = {str(g.get("name")): replicas(g) for g in groups}
    wishes = [(str(d.get("name")), str(d.get("status"))) for d in fields.list_at(groups[position], ("dependsOn",))]
    if fields.text_at(obj, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder":
        wishes += [(str(g.get("name")), "Ready") for g in groups[:position]]
    for name, wish in wishes:
        status = status_by_name.get(name, {})
        done = fields.int_at(status, ("succeeded",))
        there = done if wish == "Complete" else done + fields.int_at(status, ("ready",))
        if there < replicas_by_name.get(name, 0):
            return False
    return True


def make_job(obj: Json, group: Json, index: int, global_index: int) -> Json:
    name = f"{metadata.name_of(obj)}-{group.get('name')}-{index}"
    labels = {
        PREFIX + "jobset-name": metadata.name_of(obj),
        REPLICATED_JOB: str(group.get("name")),
        PREFIX + "replicatedjob-replicas": str(replicas(group)),
        PREFIX + "job-index": str(index),
        PREFIX + "job-global-index": str(global_index),
        RESTART_ATTEMPT: str(restarts(obj)),
    }
    template = fields.json_at(group, ("template",))
    spec = {**fields.json_at(template, ("spec",)), "suspend": False}
    spec.setdefault("completionMode", "Indexed")
    spec.setdefault("completions", fields.int_at(spec, ("parallelism",), 1))
    pod = fields.json_at(spec, ("template",))
    pod = fields.with_value(pod, ("metadata", "labels"), {**metadata.labels_of(pod), **labels})
    if not fields.text_at(pod, ("spec", "restartPolicy")):
        pod = fields.with_value(pod, ("spec", "restartPolicy"), "OnFailure")
    if fields.value_at(obj, ("spec", "network", "enableDNSHostnames")) is not False:
        subdomain = fields.text_at(obj, ("spec", "network", "subdomain")) or metadata.name_of(obj)
        pod = fields.with_value(pod, ("spec", "subdomain"), subdomain)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": fields.text_at(obj, ("metadata", "namespace")),
            "labels": {**metadata.labels_of(template), **labels},
            "annotations": metadata.annotations_of(template),
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": {**spec, "template": pod},
    }


def group_status(group: Json, children: Sequence[Json]) -> Json:
    counts = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    kind = batch.BatchJob()
    for child in children:
        if metadata.labels_of(child).get(REPLICATED_JOB) != group.get("name"):
            continue
        end = kind.finished(child)
        if end is not None:
            counts["succeeded" if end.success else "failed"] += 1
        elif kind.is_suspended(child):
            counts["suspended"] += 1
        else:
            counts["active"] += kind.is_active(child)
            counts["ready"] += kind.pods_ready(child)
    return {"name": group.get("name"), **counts}


def after_failure(obj: Json, failed: Json, present: list[Json], now: datetime) -> Json:
    """Restart all Jobs or fail the JobSet, by the rule for this failure and the restarts that are left."""
    action = rule_for(obj, failed).get("action") or "RestartJobSet"
    counted = fields.int_at(obj, ("status", "restartsCountTowardsMax"))
    if action == "RestartJobSetAndIgnoreMaxRestarts":
        return {"restarts": restarts(obj) + 1}
    if action == "RestartJobSet" and counted < fields.int_at(obj, (*FAILURE_POLICY, "maxRestarts")):
        return {"restarts": restarts(obj) + 1, "restartsCountTowardsMax": counted + 1}
    reason = "FailJobSetFailurePolicyAction" if action == "FailJobSet" else "FailedJobs"
    message = f"Job {metadata.name_of(failed)} was the first to fail"
    ended = conditions.with_marks(present, [Mark("Failed", "True", reason, message)], now)
    return {"conditions": ended, "terminalState": "Failed"}


def failure_time(child: Json) -> str:
    return str((conditions.find(child, "Failed") or {}).get("lastTransitionTime") or "")


def rule_for(obj: Json, failed: Json) -> Json:
    """Return the first rule that matches the reason and the replicated job of this failure."""
    facts = {
        "onJobFailureReasons": (conditions.find(failed, "Failed") or {}).get("reason"),
        "targetReplicatedJobs": metadata.labels_of(failed).get(REPLICATED_JOB),
    }
    rules = fields.list_at(obj, (*FAILURE_POLICY, "rules"))
    return next((rule for rule in rules if all(not rule.get(k) or v in rule[k] for k, v in facts.items())), {})


def policy_errors(obj: Json) -> Iterator[FieldError]:
    strategy = fields.text_at(obj, (*FAILURE_POLICY, "restartStrategy"))
    if strategy and strategy not in STRATEGIES:
        yield not_supported(fields.show((*FAILURE_POLICY, "restartStrategy")), strategy, STRATEGIES)
    for position, rule in enumerate(fields.list_at(obj, (*FAILURE_POLICY, "rules"))):
        at = fields.show((*FAILURE_POLICY, "rules", position))
        if rule.get("action") not in ACTIONS:
            yield not_supported(f"{at}.action", rule.get("action"), ACTIONS)
        if rule.get("onJobFailureMessagePatterns"):
            yield forbidden(f"{at}.onJobFailureMessagePatterns", "only the operator of JobSet can do it")


def has_succeeded(obj: Json, status: Sequence[Json]) -> bool:
    policy = fields.json_at(obj, ("spec", "successPolicy"))
    targets = policy.get("targetReplicatedJobs") or [
        group.get("name") for group in fields.list_at(obj, REPLICATED_JOBS)
    ]
    wanted = {str(g.get("name")): replicas(g) for g in fields.list_at(obj, REPLICATED_JOBS)}
    done = {str(s.get("name")): fields.int_at(s, ("succeeded",)) for s in status}
    if policy.get("operator") == "Any":
        return any(done.get(name, 0) > 0 for name in targets)
    return all(done.get(name, 0) >= wanted.get(name, 0) for name in targets)
