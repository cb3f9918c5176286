"""
The settings of other programs that follow from Tenants: YuniKorn's queues.yaml, SkyPilot's configuration, Helm values.

YuniKorn: docs/user_guide/queue_config. SkyPilot: its configuration reference, section kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kyu.api import documents, quantity
from kyu.api.meta import Json
from kyu.tenants.tenant import People, Tenant

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
Style = Literal["queue", "labels"]


def yunikorn(tenants: Iterable[Tenant]) -> Json:
    """Return queues.yaml: the tree of Tenants below root, with a leaf for each type of job."""
    tenants = list(tenants)
    roots = [yunikorn_queue(each, tenants) for each in tenants if each.parent is None]
    root = {"name": "root", "parent": True, "queues": roots}
    return {"partitions": [{"name": "default", "queues": [root]}]}


def yunikorn_queue(tenant: Tenant, tenants: list[Tenant]) -> Json:
    queue: Json = {"name": tenant.name}
    if acl := submit_acl(tenant.spec.members, tenant.spec.admins):
        queue["submitacl"] = acl
    if tenant.spec.quotas:
        queue["resources"] = yunikorn_resources(tenant)
    children = [
        yunikorn_queue(each, tenants) for each in tenants if each.parent is not None and each.parent.name == tenant.name
    ]
    children += [{"name": type_} for type_ in tenant.spec.job_types]
    if children:
        queue["parent"] = True
        queue["queues"] = children
    return queue


def yunikorn_resources(tenant: Tenant) -> Json:
    """Return guaranteed and maximal resources. YuniKorn has no flavors, so those of a resource are added up."""
    guaranteed: dict[str, int] = {}
    most: dict[str, int | None] = {}
    for quota in tenant.spec.quotas:
        for name, share in quota.shares().items():
            nominal = quantity.amount(name, str(share.nominal))
            guaranteed[name] = guaranteed.get(name, 0) + nominal
            bound = None if share.borrow is None else nominal + quantity.amount(name, str(share.borrow))
            before = most.get(name, 0)
            most[name] = None if bound is None or before is None else before + bound
    if tenant.parent is None:
        # Nothing can be borrowed above the root, so the guaranteed amount is all there is.
        most = {**guaranteed}
    limits = {name: amount for name, amount in most.items() if amount is not None}
    found: Json = {"guaranteed": yunikorn_amounts(guaranteed)}
    return {**found, "max": yunikorn_amounts(limits)} if limits else found


def yunikorn_amounts(amounts: dict[str, int]) -> Json:
    return {("vcore" if name == "cpu" else name): quantity.render(name, amount) for name, amount in amounts.items()}


def submit_acl(*people: People) -> str:
    """Return users and groups in YuniKorn's form: two lists with commas and a space between them."""
    users = [name for each in people for name in each.users]
    groups = [name for each in people for name in each.groups]
    return f"{','.join(users)} {','.join(groups)}".rstrip() if users or groups else ""


def skypilot(tenant: Tenant, style: Style = "queue") -> Json:
    """Return the configuration of a SkyPilot API server whose pods go to the queue of the Tenant.

    ``queue`` makes several nodes one group. ``labels`` is for versions that do not know the queue, one pod at a time.
    """
    queue = tenant.queue_name("sky" if "sky" in tenant.spec.job_types else "")
    if style == "labels":
        return {"kubernetes": {"pod_config": {"metadata": {"labels": {QUEUE_LABEL: queue}}}}}
    return {"kubernetes": {"kueue": {"local_queue_name": queue}}}


def helm_values(tenant: Tenant, style: Style = "queue") -> Json:
    """Return the values of SkyPilot's chart for a Tenant; the release belongs into its first namespace."""
    config = documents.render([skypilot(tenant, style)])
    return {"apiService": {"config": config}, "kubernetesCredentials": {"inclusterNamespace": tenant.namespaces[0]}}
