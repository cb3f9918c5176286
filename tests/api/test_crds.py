"""The generated definitions: complete, consistent, and as they lie in config/."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kyu.api import codec, convert, documents, kueue, pools, rules, workflows
from kyu.api.clusters import capacity
from kyu.api.definitions import crds, schema, structure
from kyu.api.meta import Json, Object
from kyu.cli.admin import manifests
from kyu.cli.main import Failed, main
from kyu.install import objects as installation

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = [
    manifest
    for path in sorted((ROOT / "tests" / "cases" / "api" / "manifests").glob("*.yaml"))
    for manifest in codec.read(path.read_text())
    if manifest.api_version.startswith(kueue.GROUP)
]
DEFINITIONS = {definition["spec"]["names"]["kind"]: definition for definition in crds.definitions()}


def version(kind: str, api_version: str) -> Json:
    name = api_version.rpartition("/")[2]
    found: Json = next(v for v in DEFINITIONS[kind]["spec"]["versions"] if v["name"] == name)
    return found


def walk(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(node.get(word), dict):
            yield from walk(node[word], f"{path}[]")


def test_what_lies_in_config_is_what_would_be_generated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--image", "kyu:latest", "--verify", str(ROOT / "config")]) == 0
    assert "up to date" in capsys.readouterr().out


def test_who_reads_metrics_has_a_role() -> None:
    roles = {obj["metadata"]["name"]: obj for obj in installation.objects("kyu") if obj["kind"] == "ClusterRole"}
    assert roles["kyu-controller-metrics-reader"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_a_stale_folder_is_noticed_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--write", str(tmp_path)]) == 0
    (tmp_path / "crds" / "old.yaml").write_text("")
    (tmp_path / "rbac" / "cluster_roles.yaml").unlink()
    topologies = tmp_path / "crds" / "kueue.x-k8s.io_topologies.yaml"
    topologies.write_text(topologies.read_text() + "# edited\n")
    assert main(["manifests", "--verify", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    for fault in ("old.yaml is no longer generated", "cluster_roles.yaml is missing", "topologies.yaml differs"):
        assert fault in said
    manifests.write(tmp_path, manifests.generated(crds_only=False))
    manifests.verify(tmp_path, manifests.generated(crds_only=False))
    with pytest.raises(Failed, match="is missing"):
        manifests.verify(tmp_path / "nowhere", manifests.generated(crds_only=True))


def test_the_command_prints_yaml_that_kubectl_can_apply() -> None:
    command = [sys.executable, "-m", "kyu", "manifests", "--crds-only"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    made = [*crds.definitions(), pools.definition(), *capacity.definitions(), workflows.definition()]
    assert [document.value for document in documents.parse(printed)] == made


def test_all_kinds_are_defined_with_all_their_versions() -> None:
    for type_ in kueue.KINDS:
        kind = type_.KIND
        spec = DEFINITIONS[kind.kind]["spec"]
        served = {f"{spec['group']}/{v['name']}" for v in spec["versions"] if v["served"]}
        assert served == set(convert.versions(kind.kind))
        assert [v["name"] for v in spec["versions"] if v["storage"]] == ["v1beta2"]
        assert spec["scope"] == ("Namespaced" if kind.namespaced else "Cluster")


def test_short_names_are_not_taken_twice() -> None:
    words = [
        word
        for definition in DEFINITIONS.values()
        for word in (
            definition["spec"]["names"]["plural"],
            definition["spec"]["names"]["singular"],
            *definition["spec"]["names"]["shortNames"],
        )
    ]
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("kind", "columns", "wide"),
    [
        ("ClusterQueue", ["Cohort", "Pending Workloads"], ["Strategy", "Admitted Workloads"]),
        ("LocalQueue", ["ClusterQueue", "Pending Workloads", "Admitted Workloads"], []),
        ("Workload", ["Queue", "Reserved in", "Admitted", "Finished", "Age"], []),
        ("WorkloadPriorityClass", ["Value"], []),
        ("MultiKueueCluster", ["Connected", "Age"], []),
        ("ResourceFlavor", [], []),
        ("Cohort", [], []),
    ],
)
def test_columns_of_kubectl_get(kind: str, columns: list[str], wide: list[str]) -> None:
    for api_version in convert.versions(kind):
        found = version(kind, api_version).get("additionalPrinterColumns", [])
        assert [column["name"] for column in found if not column.get("priority")] == columns
        assert [column["name"] for column in found if column.get("priority")] == wide


def test_columns_point_at_fields_of_their_version() -> None:
    for kind, definition in DEFINITIONS.items():
        for served in definition["spec"]["versions"]:
            fields = {path for path, _ in walk(served["schema"]["openAPIV3Schema"])}
            for column in served.get("additionalPrinterColumns", []):
                path = column["jsonPath"].partition("[")[0]
                assert path in fields or path.startswith(".metadata."), f"{kind} {served['name']} {path}"


def test_older_versions_are_deprecated_but_for_one() -> None:
    fresh = {
        (kind, served["name"])
        for kind, definition in DEFINITIONS.items()
        for served in definition["spec"]["versions"]
        if not served.get("deprecated")
    }
    assert fresh == {(kind, "v1beta2") for kind in DEFINITIONS} | {("MultiKueueConfig", "v1beta1")}


def test_workloads_can_be_selected_by_the_queue_whose_quota_they_hold() -> None:
    selectable = version("Workload", convert.CURRENT)["selectableFields"]
    assert selectable == [{"jsonPath": ".status.admission.clusterQueue"}]


def test_every_field_of_our_kinds_is_described() -> None:
    for kind in DEFINITIONS:
        for path, node in walk(version(kind, convert.CURRENT)["schema"]["openAPIV3Schema"]):
            if path and "[]" not in path.rpartition(".")[2] and ".template" not in path and path != ".metadata":
                assert node.get("description"), f"{kind}{path}"


def test_schemas_are_structural() -> None:
    for definition in DEFINITIONS.values():
        for served in definition["spec"]["versions"]:
            for path, node in walk(served["schema"]["openAPIV3Schema"]):
                assert "type" in node or node.get("x-kubernetes-int-or-string"), path
                assert not ("properties" in node and "additionalProperties" in node), path
                for key in node.get("x-kubernetes-list-map-keys", ()):
                    item = node["items"]
                    assert key in item.get("required", ()) or "default" in item["properties"][key], path


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda manifest: f"{manifest.api_version} {manifest.key}")
def test_examples_have_the_shape_of_every_version(manifest: codec.Manifest) -> None:
    for api_version in convert.versions(manifest.kind):
        object_ = convert.convert(rules.defaults(manifest.object), api_version)
        served = version(manifest.kind, api_version)["schema"]["openAPIV3Schema"]
        assert [str(fault) for fault in structure.check(served, object_)] == []
    assert rules.validate(manifest.object) == []


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda manifest: f"{manifest.api_version} {manifest.key}")
def test_no_field_of_the_examples_would_be_pruned(manifest: codec.Manifest) -> None:
    served = version(manifest.kind, manifest.api_version)["schema"]["openAPIV3Schema"]

    def unknown(node: Json, value: Any, path: str) -> Iterator[str]:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from unknown(node.get("items", {}), item, f"{path}[{index}]")
        elif isinstance(value, dict) and "additionalProperties" not in node:
            for name, item in value.items():
                inner = node.get("properties", {}).get(name)
                if inner is not None:
                    yield from unknown(inner, item, f"{path}.{name}")
                elif not node.get("x-kubernetes-preserve-unknown-fields"):
                    yield f"{path}.{name}"

    object_ = {name: value for name, value in manifest.object.items() if name != "metadata"}
    assert list(unknown(served, object_, "")) == []


def test_descriptions_come_from_the_source() -> None:
    notes = schema.field_descriptions(kueue.ResourceQuota)
    assert notes["nominal_quota"] == "Quota of the resource in this flavor that this queue or cohort owns."
    assert schema.class_description(kueue.Topology).startswith("How the nodes are nested")


def test_a_type_without_a_schema_is_an_error_of_ours() -> None:
    class Odd(Object, frozen=True):
        field: bytes = b""

    with pytest.raises(AssertionError, match="no schema for"):
        schema.schema_of(Odd)
