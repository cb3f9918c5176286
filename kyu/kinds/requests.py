"""
What one pod of a template asks for.

Containers run together, so they add up; init containers run before them one by one, so the largest counts; sidecars
(init containers that stay) add to all that comes after them. Requests of the pod as a whole take the place of the sum,
overhead is added at the end. A limit without a request is a request.

Used by: workflows. Kubernetes: component-helpers resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kyu.api.meta import Json
from kyu.api.quantity import Quantity, parse
from kyu.kinds import fields

Requests: TypeAlias = dict[str, Quantity]
POD_LEVEL = ("cpu", "memory")


def pod_requests(template: Json) -> Requests:
    """Raises ``QuantityError`` for what is not a quantity."""
    spec = fields.json_at(template, ("spec",))
    running: Requests = {}
    for container in fields.list_at(spec, ("containers",)):
        add(running, container_requests(container))
    sidecars: Requests = {}
    highest: Requests = {}
    for container in fields.list_at(spec, ("initContainers",)):
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
    for name, quantity in container_requests(spec).items():
        if name in POD_LEVEL or name.startswith("hugepages-"):
            running[name] = quantity
    add(running, parsed(fields.json_at(spec, ("overhead",))))
    return running


def container_requests(container: Json) -> Requests:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return {}
    return {**parsed(resources.get("limits") or {}), **parsed(resources.get("requests") or {})}


def parsed(listed: Mapping[str, str | int | float]) -> Requests:
    return {name: parse(value) for name, value in listed.items()}


def add(total: Requests, more: Requests) -> None:
    for name, quantity in more.items():
        total[name] = total[name] + quantity if name in total else quantity


def raise_to(total: Requests, least: Requests) -> None:
    for name, quantity in least.items():
        total[name] = max(total[name], quantity) if name in total else quantity
