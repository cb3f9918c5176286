"""Checks of settings: Kueue's Configuration, SkyPilot's configuration, MasterQueues, versions of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kyu.doctor.world import DoctorFinding, FoundObject, World, items, section, texts
from kyu.kinds import table
from kyu.kinds.metadata import QUEUE_NAME

Findings = Iterator[DoctorFinding]
# Pools announce themselves every 30 seconds.
SHORTEST_POOL_TIMEOUT = 30
STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
# Frameworks that Kueue knows, although Kyu queues their jobs in another way.
OTHER_FRAMEWORKS = frozenset({"kubeflow.org/mxjob"})


def find_configuration_faults(world: World) -> Findings:
    """Find faults of Kueue's Configuration."""
    for placed in world.all("Configuration"):
        integrations = section(placed.object, "integrations")
        frameworks = texts(integrations, "frameworks")
        for name, count in Counter(frameworks).items():
            if count > 1:
                yield placed.error(
                    "framework-twice", f"integrations.frameworks lists {name!r} {count} times",
                    "Kueue's manager refuses the configuration and does not start", "list it once",
                )  # fmt: skip
            if name not in table.FRAMEWORKS and name not in OTHER_FRAMEWORKS:
                yield placed.error(
                    "framework-unknown", f"integrations.frameworks lists {name!r}, which does not exist",
                    "the configuration is refused", f"use some of {', '.join(table.FRAMEWORKS[:4])}, …",
                )  # fmt: skip
        queued = [pod for pod in world.all("Pod") if pod.labels.get(QUEUE_NAME)]
        if frameworks and "pod" not in frameworks and queued:
            yield placed.error(
                "framework-missing", f"pods such as {queued[0].name} name a queue, but `pod` is not enabled",
                "the pods run at once, outside every quota", "add `pod` to integrations.frameworks",
            )  # fmt: skip
        waiting = section(placed.object, "waitForPodsReady")
        if waiting.get("blockAdmission") is True and len(world.all("ClusterQueue")) > 1:
            yield placed.warning(
                "admission-blocked", "waitForPodsReady.blockAdmission is true for several ClusterQueues",
                "while the pods of one job start, no other team's job is admitted", "set it to false",
            )  # fmt: skip
        sharing = placed.object.get("admissionFairSharing")
        if isinstance(sharing, dict) and sharing.get("usageHalfLifeTime") in (None, 0, "0", "0s"):
            yield placed.warning(
                "half-life-zero", "admissionFairSharing has no usageHalfLifeTime",
                "past usage is forgotten at once, so the setting does nothing", "set it, for example to 168h",
            )  # fmt: skip


def find_skypilot_faults(world: World) -> Findings:
    """Find faults of SkyPilot's configuration files, which have no kind."""
    for placed in world.all(""):
        settings = section(placed.object, "kubernetes")
        labels = section(section(section(settings, "pod_config"), "metadata"), "labels")
        named = section(settings, "quota").get("queue") or section(settings, "kueue").get("local_queue_name")
        if labels.get(QUEUE_NAME) and not named:
            yield placed.warning(
                "skypilot-label", "the queue is a label in pod_config, so pods have no group",
                "a job of four nodes is four Workloads, which may start in part and wait for ever",
                f"set kubernetes.kueue.local_queue_name: {labels[QUEUE_NAME]}",
            )  # fmt: skip
        queue = named or labels.get(QUEUE_NAME)
        if queue and world.knows("LocalQueue") and queue not in world.names("LocalQueue"):
            yield placed.error(
                "skypilot-queue-missing", f"there is no LocalQueue {queue!r}",
                "every pod of SkyPilot stays gated for ever",
                f"name one of {', '.join(sorted(world.names('LocalQueue'))[:5]) or 'none'}",
            )  # fmt: skip


def find_masterqueue_faults(world: World) -> Findings:
    """Find faults of MasterQueues."""
    for placed in world.all("MasterQueue"):
        template = section(placed.spec, "template")
        policy = template.get("stopPolicy", "None")
        if policy not in STOP_POLICIES:
            yield placed.error(
                "stop-policy-unknown", f"template.stopPolicy is {policy!r}, which no ClusterQueue takes",
                "the ClusterQueues are refused", f"use one of {', '.join(STOP_POLICIES)}",
            )  # fmt: skip
        for flavor in items(placed.spec, "flavors"):
            yield from _find_pool_faults(placed, flavor)


def _find_pool_faults(placed: FoundObject, flavor: object) -> Findings:
    body = section({"flavor": flavor}, "flavor")
    nats, name = section(body, "natsFlavor"), body.get("name")
    timeout = nats.get("poolTimeout")
    if isinstance(timeout, int) and timeout < SHORTEST_POOL_TIMEOUT:
        yield placed.warning(
            "pool-timeout-short", f"poolTimeout of flavor {name!r} is {timeout} s, and pools speak every 30 s",
            "pools come and go, and with them their quota", "use at least 75",
        )  # fmt: skip
    if "@" in str(nats.get("natsConnector", "")):
        yield placed.warning(
            "credentials-in-spec", f"natsConnector of flavor {name!r} holds a password",
            "all users who may read MasterQueues can read it", "give the controller the credentials in a Secret",
        )  # fmt: skip
    if nats.get("pools") and nats.get("poolRegExp"):
        yield placed.error(
            "pools-twice", f"flavor {name!r} has both pools and poolRegExp", "the API server refuses it", "keep one"
        )
    if "localFlavor" in body and not section(body, "nominalQuota"):
        yield placed.error(
            "local-flavor-without-quota", f"localFlavor {name!r} has no nominalQuota",
            "upstream's controller stops working on the whole MasterQueue", "set nominalQuota",
        )  # fmt: skip


def find_old_versions(world: World) -> Findings:
    """Find versions of the API that servers no longer have."""
    for placed in world.all("Cohort"):
        if placed.object.get("apiVersion") == "kueue.x-k8s.io/v1alpha1":
            yield placed.warning(
                "cohort-old", "kueue.x-k8s.io/v1alpha1 of Cohort was removed in Kueue 0.13",
                "newer releases refuse the manifest", "use kueue.x-k8s.io/v1beta2, with parentName for parent",
            )  # fmt: skip


CHECKS = (find_configuration_faults, find_skypilot_faults, find_masterqueue_faults, find_old_versions)
