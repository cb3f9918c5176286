"""
Ingresses, NetworkPolicies and Endpoints: defaults and validation. Kyu stores them, and routes nothing.

Kubernetes: pkg/apis/networking/{v1/defaults.go,validation}, pkg/apis/core/validation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, label_key, path_segment, port_name, subdomain, wildcard
from kyu.server.validation.checks import IP_ADDRESS, ip_address, is_ip_address, objections, one_of, port_number
from kyu.server.validation.metadata import validate_label_selector

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
NOT_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F")
NOT_AT_THE_END: Final = ("/..", "/.")
POLICY_TYPES: Final = ("Ingress", "Egress")
POLICY_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
ENDPOINT_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
NETWORK: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
NO_ADDRESS: Final = "must be a DNS name, not an IP address"
FOUR_NUMBERS: Final = re.compile(r"(\d+\.){3}\d+")
LINK_LOCAL_GROUPS: Final = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


# Ingress


def validate_ingress(ingress: Json) -> Iterator[FieldError]:
    spec = ingress.get("spec") or {}
    given = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if given and spec.get("ingressClassName") not in (None, given):
        detail = "must match `ingressClassName` when both are specified"
        yield fields.invalid(f"annotations.{CLASS_ANNOTATION}", given, detail)
    yield from validate_ingress_update(ingress, ingress)


def validate_ingress_update(new: Json, old: Json) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    for index, tls in enumerate(spec.get("tls") or ()):
        for at, host in enumerate(tls.get("hosts") or ()):
            yield from objections(f"spec.tls[{index}].hosts[{at}]", host, wildcard if "*" in host else subdomain)
        if tls.get("secretName"):
            yield from objections(f"spec.tls[{index}].secretName", tls["secretName"], subdomain)
    if spec.get("defaultBackend") is not None:
        yield from _backend(spec["defaultBackend"], "spec.defaultBackend")
    elif not spec.get("rules"):
        detail = "either `defaultBackend` or `rules` must be specified"
        yield fields.invalid("spec", spec.get("rules"), detail)
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _ingress_rule(rule, f"spec.rules[{index}]")
    if spec.get("ingressClassName") is not None:
        yield from objections("spec.ingressClassName", spec["ingressClassName"], subdomain)


def _ingress_rule(rule: Json, path: str) -> Iterator[FieldError]:
    if host := rule.get("host"):
        if is_ip_address(host):
            yield fields.invalid(f"{path}.host", host, NO_ADDRESS)
        else:
            yield from objections(f"{path}.host", host, wildcard if "*" in host else subdomain)
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or ()
    if not paths:
        yield fields.required(f"{path}.http.paths")
    for index, item in enumerate(paths):
        yield from _ingress_path(item, f"{path}.http.paths[{index}]")
        yield from _backend(item.get("backend") or {}, f"{path}.http.paths[{index}].backend")


def _ingress_path(item: Json, path: str) -> Iterator[FieldError]:
    kind, text = item.get("pathType"), item.get("path", "")
    if kind is None:
        yield fields.required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in PATH_TYPES:
        yield fields.not_supported(f"{path}.pathType", kind, PATH_TYPES)
        return
    is_free = kind == "ImplementationSpecific"
    if not text.startswith("/") and (text or not is_free):
        yield fields.invalid(f"{path}.path", text, "must be an absolute path")
    if not is_free:
        for part in NOT_IN_PATHS:
            if part in text:
                yield fields.invalid(f"{path}.path", text, f"must not contain '{part}'")
        for part in NOT_AT_THE_END:
            if text.endswith(part):
                yield fields.invalid(f"{path}.path", text, f"cannot end with '{part}'")


def _backend(backend: Json, path: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield fields.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _resource(resource, f"{path}.resource")
    elif service is not None:
        yield from _service(service, path)
    else:
        yield fields.invalid(path, "", "resource or service backend is required")


def _resource(resource: Json, path: str) -> Iterator[FieldError]:
    if resource.get("apiGroup") is not None:
        yield from objections(f"{path}.apiGroup", resource["apiGroup"], subdomain)
    for name in ("kind", "name"):
        if not resource.get(name):
            yield fields.required(f"{path}.{name}")
        else:
            yield from objections(f"{path}.{name}", resource[name], path_segment)


def _service(service: Json, path: str) -> Iterator[FieldError]:
    if not service.get("name"):
        yield fields.required(f"{path}.service.name")
    else:
        yield from objections(f"{path}.service.name", service["name"], label)
    port = service.get("port") or {}
    name, number = port.get("name", ""), port.get("number", 0)
    if name and number:
        yield fields.invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from objections(f"{path}.service.port.name", name, port_name)
    elif number:
        yield from port_number(f"{path}.service.port.number", number)
    else:
        yield fields.required(path, "port name or number is required")


def validate_ingress_status(new: Json, old: Json) -> Iterator[FieldError]:
    for index, item in enumerate(((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
        path = f"status.loadBalancer.ingress[{index}]"
        if item.get("ip"):
            yield from ip_address(f"{path}.ip", item["ip"])
        if host := item.get("hostname"):
            yield from objections(f"{path}.hostname", host, subdomain)
            if is_ip_address(host):
                yield fields.invalid(f"{path}.hostname", host, NO_ADDRESS)


def ingress_warnings(new: Json, old: Json | None) -> Iterator[str]:
    if old is None and CLASS_ANNOTATION in (new["metadata"].get("annotations") or {}):
        yield f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"


# NetworkPolicy


def default_network_policy(policy: Json) -> None:
    spec = policy.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def validate_network_policy(policy: Json) -> Iterator[FieldError]:
    spec = policy.get("spec") or {}
    yield from validate_label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            yield from _policy_rule(rule, peers, f"spec.{direction}[{index}]")
    types = spec.get("policyTypes") or []
    if len(types) > len(POLICY_TYPES):
        yield fields.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, type_ in enumerate(types):
        yield from one_of(f"spec.policyTypes[{index}]", type_, POLICY_TYPES)


def _policy_rule(rule: Json, peers: str, path: str) -> Iterator[FieldError]:
    for index, port in enumerate(rule.get("ports") or ()):
        yield from _policy_port(port, f"{path}.ports[{index}]")
    for index, peer in enumerate(rule.get(peers) or ()):
        yield from _peer(peer, f"{path}.{peers}[{index}]")


def _policy_port(port: Json, path: str) -> Iterator[FieldError]:
    protocol, number, end = port.get("protocol", "TCP"), port.get("port"), port.get("endPort")
    yield from one_of(f"{path}.protocol", protocol, POLICY_PROTOCOLS)
    if isinstance(number, str):
        yield from objections(f"{path}.port", number, port_name)
    elif number is not None:
        yield from port_number(f"{path}.port", number)
    if end is None:
        return
    if number is None or isinstance(number, str):
        state = "not specified" if number is None else "non-numeric"
        yield fields.invalid(f"{path}.endPort", end, f"may not be specified when `port` is {state}")
        return
    if end < number:
        yield fields.invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
    yield from port_number(f"{path}.endPort", end)


def _peer(peer: Json, path: str) -> Iterator[FieldError]:
    selectors = [name for name in ("podSelector", "namespaceSelector") if peer.get(name) is not None]
    for name in selectors:
        yield from validate_label_selector(peer[name], f"{path}.{name}")
    if peer.get("ipBlock") is not None:
        yield from _block(peer["ipBlock"], f"{path}.ipBlock")
        if selectors:
            yield fields.forbidden(path, "may not specify both ipBlock and another peer")
    elif not selectors:
        yield fields.required(path, "must specify a peer")


def _block(block: Json, path: str) -> Iterator[FieldError]:
    whole = block.get("cidr", "")
    if not whole:
        yield fields.required(f"{path}.cidr")
        return
    if (network := network_of(whole)) is None:
        yield fields.invalid(f"{path}.cidr", whole, NETWORK)
        return
    for index, text in enumerate(block.get("except") or ()):
        part = network_of(text)
        if part is None:
            yield fields.invalid(f"{path}.except[{index}]", text, NETWORK)
        elif part.version != network.version or part == network or not part.subnet_of(network):
            yield fields.invalid(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


def network_of(text: str) -> Any:
    """Parse a CIDR; return None if it is invalid."""
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


# Endpoints


def default_endpoints(endpoints: Json) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def validate_endpoints(endpoints: Json) -> Iterator[FieldError]:
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield fields.required(path, "must specify `addresses` or `notReadyAddresses`")
        for name in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(name) or ()):
                yield from _endpoint(address, f"{path}.{name}[{at}]")
        ports = subset.get("ports") or ()
        for at, port in enumerate(ports):
            yield from _endpoint_port(port, f"{path}.ports[{at}]", needs_name=len(ports) > 1)


def _endpoint(address: Json, path: str) -> Iterator[FieldError]:
    yield from objections(f"{path}.ip", address.get("ip", ""), _address_objections)
    if address.get("hostname"):
        yield from objections(f"{path}.hostname", address["hostname"], label)
    if address.get("nodeName") is not None:
        yield from objections(f"{path}.nodeName", address["nodeName"], subdomain)


def _address_objections(text: str) -> list[str]:
    """Check the address of an endpoint: it must mean the same machine for every client."""
    found: list[str] = []
    if FOUR_NUMBERS.fullmatch(text) and (plain := ".".join(str(int(part)) for part in text.split("."))) != text:
        found, text = ["must not have leading 0s"], plain
    if not is_ip_address(text):
        return [IP_ADDRESS, "must be a valid IP address"]
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        found.append(f"may not be unspecified ({text})")
    elif address.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    elif address.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    elif address in LINK_LOCAL_GROUPS[address.version]:
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return found


def _endpoint_port(port: Json, path: str, *, needs_name: bool) -> Iterator[FieldError]:
    name, protocol = port.get("name", ""), port.get("protocol", "")
    if name:
        yield from objections(f"{path}.name", name, label)
    elif needs_name:
        yield fields.required(f"{path}.name")
    yield from port_number(f"{path}.port", port.get("port", 0))
    yield from one_of(f"{path}.protocol", protocol, ENDPOINT_PROTOCOLS)
    if port.get("appProtocol") is not None:
        yield from objections(f"{path}.appProtocol", port["appProtocol"], label_key)
