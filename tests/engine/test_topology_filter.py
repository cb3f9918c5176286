"""Which hosts a pod may use, and what a refusal says about the others."""

from __future__ import annotations

import pytest

from kyu.api.core import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from kyu.engine.topology.filter import matches
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import HOSTNAME, FlavorInfo, PodFilter
from tests.support.topology_trees import forest, node, place_text, request, usage

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="gpu", operator="Equal", value="yes"), True),
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(value="yes"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
    ],
)
def test_which_tolerations_let_pods_on_a_tainted_node(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(GPU) is tolerated


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "NotIn", ("b",), True),
        ("none", "NotIn", ("b",), True),
        ("zone", "Exists", (), True),
        ("none", "Exists", (), False),
        ("none", "DoesNotExist", (), True),
        ("cores", "Gt", ("8",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Lt", ("17",), True),
        ("zone", "Gt", ("1",), False),
        ("none", "Lt", ("1",), False),
        ("cores", "Near", ("16",), False),
    ],
)
def test_which_labels_of_a_node_an_expression_accepts(
    key: str, operator: str, values: tuple[str, ...], holds: bool
) -> None:
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key, operator, values),))
    assert matches(node("b1/r1/x1 zone:a cores:16"), term) is holds


def test_a_term_can_name_a_node_and_an_empty_one_matches_none() -> None:
    by_name = NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("b1/r1/x1",)),))
    assert matches(node("b1/r1/x1"), by_name)
    assert not matches(node("b1/r1/x2"), by_name)
    assert not matches(node("b1/r1/x1"), NodeSelectorTerm()), "an empty term matches nothing"


def mixed_hosts() -> Forest:
    trees = Forest()
    own = (Toleration(key="flavor", operator="Exists"),)
    trees.put_flavor(FlavorInfo("f", "default", ("rack", HOSTNAME), tolerations=own))
    levels = ("rack", HOSTNAME)
    trees.put_node(node("r1/tainted cpu=4", levels, taints=(GPU,)))
    trees.put_node(node("r1/soft cpu=4 zone:b", levels, taints=(Taint(key="gpu", effect="PreferNoSchedule"),)))
    trees.put_node(node("r1/ours cpu=4 zone:a", levels, taints=(Taint(key="flavor", effect="NoExecute"),)))
    trees.put_node(node("r1/small cpu=1 zone:a", levels))
    return trees


def only(zone: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("zone", "In", (zone,)),)),)


@pytest.mark.parametrize(
    ("title", "wanted", "pod_filter"),
    [
        ("taints of the flavor are tolerated, soft ones ignored", "ours:1", PodFilter()),
        ("the selector", "soft:1", PodFilter(node_selector=(("zone", "b"),))),
        ("required affinity", "soft:1", PodFilter(required_terms=only("b"))),
        ("alternatives", "ours:1", PodFilter(required_terms=(*only("b"), *only("a")))),
        ("no alternative at all matches nothing", "any of 1 pod(s)", PodFilter(required_terms=())),
        ("updates of checks join in", "soft:1", PodFilter().merged({"zone": "b"}, ())),
        ("updates of checks win", "soft:1", PodFilter(node_selector=(("zone", "a"),)).merged({"zone": "b"}, ())),
    ],
)
def test_hosts_that_may_be_used(title: str, wanted: str, pod_filter: PodFilter) -> None:
    text = place_text(mixed_hosts(), request(1, cpu=2, required=HOSTNAME, pod_filter=pod_filter))
    assert wanted in text, title


def test_tolerations_of_checks_open_tainted_hosts() -> None:
    wanted = request(3, cpu=4, required="rack")
    assert "only 2 out of 3" in place_text(mixed_hosts(), wanted)
    opened = PodFilter().merged({}, (Toleration(key="gpu", operator="Exists"),))
    text = place_text(mixed_hosts(), request(3, cpu=4, required="rack", pod_filter=opened))
    assert text == "ours:1 soft:1 tainted:1"


@pytest.mark.parametrize(
    ("title", "excluded", "pod_filter", "cpu"),
    [
        ("each host once, by the first miss", 'affinity: 1, resource "cpu": 2, taint "gpu=yes:NoSchedule": 1',
         PodFilter(required_terms=only("a")), 5),
        ("the selector before affinity", 'nodeSelector: 2, resource "cpu": 1, taint "gpu=yes:NoSchedule": 1',
         PodFilter(node_selector=(("zone", "b"),), required_terms=only("b")), 5),
        ("a resource that no host has", 'resource "cpu": 3, taint "gpu=yes:NoSchedule": 1', PodFilter(), 5),
    ],
)  # fmt: skip
def test_what_stands_against_hosts(title: str, excluded: str, pod_filter: PodFilter, cpu: int) -> None:
    text = place_text(mixed_hosts(), request(1, cpu=cpu, required="rack", pod_filter=pod_filter))
    assert text == f'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: {excluded}', (
        title
    )


def test_of_several_short_resources_the_first_by_name_is_blamed() -> None:
    trees = forest("b1/r1/x1 cpu=0 gpu=0 pods=0")
    text = place_text(trees, request(1, required="rack", requests=(("gpu", 1), ("cpu", 1))))
    assert text.endswith('excluded: resource "cpu": 1')


def test_blame_follows_usage() -> None:
    trees = forest("b1/r1/x1 cpu=2", "b1/r1/x2 cpu=2")
    wanted = request(3, cpu=2, required="rack")
    assert "excluded" not in place_text(trees, wanted)
    with trees.scope():
        trees.charge([usage("x1", 1)])
        assert place_text(trees, wanted).endswith('Total nodes: 2; excluded: resource "cpu": 1')
    assert "excluded" not in place_text(trees, wanted)
