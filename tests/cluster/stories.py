"""
Short stories about queues that are told twice: once with upstream Kueue in charge, once with Kyu.

A story acts as users do and waits for what must come of it; ``decided`` is what a program can read afterwards: who was
admitted where, who was evicted and why, what the queues count. Both tellings must end the same. Each story has its own
namespace and queues, so that they share a control plane.

Called by: test_same_decisions.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from tests.cluster.client import Client, Manifest, condition, has
from tests.cluster.nodes import RUN_FOR, end_pod
from tests.support import manifests

KUEUE = "kueue.x-k8s.io/v1beta2"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

Story = Callable[[Client], None]


def borrowed_quota_makes_the_owner_wait(admin: Client) -> None:
    namespace = "wait"
    set_up(admin, namespace, queue(namespace, "a"), queue(namespace, "b"))
    admin.create(job(namespace, "borrower", "a", cpu="8"))
    wait_for_workload(admin, namespace, "borrower", "Admitted")
    admin.create(job(namespace, "owner", "b", cpu="4", run_for="0s"))
    wait_for_workload(admin, namespace, "owner", "QuotaReserved", "False")
    end_pod(admin, "borrower", namespace)
    for name in ("borrower", "owner"):
        wait_for_workload(admin, namespace, name, "Finished")


def an_owner_takes_back_what_was_borrowed(admin: Client) -> None:
    """The newest borrower is evicted; it stays pending while the owner runs."""
    namespace = "reclaim"
    set_up(admin, namespace, queue(namespace, "a"), queue(namespace, "b", {"reclaimWithinCohort": "Any"}))
    for name in ("first", "second"):
        admin.create(job(namespace, name, "a", cpu="4"))
        wait_for_workload(admin, namespace, name, "PodsReady")
        await_next_second()
    admin.create(job(namespace, "owner", "b", cpu="4"))
    wait_for_workload(admin, namespace, "second", "Evicted")
    wait_for_workload(admin, namespace, "owner", "PodsReady")
    wait_for_workload(admin, namespace, "second", "QuotaReserved", "False", message="more needed")


def a_more_important_job_goes_first(admin: Client) -> None:
    namespace = "priority"
    important: Manifest = {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
    }
    set_up(admin, namespace, queue(namespace, "a", {"withinClusterQueue": "LowerPriority"}, cohort=""), [important])
    admin.create(job(namespace, "usual", "a", cpu="4"))
    wait_for_workload(admin, namespace, "usual", "PodsReady")
    admin.create(job(namespace, "urgent", "a", cpu="4", priority="important"))
    wait_for_workload(admin, namespace, "urgent", "PodsReady")
    wait_for_workload(admin, namespace, "usual", "QuotaReserved", "False", message="more needed")


def a_queue_is_drained_and_opened_again(admin: Client) -> None:
    namespace = "drain"
    set_up(admin, namespace, queue(namespace, "a", cohort=""))
    admin.create(job(namespace, "work", "a", cpu="4"))
    wait_for_workload(admin, namespace, "work", "PodsReady")
    name = f"{namespace}-a"
    admin.patch(KUEUE, "ClusterQueue", name, {"spec": {"stopPolicy": "HoldAndDrain"}})
    admin.until(lambda found: found["spec"]["suspend"], "batch/v1", "Job", "work", namespace)
    admin.until(has("Active", "False"), KUEUE, "ClusterQueue", name)
    admin.patch(KUEUE, "ClusterQueue", name, {"spec": {"stopPolicy": "None"}})
    admin.until(has("Active"), KUEUE, "ClusterQueue", name)
    admin.until(lambda found: not found["spec"]["suspend"], "batch/v1", "Job", "work", namespace)
    wait_for_workload(admin, namespace, "work", "PodsReady")


def what_is_in_no_queue_is_left_alone(admin: Client) -> None:
    namespace = "alone"
    set_up(admin, namespace, queue(namespace, "a", cohort=""))
    admin.create(job(namespace, "free", None, cpu="1", run_for="0s"))
    admin.create(job(namespace, "lost", "no-such-queue", cpu="1"))
    admin.create(job(namespace, "too-big", "a", cpu="5"))
    admin.until(has("Complete"), "batch/v1", "Job", "free", namespace)
    wait_for_workload(admin, namespace, "lost", "QuotaReserved", "False")
    wait_for_workload(admin, namespace, "too-big", "QuotaReserved", "False")


def a_deleted_job_makes_room(admin: Client) -> None:
    namespace = "delete"
    set_up(admin, namespace, queue(namespace, "a", cohort=""))
    admin.create(job(namespace, "first", "a", cpu="3"))
    wait_for_workload(admin, namespace, "first", "Admitted")
    for name, cpu in (("second", "2"), ("third", "1")):
        admin.create(job(namespace, name, "a", cpu=cpu))
    # The small one overtakes: the strategy is BestEffortFIFO.
    wait_for_workload(admin, namespace, "third", "Admitted")
    wait_for_workload(admin, namespace, "second", "QuotaReserved", "False")
    admin.delete("batch/v1", "Job", "first", namespace)
    wait_for_workload(admin, namespace, "second", "Admitted")


def a_deactivated_workload_stops_and_may_come_back(admin: Client) -> None:
    namespace = "deactivate"
    set_up(admin, namespace, queue(namespace, "a", cohort=""))
    admin.create(job(namespace, "work", "a", cpu="4"))
    wait_for_workload(admin, namespace, "work", "PodsReady")
    name = admin.list(KUEUE, "Workload", namespace)[0]["metadata"]["name"]
    admin.patch(KUEUE, "Workload", name, {"spec": {"active": False}}, namespace)
    admin.until(lambda found: found["spec"]["suspend"], "batch/v1", "Job", "work", namespace)
    wait_for_workload(admin, namespace, "work", "QuotaReserved", "False")
    admin.create(job(namespace, "next", "a", cpu="4", run_for="0s"))
    wait_for_workload(admin, namespace, "next", "Finished")
    admin.patch(KUEUE, "Workload", name, {"spec": {"active": True}}, namespace)
    wait_for_workload(admin, namespace, "work", "Admitted")


def the_second_flavor_is_taken_when_the_first_is_full(admin: Client) -> None:
    namespace = "flavors"
    other: Manifest = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "other"}, "spec": {}}
    cluster_queue, local_queue = queue(namespace, "a", cohort="")
    group = cluster_queue["spec"]["resourceGroups"][0]
    group["flavors"].append({"name": "other", "resources": [{"name": "cpu", "nominalQuota": "2"}]})
    set_up(admin, namespace, [other, cluster_queue, local_queue])
    for name, cpu in (("first", "3"), ("second", "2"), ("third", "1")):
        admin.create(job(namespace, name, "a", cpu=cpu))
        wait_for_workload(admin, namespace, name, "Admitted")
    admin.create(job(namespace, "fourth", "a", cpu="1"))
    wait_for_workload(admin, namespace, "fourth", "QuotaReserved", "False")


STORIES: dict[str, Story] = {
    "wait": borrowed_quota_makes_the_owner_wait,
    "reclaim": an_owner_takes_back_what_was_borrowed,
    "priority": a_more_important_job_goes_first,
    "drain": a_queue_is_drained_and_opened_again,
    "alone": what_is_in_no_queue_is_left_alone,
    "delete": a_deleted_job_makes_room,
    "deactivate": a_deactivated_workload_stops_and_may_come_back,
    "flavors": the_second_flavor_is_taken_when_the_first_is_full,
}


def is_settled(admin: Client, namespace: str) -> bool:
    """Whether Jobs and queues say what their Workloads say; both programs write it a little later."""
    workloads = [entry for entry in admin.list(KUEUE, "Workload", namespace) if not has("Finished")(entry)]
    jobs = {entry["metadata"]["name"]: entry for entry in admin.list("batch/v1", "Job", namespace)}
    suspended = {name for name, entry in jobs.items() if entry["spec"]["suspend"]}
    if any(owner(entry) not in jobs or (owner(entry) in suspended) is has("Admitted")(entry) for entry in workloads):
        return False
    return all(
        counted([entry for entry in workloads if entry["spec"]["queueName"] == local_queue["metadata"]["name"]])
        <= admin.get(KUEUE, "ClusterQueue", local_queue["spec"]["clusterQueue"]).get("status", {}).items()
        for local_queue in admin.list(KUEUE, "LocalQueue", namespace)
    )


def counted(workloads: list[Manifest]) -> AbstractSet[tuple[str, int]]:
    """What a queue says in its status of these; who has quota and is not yet admitted counts in one of the two."""
    reserving = sum(has("QuotaReserved")(entry) for entry in workloads)
    return {
        "reservingWorkloads": reserving,
        "admittedWorkloads": sum(has("Admitted")(entry) for entry in workloads),
        "pendingWorkloads": len(workloads) - reserving,
    }.items()


def decided(admin: Client, namespace: str) -> Manifest:
    """The Jobs, their Workloads with all conditions, and the numbers of the queues."""
    jobs = {entry["metadata"]["name"]: entry for entry in admin.list("batch/v1", "Job", namespace)}
    workloads = {owner(entry): entry for entry in admin.list(KUEUE, "Workload", namespace)}
    queues = [
        entry for entry in admin.list(KUEUE, "ClusterQueue") if entry["spec"]["namespaceSelector"] == of(namespace)
    ]
    return {
        "jobs": {name: {"suspend": entry["spec"].get("suspend")} for name, entry in jobs.items()},
        "workloads": {name: {"conditions": conditions(entry), **outcome(entry)} for name, entry in workloads.items()},
        "queues": {entry["metadata"]["name"]: {**entry["status"], "conditions": conditions(entry)} for entry in queues},
    }


def outcome(workload: Manifest) -> Manifest:
    return {
        "admission": workload["status"].get("admission"),
        "priority": workload["spec"].get("priority"),
        "active": workload["spec"].get("active"),
        "queue": workload["spec"]["queueName"],
    }


def conditions(manifest: Manifest) -> dict[str, list[str]]:
    """
    Status and reason by type.

    Whether pods are ready is no decision of a queue, and a Workload that never had quota need not say that it is not
    admitted.
    """
    entries: list[Manifest] = manifest["status"].get("conditions", [])
    found = {entry["type"]: [entry["status"], entry["reason"]] for entry in entries if entry["type"] != "PodsReady"}
    if found.get("Admitted") == ["False", "NoReservation"] and "Evicted" not in found:
        del found["Admitted"]
    return found


def owner(workload: Manifest) -> str:
    name: str = workload["metadata"]["ownerReferences"][0]["name"]
    return name


def wait_for_workload(
    admin: Client, namespace: str, job_name: str, kind: str, status: str = "True", message: str = ""
) -> None:
    """Until the Workload of a Job has this condition, with these words in its message."""

    def wanted(found: Manifest) -> bool:
        return has(kind, status)(found) and message in condition(found, kind).get("message", "")

    uid = admin.get("batch/v1", "Job", job_name, namespace)["metadata"]["uid"]
    path = admin.path(KUEUE, "Workload", None, namespace)
    query = {"labelSelector": f"kueue.x-k8s.io/job-uid={uid}"}
    admin.until_event(lambda event: wanted(event["object"]), path, query)


def await_next_second() -> None:
    """Times in objects are whole seconds: of two workloads admitted in the same one, chance says who is the newer."""
    time.sleep(1.0 - time.time() % 1.0)


def set_up(admin: Client, namespace: str, *manifests: list[Manifest]) -> None:
    """A namespace with queues that admit from it only."""
    flavor: Manifest = {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": "main"},
        "spec": {"nodeLabels": {"pool": "main"}},
    }
    admin.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, flavor])
    for group in manifests:
        admin.apply(group)
        for manifest in group:
            if manifest["kind"] == "LocalQueue":
                admin.until(has("Active"), KUEUE, "LocalQueue", manifest["metadata"]["name"], namespace)


def of(namespace: str) -> Manifest:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def queue(namespace: str, name: str, preemption: Manifest | None = None, cohort: str | None = None) -> list[Manifest]:
    """Return queues with 4 CPUs, in the cohort of the namespace unless another is given."""
    cohort_name = namespace if cohort is None else cohort
    spec: Manifest = {"namespaceSelector": of(namespace)}
    spec |= {"cohortName": cohort_name} if cohort_name else {}
    spec |= {"preemption": preemption} if preemption else {}
    return manifests.queues(
        f"{namespace}-{name}", cpu="4", flavor="main", local_queue=name, namespace=namespace, **spec
    )


def job(
    namespace: str, name: str, queue_name: str | None, *, cpu: str, run_for: str = "", priority: str = ""
) -> Manifest:
    """Return a Job with one pod, which runs until it is deleted unless a time is given.

    It is suspended as by a webhook, which not every story has.
    """
    return manifests.job(
        name,
        queue=queue_name or "",
        cpu=cpu,
        namespace=namespace,
        metadata={"labels": {PRIORITY_LABEL: priority} if priority else {}},
        pod_annotations={RUN_FOR: run_for} if run_for else {},
        backoffLimit=0,
    )
