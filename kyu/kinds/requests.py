"""
The requests of one pod of a template.

Containers run together, so they add up; init containers run before them one by one, so the largest counts; sidecars
(init containers that stay) add to all that comes after them. Requests of the pod as a whole count if they are larger,
overhead is added at the end. A limit without a request is a request.

Kubernetes: resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kyu.api.meta import Json
from kyu.api.quantity import Quantity, parse

Requests: TypeAlias = dict[str, Quantity]
POD_LEVEL = ("cpu", "memory")


def pod_requests(template: Json) -> Requests:
    """Return the requests of a pod. Raise ``QuantityError`` for a text that is no quantity."""
    spec = template.get("spec") or {}
    running: Requests = {}
    for container in spec.get("containers") or ():
        add(running, container_requests(container))
    if spec.get("initContainers"):
        add_init_containers(running, spec["initContainers"])
    if spec.get("resources"):
        # Kubernetes refuses a pod that requests less than its containers, so the larger one counts.
        whole = container_requests(spec)
        raise_to(running, {name: whole[name] for name in whole if name in POD_LEVEL or name.startswith("hugepages-")})
    if spec.get("overhead"):
        add(running, parsed(spec["overhead"]))
    return running


def fits_into(template: Json, admitted: Json) -> bool:
    """Return whether a pod of the first template requests no more than a pod of the second, of each resource."""
    most = pod_requests(admitted)
    return all(name in most and wanted <= most[name] for name, wanted in pod_requests(template).items() if wanted.nanos)


def add_init_containers(running: Requests, containers: Sequence[Json]) -> None:
    sidecars: Requests = {}
    highest: Requests = {}
    for container in containers:
        own = container_requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, own)
            raise_to(highest, sidecars)
        else:
            together = dict(sidecars)
            add(together, own)
            raise_to(highest, together)
    add(running, sidecars)
    raise_to(running, highest)


def container_requests(container: Json) -> Requests:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return {}
    requests = parsed(resources.get("requests") or {})
    limits = resources.get("limits")
    return {**parsed(limits), **requests} if limits else requests


def parsed(listed: Mapping[str, str | int | float]) -> Requests:
    return {name: parse(value) for name, value in listed.items()}


def add(total: Requests, more: Requests) -> None:
    for name, quantity in more.items():
        total[name] = total[name] + quantity if name in total else quantity


def raise_to(total: Requests, least: Requests) -> None:
    for name, quantity in least.items():
        total[name] = max(total[name], quantity) if name in total else quantity


def with_limits(wanted: Mapping[str, str]) -> Json:
    """
    Return requests and limits. Memory is limited to its request, so that a job cannot take the memory of others.
    Kubernetes requires a limit for extended resources such as GPUs. Cores have none: a job may use idle ones.
    """
    limits = {name: amount for name, amount in wanted.items() if "/" in name or name == "memory"}
    return {"requests": dict(wanted), "limits": limits} if limits else {"requests": dict(wanted)}
