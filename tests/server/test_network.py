"""Ingresses, NetworkPolicies and Endpoints: defaults, and the fields of the errors."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.api.names import wildcard
from kyu.server.builtin import network

SHOP = {"service": {"name": "shop", "port": {"number": 80}}}


def ingress(**spec: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": spec}


def routed(**path: Any) -> Json:
    http = {"paths": [{"path": "/", "pathType": "Prefix", "backend": SHOP, **path}]}
    return ingress(rules=[{"host": "shop.example.com", "http": http}])


@pytest.mark.parametrize(
    ("given", "blamed"),
    [
        (routed(), []),
        (routed(path="", pathType="ImplementationSpecific"), []),
        (routed(path="/a//b", pathType="ImplementationSpecific"), []),
        (ingress(defaultBackend=SHOP), []),
        (ingress(), ["spec"]),
        (ingress(rules=[{"host": "10.1.2.3"}]), ["spec.rules[0].host"]),
        (ingress(rules=[{"host": "*.example.com"}, {"host": "*"}]), ["spec.rules[1].host"]),
        (ingress(rules=[{"http": {}}]), ["spec.rules[0].http.paths"]),
        (routed(pathType=None), ["spec.rules[0].http.paths[0].pathType"]),
        (routed(pathType="Regex"), ["spec.rules[0].http.paths[0].pathType"]),
        (routed(path="shop"), ["spec.rules[0].http.paths[0].path"]),
        (routed(path="shop//a"), ["spec.rules[0].http.paths[0].path"] * 2),
        (routed(path="/a/../b//c"), ["spec.rules[0].http.paths[0].path"] * 2),
        (routed(path="/a/."), ["spec.rules[0].http.paths[0].path"]),
        (routed(backend={}), ["spec.rules[0].http.paths[0].backend"]),
        (routed(backend={**SHOP, "resource": {}}), ["spec.rules[0].http.paths[0].backend"]),
        (ingress(defaultBackend={"service": {}}), ["spec.defaultBackend.service.name", "spec.defaultBackend"]),
        (
            ingress(defaultBackend={"service": {"name": "s", "port": {"name": "web", "number": 1}}}),
            ["spec.defaultBackend"],
        ),
        (
            ingress(defaultBackend={"service": {"name": "s", "port": {"number": 70_000}}}),
            ["spec.defaultBackend.service.port.number"],
        ),
        (
            ingress(defaultBackend={"resource": {"name": "n"}}),
            ["spec.defaultBackend.resource.kind"],
        ),
        (
            ingress(defaultBackend=SHOP, tls=[{"hosts": ["ok", "No"], "secretName": "No"}], ingressClassName="No"),
            ["spec.tls[0].hosts[1]", "spec.tls[0].secretName", "spec.ingressClassName"],
        ),
    ],
)
def test_an_ingress_leads_somewhere(given: Json, blamed: list[str]) -> None:
    assert [fault.field for fault in network.validate_ingress(given)] == blamed
    assert [fault.field for fault in network.validate_ingress_update(given, given)] == blamed


def test_the_old_way_to_name_the_class_of_an_ingress() -> None:
    given = ingress(defaultBackend=SHOP, ingressClassName="new")
    given["metadata"]["annotations"] = {network.CLASS_ANNOTATION: "old"}
    [fault] = network.validate_ingress(given)
    assert fault.message.endswith("must match `ingressClassName` when both are specified")
    assert not list(network.validate_ingress_update(given, given))
    assert len(list(network.ingress_warnings(given, None))) == 1
    assert list(network.ingress_warnings(given, given)) == []


@pytest.mark.parametrize(
    ("item", "blamed"),
    [
        ({"ip": "10.1.2.3", "hostname": "here.example.com"}, []),
        ({"ip": "here"}, ["ip"]),
        ({"hostname": "10.1.2.3"}, ["hostname"]),
    ],
)
def test_where_an_ingress_is(item: Json, blamed: list[str]) -> None:
    found = network.validate_ingress_status({"status": {"loadBalancer": {"ingress": [item]}}}, {})
    assert [fault.field for fault in found] == [f"status.loadBalancer.ingress[0].{name}" for name in blamed]


def test_a_wildcard_stands_for_the_first_part() -> None:
    assert wildcard("*.example.com") == []
    assert len(wildcard("a.*.com")) == len(wildcard("*")) == len(wildcard("*.Example")) == 1


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": {}}]}]}, []),
        ({"ingress": [{"ports": [{"port": 80, "endPort": 90}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}, []),
        ({"podSelector": {"matchLabels": {"a b": "c"}}}, ["spec.podSelector.matchLabels"]),
        ({"policyTypes": ["Both"]}, ["spec.policyTypes[0]"]),
        ({"policyTypes": ["Ingress", "Egress", "Ingress"]}, ["spec.policyTypes"]),
        ({"ingress": [{"from": [{}]}]}, ["spec.ingress[0].from[0]"]),
        (
            {"egress": [{"ports": [{"port": 0, "protocol": "ICMP"}]}]},
            ["spec.egress[0].ports[0].protocol", "spec.egress[0].ports[0].port"],
        ),
        ({"ingress": [{"ports": [{"port": "A b"}]}]}, ["spec.ingress[0].ports[0].port"]),
        ({"ingress": [{"ports": [{"endPort": 9}]}]}, ["spec.ingress[0].ports[0].endPort"]),
        ({"ingress": [{"ports": [{"port": "web", "endPort": 9}]}]}, ["spec.ingress[0].ports[0].endPort"]),
        ({"ingress": [{"ports": [{"port": 80, "endPort": 9}]}]}, ["spec.ingress[0].ports[0].endPort"]),
        ({"ingress": [{"from": [{"ipBlock": {}}]}]}, ["spec.ingress[0].from[0].ipBlock.cidr"]),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0"}}]}]}, ["spec.ingress[0].from[0].ipBlock.cidr"]),
        (
            {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]},
            ["spec.ingress[0].from[0]"],
        ),
    ],
)
def test_a_network_policy_names_peers_and_ports(spec: Json, blamed: list[str]) -> None:
    assert [fault.field for fault in network.validate_network_policy({"spec": spec})] == blamed


def test_an_exception_is_a_strict_subset_of_its_network() -> None:
    parts = ["10.1.0.0/16", "10.0.0.0/8", "11.0.0.0/16", "2001:db8::/64", "x"]
    peer = {"ipBlock": {"cidr": "10.0.0.0/8", "except": parts}}
    found = network.validate_network_policy({"spec": {"ingress": [{"from": [peer]}]}})
    assert [fault.value for fault in found] == parts[1:]


def test_defaults() -> None:
    policy: Json = {"spec": {"egress": [{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]}}
    network.default_network_policy(policy)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert [port["protocol"] for port in policy["spec"]["egress"][0]["ports"]] == ["TCP", "UDP"]
    endpoints: Json = {"subsets": [{"ports": [{"port": 80}]}]}
    network.default_endpoints(endpoints)
    assert endpoints["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("address", "objection"),
    [
        ("10.1.2.3", ""),
        ("2001:db8::1", ""),
        ("x", "must be a valid IP address"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("010.1.2.3", "must not have leading 0s"),
    ],
)
def test_an_endpoint_is_at_an_address_of_its_own(address: str, objection: str) -> None:
    found = network.validate_endpoints({"subsets": [{"addresses": [{"ip": address}]}]})
    assert [fault.detail for fault in found][-1:] == ([objection] if objection else [])


@pytest.mark.parametrize(
    ("subset", "blamed"),
    [
        ({}, [""]),
        ({"notReadyAddresses": [{"ip": "10.1.2.3"}]}, []),
        (
            {"addresses": [{"ip": "10.1.2.3", "hostname": "A", "nodeName": "B_"}]},
            [".addresses[0].hostname", ".addresses[0].nodeName"],
        ),
        (
            {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1, "protocol": "TCP"}, {"name": "A", "port": 0}]},
            [".ports[0].name", ".ports[1].name", ".ports[1].port", ".ports[1].protocol"],
        ),
    ],
)
def test_a_subset_of_endpoints(subset: Json, blamed: list[str]) -> None:
    found = network.validate_endpoints({"subsets": [subset]})
    assert [fault.field for fault in found] == [f"subsets[0]{name}" for name in blamed]
