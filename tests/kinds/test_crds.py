"""The definitions of the job kinds: legal for an API server, and fit for the objects of the cases."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.kinds import crds, table
from kyu.server.crd import crd, rules
from kyu.server.schema import schema
from tests.support.case_files import read_documents

CASES = sorted((Path(__file__).parent.parent / "cases" / "kinds").glob("*.yaml"))
BUILT_IN = {"Job", "Pod", "CronJob", "Deployment", "StatefulSet"}
DEFINITION_BY_KIND = {d["spec"]["names"]["kind"]: d for d in crds.definitions()}


def test_every_kind_that_kubernetes_does_not_bring_has_a_definition() -> None:
    kinds = {kind.kind for job_kind in table.KINDS for kind in job_kind.kinds}
    assert kinds - BUILT_IN == set(DEFINITION_BY_KIND) - {k.kind for k in crds.OTHER_KINDS}


@pytest.mark.parametrize("kind", DEFINITION_BY_KIND)
def test_it_is_legal(kind: str) -> None:
    definition = deepcopy(DEFINITION_BY_KIND[kind])
    crd.default_definition(definition)
    crd.prepare_definition(definition)
    assert not list(rules.validate_definition(definition))
    assert [v["name"] for v in definition["spec"]["versions"] if v["storage"]] == [crds_version(kind)]


def crds_version(kind: str) -> str:
    stored = [*(job_kind.kinds[0] for job_kind in table.KINDS), *crds.OTHER_KINDS]
    return next(k.version for k in stored if k.kind == kind)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_objects_are_accepted_and_kept_whole(path: Path) -> None:
    for obj in read_documents(path):
        definition = DEFINITION_BY_KIND.get(obj["kind"])
        if definition is None:
            continue
        version = obj["apiVersion"].rpartition("/")[2]
        served = next(v for v in crd.versions_of(definition) if v.name == version)
        assert schema.validate(served.schema, obj) == []
        pruned: Json = deepcopy(obj)
        schema.prune(served.schema, pruned)
        assert pruned == obj, "nothing that a user wrote is dropped"


def test_what_kyu_reads_is_typed() -> None:
    served = crd.versions_of(DEFINITION_BY_KIND["PyTorchJob"])[0]
    worker = {"replicas": "two", "template": {"metadata": {"labels": []}, "spec": {"containers": {}}}}
    wrong = {"spec": {"runPolicy": {"suspend": "yes"}, "pytorchReplicaSpecs": {"Worker": worker}}}
    found = {error.field for error in schema.validate(served.schema, wrong)}
    at = "spec.pytorchReplicaSpecs.Worker"
    assert found == {
        "spec.runPolicy.suspend",
        f"{at}.replicas",
        f"{at}.template.metadata.labels",
        f"{at}.template.spec.containers",
    }
