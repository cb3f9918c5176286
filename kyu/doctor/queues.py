"""Checks of queues, cohorts, flavors and checks. Each yields findings about one kind of fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from kyu.api import quantity, rules
from kyu.api.queues import BACKFILL, QUEUEING_STRATEGY_ANNOTATION
from kyu.doctor.world import (
    DoctorFinding,
    FoundObject,
    World,
    amount_of,
    checks_of,
    cohort_of,
    items,
    quotas_of,
    section,
    texts,
)

Findings = Iterator[DoctorFinding]
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def find_invalid(world: World) -> Findings:
    """Find objects of Kueue that the API server would refuse."""
    seen: set[tuple[str, str, str]] = set()
    for placed in world.objects:
        identity = (str(placed.object.get("kind")), placed.namespace, placed.name)
        if identity in seen and section(placed.object, "metadata").get("name") and not world.live:
            yield placed.error(
                "duplicate", "the object is given twice", "the one that is applied last wins", "remove one of them"
            )
        seen.add(identity)
        if world.live or not str(placed.object.get("apiVersion", "")).startswith("kueue.x-k8s.io/"):
            continue
        for fault in rules.validate(rules.defaults(placed.object)):
            what = f"{fault.field}: {fault.message}"
            yield placed.error("invalid", what, "the API server refuses the object", "correct the field")


def find_missing_flavors(world: World) -> Findings:
    """Find flavors of queues that do not exist."""
    flavors = world.names("ResourceFlavor")
    for placed in (*world.all("ClusterQueue"), *world.all("Cohort")):
        for name in dict.fromkeys(quota.flavor for quota in quotas_of(placed)):
            if name not in flavors:
                yield placed.error(
                    "flavor-missing",
                    f"there is no ResourceFlavor {name!r}",
                    "the ClusterQueue is inactive: it admits nothing, in no flavor",
                    f"create the ResourceFlavor, or remove {name!r} from the resource groups",
                )


def find_missing_queues(world: World) -> Findings:
    """Find LocalQueues that lead nowhere, and ClusterQueues that no LocalQueue leads to."""
    known = world.cluster_queues()
    for door in world.all("LocalQueue"):
        name = door.spec.get("clusterQueue")
        if name not in known and (known or world.live):
            yield door.error(
                "clusterqueue-missing",
                f"there is no ClusterQueue {name!r}",
                "jobs of this queue wait for ever",
                f"name one that exists: {', '.join(sorted(known)[:5]) or 'there is none'}",
            )
    if not world.knows("LocalQueue"):
        return
    used = {door.spec.get("clusterQueue") for door in world.all("LocalQueue")}
    for placed in world.all("ClusterQueue"):
        if placed.name not in used:
            yield placed.warning(
                "localqueue-missing",
                "no LocalQueue leads to this ClusterQueue",
                "no job can use its quota; only a cohort can borrow it",
                "create a LocalQueue in each namespace that may use it",
            )


def find_unused_flavors(world: World) -> Findings:
    """Find flavors that no queue lists."""
    used = {quota.flavor for p in (*world.all("ClusterQueue"), *world.all("Cohort")) for quota in quotas_of(p)}
    used |= {str(f.get("name")) for p in world.all("MasterQueue") for f in items(p.spec, "flavors")}
    if not world.knows("ClusterQueue") and not world.all("MasterQueue"):
        return
    for placed in world.all("ResourceFlavor"):
        if placed.name not in used and not section(placed.object, "metadata").get("ownerReferences"):
            yield placed.warning(
                "flavor-unused",
                "no ClusterQueue lists this flavor",
                "its nodes get no jobs from any queue",
                "add it to a resource group, or delete it",
            )


def find_missing_topologies(world: World) -> Findings:
    """Find flavors whose Topology does not exist."""
    for placed in world.all("ResourceFlavor"):
        name = placed.spec.get("topologyName")
        if name and name not in world.names("Topology"):
            yield placed.error(
                "topology-missing",
                f"there is no Topology {name!r}",
                "every ClusterQueue with this flavor is inactive",
                "create the Topology, or remove topologyName",
            )


def find_missing_checks(world: World) -> Findings:
    """Find admission checks that do not exist, or are for flavors that the queue does not have."""
    known = world.names("AdmissionCheck")
    for placed in world.all("ClusterQueue"):
        flavors = {quota.flavor for quota in quotas_of(placed)}
        for check in checks_of(placed):
            if check.get("name") not in known:
                yield placed.error(
                    "check-missing",
                    f"there is no AdmissionCheck {check.get('name')!r}",
                    "the ClusterQueue is inactive: it admits nothing",
                    "create the AdmissionCheck, or remove it from the queue",
                )
            for name in texts(check, "onFlavors"):
                if name not in flavors:
                    yield placed.error(
                        "check-flavor-missing",
                        f"check {check.get('name')!r} is for flavor {name!r}, which the queue does not have",
                        "the check never runs for that flavor",
                        "correct onFlavors",
                    )


def find_provisioning(world: World) -> Findings:
    """Find provisioning checks without a configuration, or with a class that provisions nothing."""
    for placed in world.all("AdmissionCheck"):
        name = section(placed.spec, "parameters").get("name")
        if placed.spec.get("controllerName") == PROVISIONING and name not in world.names("ProvisioningRequestConfig"):
            yield placed.error(
                "provisioning-config-missing",
                f"there is no ProvisioningRequestConfig {name!r}",
                "the check is inactive, and with it every ClusterQueue that uses it",
                "create the ProvisioningRequestConfig",
            )
    for placed in world.all("ProvisioningRequestConfig"):
        if placed.spec.get("provisioningClassName") == "check-capacity.autoscaling.x-k8s.io":
            yield placed.warning(
                "check-capacity-only",
                "the class check-capacity only checks; it adds no node",
                "jobs wait until nodes are free by themselves",
                "use best-effort-atomic-scale-up.autoscaling.x-k8s.io to add nodes",
            )


def find_limits(world: World) -> Findings:
    """Find limits of borrowing and lending that have no effect."""
    for placed in world.all("ClusterQueue"):
        for quota in quotas_of(placed):
            where = f"{quota.resource} of {quota.flavor}"
            limits = [name for name in ("borrowingLimit", "lendingLimit") if quota.body.get(name) is not None]
            if limits and not cohort_of(placed):
                yield placed.error(
                    "limit-without-cohort",
                    f"{limits[0]} of {where}, but no cohort",
                    "without a cohort nothing is borrowed or lent",
                    f"set cohortName, or remove {limits[0]}",
                )
            lending = amount_of(quota.resource, quota.body.get("lendingLimit"))
            if lending is not None and lending > quota.nominal:
                yield placed.error(
                    "lending-above-nominal",
                    f"lendingLimit of {where} is above the nominal quota",
                    "the API server refuses it: a queue cannot lend more than it has",
                    "lower lendingLimit",
                )


def find_cohorts(world: World) -> Findings:
    """Find cohorts of one member, cohorts that form a circle, and quota of cohorts that no member can use."""
    names = {cohort_of(placed) for placed in world.all("ClusterQueue")} - {""}
    parents = {placed.name: cohort_of(placed) for placed in world.all("Cohort")}
    for name in sorted(names):
        members = world.members(name)
        if len(members) == 1 and name not in parents:
            yield members[0].warning(
                "cohort-of-one",
                f"cohort {name!r} has no other member and no quota of its own",
                "there is nothing to borrow and no queue to lend to",
                "check the spelling of the cohort in the other queues",
            )
    for placed in world.all("Cohort"):
        seen, above = {placed.name}, parents.get(placed.name, "")
        while above and above not in seen:
            seen.add(above)
            above = parents.get(above, "")
        if above == placed.name:
            yield placed.error(
                "cohort-cycle",
                "its parents form a circle",
                "every ClusterQueue below it is inactive",
                "remove parentName from one of them",
            )
        below = {quota.flavor for queue in world.members(placed.name) for quota in quotas_of(queue)}
        has_children = any(child.object.get("kind") == "Cohort" for child in world.members(placed.name))
        for flavor in dict.fromkeys(quota.flavor for quota in quotas_of(placed)):
            if flavor not in below and not has_children:
                yield placed.warning(
                    "cohort-quota-unreachable",
                    f"no ClusterQueue of the cohort lists flavor {flavor!r}",
                    "a queue can only borrow flavors that it lists itself, so this quota is never used",
                    f"list {flavor!r} in a member with nominalQuota 0",
                )


def find_dead_preemption(world: World) -> Findings:
    """Find preemption settings that can never fire."""
    for placed in world.all("ClusterQueue"):
        preemption, cohort = section(placed.spec, "preemption"), cohort_of(placed)
        reclaim = preemption.get("reclaimWithinCohort", "Never")
        within = preemption.get("withinClusterQueue", "Never")
        borrow = section(preemption, "borrowWithinCohort").get("policy", "Never")
        if reclaim != "Never" and not cohort:
            yield placed.warning(
                "reclaim-without-cohort", f"reclaimWithinCohort is {reclaim}, but there is no cohort",
                "there is no queue to reclaim quota from", "set cohortName, or remove the setting",
            )  # fmt: skip
        elif reclaim != "Never" and not any(quota.nominal for quota in quotas_of(placed)):
            yield placed.warning(
                "reclaim-without-quota", f"reclaimWithinCohort is {reclaim}, but all nominal quotas are 0",
                "a queue reclaims only up to its own nominal quota", "give the queue quota, or remove the setting",
            )  # fmt: skip
        if borrow != "Never" and reclaim == "Never":
            yield placed.error(
                "borrow-without-reclaim", "borrowWithinCohort is set, but reclaimWithinCohort is Never",
                "the API server refuses this", "set reclaimWithinCohort, or remove borrowWithinCohort",
            )  # fmt: skip
        fungibility = section(placed.spec, "flavorFungibility").get("whenCanPreempt")
        if fungibility in ("Preempt", "MayStopSearch") and reclaim == within == "Never":
            yield placed.warning(
                "preempt-never", f"whenCanPreempt is {fungibility}, but the queue never preempts",
                "the setting has no effect", "set preemption, or remove whenCanPreempt",
            )  # fmt: skip
        values = {c.object.get("value") for c in (*world.all("WorkloadPriorityClass"), *world.all("PriorityClass"))}
        if within == "LowerPriority" and len(values) == 1 and not world.live:
            yield placed.warning(
                "priorities-equal", "withinClusterQueue is LowerPriority, but all priority classes have one value",
                "no workload has a lower priority than another", "add classes, or use LowerOrNewerEqualPriority",
            )  # fmt: skip


def find_quotas(world: World) -> Findings:
    """Find queues without any quota, and quotas that hide later flavors or make a cohort pointless."""
    for placed in world.all("ClusterQueue"):
        quotas = list(quotas_of(placed))
        is_set = any(quota.nominal for quota in quotas) or world.follows_clusters(placed.name)
        if not cohort_of(placed) and not is_set:
            yield placed.error(
                "quota-zero", "all quotas are 0, and there is no cohort to borrow from", "no job ever starts",
                "set nominalQuota, or cohortName",
            )  # fmt: skip
        if cohort_of(placed) and any(quota.is_unlimited for quota in quotas):
            yield placed.warning(
                "quota-infinite", "a quota is practically unlimited, in a cohort",
                "the queue never borrows, so the cohort has no effect, and nothing is fair between teams",
                "set the quota to what the nodes have",
            )  # fmt: skip
        for group in items(placed.spec, "resourceGroups"):
            yield from _find_hidden_flavors(placed, items(group, "flavors"))


def _find_hidden_flavors(placed: FoundObject, flavors: list[Mapping[str, Any]]) -> Findings:
    for earlier, later in pairwise(flavors):
        name = str(earlier.get("name"))
        if all(quota.is_unlimited for quota in quotas_of(placed) if quota.flavor == name):
            hidden = later.get("name")
            yield placed.warning(
                "flavor-hidden", f"flavor {hidden!r} comes after {name!r}, whose quota is practically unlimited",
                "a job that may use both never reaches the later one", "order the flavors, or limit the first",
            )  # fmt: skip


def find_selectors(world: World) -> Findings:
    """Find ClusterQueues that select no namespace, or not the namespace of their LocalQueue."""
    labels = {placed.name: placed.labels for placed in world.all("Namespace")}
    for placed in world.all("ClusterQueue"):
        selector = placed.spec.get("namespaceSelector")
        if selector is None:
            yield placed.error(
                "selector-absent", "namespaceSelector is absent, which selects no namespace", "no job is admitted",
                "set `namespaceSelector: {}` for all namespaces",
            )  # fmt: skip
            continue
        wanted = section(selector, "matchLabels")
        for door in world.all("LocalQueue"):
            if door.spec.get("clusterQueue") != placed.name or door.namespace not in labels:
                continue
            has = {**labels[door.namespace], "kubernetes.io/metadata.name": door.namespace}
            if any(has.get(key) != value for key, value in wanted.items()):
                yield door.error(
                    "namespace-not-selected",
                    f"ClusterQueue {placed.name} does not select namespace {door.namespace}",
                    "jobs of this LocalQueue are never admitted",
                    f"label the namespace with {', '.join(f'{k}={v}' for k, v in wanted.items())}",
                )


def find_stopped(world: World) -> Findings:
    """Find queues that are stopped."""
    for placed in (*world.all("ClusterQueue"), *world.all("LocalQueue")):
        policy = placed.spec.get("stopPolicy", "None")
        if policy != "None":
            yield placed.warning(
                "stopped", f"stopPolicy is {policy}", "the queue admits nothing", "`kyu ctl resume` resumes it"
            )


def find_strategies(world: World) -> Findings:
    """Find annotations of a queueing strategy that have no effect, and weights of 0."""
    for placed in world.all("ClusterQueue"):
        wanted = placed.annotations.get(QUEUEING_STRATEGY_ANNOTATION)
        if wanted is not None and wanted != BACKFILL:
            yield placed.error(
                "strategy-unknown", f"{QUEUEING_STRATEGY_ANNOTATION} is {wanted!r}", "the value has no effect",
                f"use {BACKFILL!r}, or remove the annotation",
            )  # fmt: skip
        elif wanted is not None and placed.spec.get("queueingStrategy") != "StrictFIFO":
            yield placed.warning(
                "backfill-not-strict", "backfill is asked for, but queueingStrategy is not StrictFIFO",
                "the annotation has no effect: large jobs can starve", "set `queueingStrategy: StrictFIFO`",
            )  # fmt: skip
        weight = section(placed.spec, "fairSharing").get("weight")
        if weight is not None and amount_of("weight", weight) == 0:
            yield placed.warning(
                "weight-zero", "the weight of fair sharing is 0",
                "its share counts as infinite: it is always preempted first", "use a small weight such as 0.1",
            )  # fmt: skip


def find_nodes(world: World) -> Findings:
    """Find flavors that no node belongs to, and quota that the nodes do not have."""
    nodes = world.all("Node")
    if not nodes:
        return
    total: Counter[tuple[str, str]] = Counter()
    for placed in (*world.all("ClusterQueue"), *world.all("Cohort")):
        for quota in quotas_of(placed):
            total[quota.flavor, quota.resource] += quota.nominal
    for flavor in world.all("ResourceFlavor"):
        wanted = section(flavor.spec, "nodeLabels")
        fitting = [node for node in nodes if all(node.labels.get(key) == value for key, value in wanted.items())]
        if not fitting:
            yield flavor.error(
                "flavor-without-nodes", "no node has the labels of this flavor",
                "jobs are admitted, and their pods stay pending", "correct nodeLabels, or label the nodes",
            )  # fmt: skip
            continue
        for (name, resource), quota_amount in sorted(total.items()):
            allocatable = [section(section(node.object, "status"), "allocatable").get(resource, 0) for node in fitting]
            there = sum(amount_of(resource, value) or 0 for value in allocatable)
            if name == flavor.name and quota_amount > there:
                yield flavor.warning(
                    "quota-above-nodes",
                    f"queues have {quantity.render(resource, quota_amount)} {resource} of it, "
                    f"its nodes {quantity.render(resource, there)}",
                    "jobs are admitted, and their pods stay pending",
                    "lower the quotas, or add nodes",
                )


CHECKS = (
    find_invalid, find_missing_flavors, find_missing_queues, find_unused_flavors, find_missing_topologies,
    find_missing_checks, find_provisioning, find_limits, find_cohorts, find_dead_preemption, find_quotas,
    find_selectors, find_stopped, find_strategies, find_nodes,
)  # fmt: skip
