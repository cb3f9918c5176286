"""Nodes: taints, pod networks and immutable fields."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.server.builtin import nodes


def node(**spec: Any) -> Json:
    return {"metadata": {"name": "n"}, "spec": spec}


@pytest.mark.parametrize(
    ("taints", "blamed"),
    [
        ([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}], []),
        ([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "Never"}], ["[1].effect"]),
        ([{"key": "a"}], ["[0].effect"]),
        ([{"key": "a b", "value": "c d", "effect": "NoSchedule"}], ["[0].key", "[0].value"]),
        ([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}], ["[1]"]),
    ],
)
def test_taints_are_unique_by_key_and_effect(taints: list[Json], blamed: list[str]) -> None:
    places = [f"metadata.taints{place}" for place in blamed]
    assert [fault.field for fault in nodes.validate_node(node(taints=taints))] == places
    assert [fault.field for fault in nodes.validate_node_update(node(taints=taints), node())] == places * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"podCIDR": "10.0.0.0/24"}, ["10.0.0.0/24"]),
        ({"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, ["10.0.0.0/24", "fd00::/64"]),
        ({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.1.0.0/24"]}, ["10.0.0.0/24"]),
    ],
)
def test_the_first_network_of_a_node_has_a_field_of_its_own(given: Json, expected: list[str]) -> None:
    made = node(**given)
    nodes.default_node(made)
    assert (made["spec"]["podCIDR"], made["spec"]["podCIDRs"]) == (expected[0], expected)
    assert not list(nodes.validate_node(made))


@pytest.mark.parametrize(
    ("networks", "blamed"), [(["x"], "spec.podCIDRs[0]"), (["10.0.0.0/24", "10.1.0.0/24"], "spec.podCIDRs")]
)
def test_a_node_has_one_network_of_each_family(networks: list[str], blamed: str) -> None:
    assert [fault.field for fault in nodes.validate_node(node(podCIDRs=networks))] == [blamed]


def test_fields_of_a_node_that_are_set_once() -> None:
    before = node(podCIDRs=["10.0.0.0/24"], providerID="x")
    assert not list(nodes.validate_node_update(before, node()))
    assert not list(nodes.validate_node_update(before, before))
    found = nodes.validate_node_update(node(podCIDRs=["10.1.0.0/24"], providerID="y"), before)
    assert [fault.field for fault in found] == ["spec.podCIDRs", "spec.providerID"]
