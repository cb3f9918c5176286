"""
Services: defaults and validation. Kyu has no cluster network, so a Service gets no address.

Kubernetes: pkg/apis/core/{v1/defaults.go,validation}, pkg/registry/core/service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, port_name
from kyu.server.validation.checks import ip_address, objections, one_of, port_number
from kyu.server.validation.metadata import validate_labels

HEADLESS: Final = "None"
TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
OUTSIDE: Final = ("LoadBalancer", "NodePort")
AFFINITIES: Final = ("ClientIP", "None")
POLICIES: Final = ("Cluster", "Local")
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
AFFINITY_SECONDS: Final = 10_800
MAX_AFFINITY_SECONDS: Final = 86_400
# Fields that the server sets, and that an update may leave out.
ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def default_service(service: Json) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", AFFINITY_SECONDS)
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in OUTSIDE:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)


def prepare_service(service: Json) -> None:
    """Complete a headless service. Without a selector, it may have addresses of both families."""
    spec = service["spec"]
    if spec.get("clusterIP") == HEADLESS and spec["type"] != "ExternalName":
        spec.setdefault("clusterIPs", [HEADLESS])
        spec.setdefault("ipFamilies", ["IPv4"] if spec.get("selector") else ["IPv4", "IPv6"])
        spec.setdefault("ipFamilyPolicy", "SingleStack" if len(spec["ipFamilies"]) == 1 else "RequireDualStack")


def prepare_service_update(new: Json, old: Json) -> None:
    after, before = new["spec"], old.get("spec") or {}
    if after["type"] != "ExternalName":
        for name in ADDRESSES:
            if name in before:
                after.setdefault(name, before[name])


def validate_service(service: Json) -> Iterator[FieldError]:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != HEADLESS and spec.get("type") != "ExternalName":
        yield fields.required("spec.ports")
    for index, port in enumerate(ports):
        yield from _port(port, ports[:index], f"spec.ports[{index}]", needs_name=len(ports) > 1)
    yield from validate_labels(spec.get("selector") or {}, "spec.selector")
    yield from _choices(spec)
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        yield fields.required("spec.externalName")
    if spec.get("externalTrafficPolicy") and spec.get("type") not in OUTSIDE and not spec.get("externalIPs"):
        detail = "may only be set for externally-accessible services"
        yield fields.invalid("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], detail)
    if spec.get("clusterIP") and spec["clusterIP"] != HEADLESS:
        yield from ip_address("spec.clusterIPs[0]", spec["clusterIP"])
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from ip_address(f"spec.externalIPs[{index}]", address)


def _choices(spec: Json) -> Iterator[FieldError]:
    yield from one_of("spec.type", spec.get("type"), TYPES)
    yield from one_of("spec.sessionAffinity", spec.get("sessionAffinity"), AFFINITIES)
    yield from one_of("spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), POLICIES)
    if spec.get("sessionAffinity") == "ClientIP":
        seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds", 0)
        if not 0 < seconds <= MAX_AFFINITY_SECONDS:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            yield fields.invalid(path, seconds, f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}")


def _port(port: Json, earlier: Sequence[Json], path: str, *, needs_name: bool) -> Iterator[FieldError]:
    name = port.get("name", "")
    if not name:
        if needs_name:
            yield fields.required(f"{path}.name")
    else:
        yield from objections(f"{path}.name", name, label)
        if any(other.get("name") == name for other in earlier):
            yield fields.duplicate(f"{path}.name", name)
    number, target, protocol = port.get("port", 0), port.get("targetPort"), port.get("protocol", "TCP")
    yield from port_number(f"{path}.port", number)
    if isinstance(target, str):
        yield from objections(f"{path}.targetPort", target, port_name)
    elif target is not None:
        yield from port_number(f"{path}.targetPort", target)
    yield from one_of(f"{path}.protocol", protocol, PROTOCOLS)
    if any((other.get("port"), other.get("protocol", "TCP")) == (number, protocol) for other in earlier):
        yield fields.duplicate(path, _place(number, protocol))


def _place(number: int, protocol: str) -> dict[str, Any]:
    """Return a port in the notation of Kubernetes."""
    return {
        "Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0,
    }  # fmt: skip
