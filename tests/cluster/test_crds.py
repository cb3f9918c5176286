"""Kyu's definitions on a real API server: it takes them, and refuses what the rules of kyu/api/rules refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kyu.api import rules
from kyu.api.codec import Manifest
from kyu.api.definitions import crds
from tests.api.test_crds import EXAMPLES
from tests.api.test_rules import Case, cases
from tests.cluster.client import ApiError
from tests.cluster.conftest import require
from tests.cluster.controlplane import ControlPlane

DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
V1BETA2 = "kueue.x-k8s.io/v1beta2"
# Older versions would need the conversion webhook, and what an update may change is for the webhooks too.
CURRENT_EXAMPLES = [manifest for manifest in EXAMPLES if manifest.api_version == V1BETA2]
CREATES = [case for case in cases() if case.values[0].old is None and case.values[0].object["apiVersion"] == V1BETA2]


def is_established(definition: dict[str, object]) -> bool:
    status = definition.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    require()
    with ControlPlane.start() as plane:
        for definition in crds.definitions():
            plane.admin.create(definition)
        for definition in crds.definitions():
            plane.admin.until(is_established, *DEFINITION, definition["metadata"]["name"])
        plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "physics"}})
        yield plane


def test_the_schemas_are_structural(server: ControlPlane) -> None:
    for definition in server.admin.list(*DEFINITION):
        faults = [c for c in definition["status"]["conditions"] if c["type"] == "NonStructuralSchema"]
        assert faults == [], definition["metadata"]["name"]


@pytest.mark.parametrize("manifest", CURRENT_EXAMPLES, ids=lambda manifest: f"{manifest.kind} {manifest.key}")
def test_examples_are_taken_and_get_the_defaults_that_we_give(server: ControlPlane, manifest: Manifest) -> None:
    wanted = rules.defaults(manifest.object)
    created = server.admin.create(manifest.object)
    for field in ("spec", "value", "description"):
        assert created.get(field) == wanted.get(field)


@pytest.mark.parametrize("case", CREATES)
def test_what_the_server_refuses_is_refused_by_the_rules_too(server: ControlPlane, case: Case) -> None:
    refused = ""
    try:
        server.admin.request("POST", f"{server.admin.collection_of(case.object)}?dryRun=All", case.object)
    except ApiError as error:
        refused = str(error)
    faults = [str(fault) for fault in rules.validate(case.object)]
    assert faults or not refused
    # Faults of the shape are in the words of the server.
    for fault in faults:
        assert " in body " not in fault or fault in refused
