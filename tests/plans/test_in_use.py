"""What is in use does not go before its users do: flavors, checks, topologies, queues."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER as IN_USE
from kyu.api.kueue import AdmissionCheck, ClusterQueue, ResourceFlavor, Topology
from kyu.api.meta import Json, Key, Object, key_of
from kyu.controllers import table
from tests.support.manifests import TIME, of_type
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = (ClusterQueue, ResourceFlavor, AdmissionCheck, Topology)
PLANS = {row.name: row.plan for row in table.controllers()}


def finalizers(subject: Json, *around: Json) -> list[str]:
    """Of the object, when its row has nothing more to write."""
    view = MemoryView([subject, *around])
    type_ = next(type_ for type_ in KINDS if type_.KIND.kind == subject["kind"])
    plan = PLANS[f"{type_.KIND.plural}-in-use"]
    for action in plan(view, Key("", subject["metadata"]["name"]), NOW):
        view.carry_out(action)
    assert plan(view, Key("", subject["metadata"]["name"]), NOW) == []
    return list((view.find_json(type_.KIND, key_of(subject)) or {})["metadata"].get("finalizers") or ())


@pytest.mark.parametrize("type_", KINDS)
def test_everything_that_can_be_used_is_held_whoever_made_it(type_: type[Object]) -> None:
    assert finalizers(of_type(type_, "x")) == [IN_USE]
    assert finalizers(of_type(type_, "x", metadata={"finalizers": ["x.io/mine"]})) == ["x.io/mine", IN_USE]


QUOTA = [{"coveredResources": ["cpu"], "flavors": [{"name": "x", "resources": [{"name": "cpu", "nominalQuota": 4}]}]}]
USERS = [
    (ResourceFlavor, of_type(ClusterQueue, "main", spec={"resourceGroups": QUOTA})),
    (
        AdmissionCheck,
        of_type(ClusterQueue, "main", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "x"}]}}),
    ),
    (Topology, of_type(ResourceFlavor, "spot", spec={"topologyName": "x", "nodeLabels": {"a": "b"}})),
]


@pytest.mark.parametrize(("type_", "user"), USERS)
def test_it_goes_when_nobody_refers_to_it_any_more(type_: type[Object], user: Json) -> None:
    going = of_type(type_, "x", metadata={"deletionTimestamp": TIME, "finalizers": [IN_USE, "x.io/mine"]})
    assert finalizers(going, user) == [IN_USE, "x.io/mine"]
    assert finalizers(going, {**user, "spec": {}}) == ["x.io/mine"]


@pytest.mark.parametrize(("type_", "user"), USERS)
def test_the_end_of_its_user_brings_its_row_back(type_: type[Object], user: Json) -> None:
    row = next(row for row in table.controllers() if row.name == f"{type_.KIND.plural}-in-use")
    (watch,) = (watch for watch in row.watches if watch.kind.kind == user["kind"])
    assert watch.keys is not None
    assert watch.matters is not None
    assert watch.matters(user, None)
    assert list(watch.keys(MemoryView([]), user)) == [Key("", "x")]
