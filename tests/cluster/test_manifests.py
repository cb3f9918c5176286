"""What ``kyu manifests`` prints, in front of a real API server and beside upstream Kueue's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import yaml

from tests.cluster import client, parts
from tests.cluster.client import Manifest
from tests.cluster.conftest import require
from tests.cluster.controlplane import ControlPlane

KIND = "CustomResourceDefinition"
VERSION = "v1beta2"


def test_a_real_api_server_takes_every_manifest() -> None:
    require()
    manifests = kyu_manifests("--image", "kyu")
    with ControlPlane.start() as plane:
        plane.admin.apply(manifests)
        names = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == KIND]
        plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", KIND, names)
        for definition in plane.admin.list("apiextensions.k8s.io/v1", KIND):
            assert client.condition(definition, "NonStructuralSchema") == {}


def test_no_field_of_upstream_kueue_is_lost() -> None:
    """A field that a CustomResourceDefinition does not have is dropped by the server without a word."""
    require("kueue")
    ours = {manifest["metadata"]["name"]: manifest for manifest in kyu_manifests() if manifest["kind"] == KIND}
    theirs = yaml.load_all(parts.installation(parts.KUEUE).read_text(), yaml.CSafeLoader)
    lost = [
        f"{definition['metadata']['name']}{path}"
        for definition in theirs
        if definition["kind"] == KIND
        for path in fields(schema(definition))
        if not is_kept(schema(ours[definition["metadata"]["name"]]), path)
    ]
    assert lost == []


def kyu_manifests(*words: str) -> list[Manifest]:
    command = [sys.executable, "-m", "kyu", "manifests", *words]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    return list(yaml.load_all(printed, yaml.CSafeLoader))


def schema(definition: Manifest) -> Manifest:
    versions: list[Manifest] = definition["spec"]["versions"]
    found: Manifest = next(entry for entry in versions if entry["name"] == VERSION)["schema"]["openAPIV3Schema"]
    return found


def fields(node: Manifest, path: str = "") -> Iterator[str]:
    """The path of every field, such as .spec.podSets.[].name; [] is any item of a list, {} any value of a map."""
    for name, child in children(node).items():
        yield f"{path}.{name}"
        yield from fields(child, f"{path}.{name}")


def is_kept(node: Manifest, path: str) -> bool:
    """Whether a schema has this field, or keeps whatever is written at some level above it."""
    for name in path.removeprefix(".").split("."):
        if node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if name not in children(node):
            return False
        node = children(node)[name]
    return True


def children(node: Manifest) -> dict[str, Manifest]:
    found: dict[str, Manifest] = dict(node.get("properties", {}))
    if "items" in node:
        found["[]"] = node["items"]
    if isinstance(node.get("additionalProperties"), dict):
        found["{}"] = node["additionalProperties"]
    return found
