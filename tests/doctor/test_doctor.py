"""kyu doctor: every seeded fault is found, with all its parts; sound files and the shipped examples have none."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kyu.api import documents
from kyu.cli import main as cli
from kyu.cli.admin.doctor import read_files

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
(FAULTS,) = (document.value for document in documents.parse((HERE / "faults.yaml").read_text()))


def objects_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a case: the sound ones with its changes."""
    found = {f"{o.get('kind')} {o.get('metadata', {}).get('name')}": copy.deepcopy(o) for o in FAULTS["sound"]}
    for key, spec in case.get("patch", {}).items():
        found[key]["spec"] = {k: v for k, v in {**found[key].get("spec", {}), **spec}.items() if v is not None}
    for key, labels in case.get("patch_labels", {}).items():
        found[key]["metadata"]["labels"].update(labels)
    for key in case.get("remove", ()):
        del found[key]
    added = case.get("add", [])
    named = {f"{o.get('kind')} {o.get('metadata', {}).get('name')}" for o in added}
    again = [found[case["twice"]]] if "twice" in case else []
    return [*(obj for key, obj in found.items() if key not in named), *added, *again]


def examine(tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]]) -> tuple[int, Any]:
    (tmp_path / "all.yaml").write_text(documents.render(objects))
    code = cli.main(["doctor", "-f", str(tmp_path), "-o", "json"])
    return code, json.loads(capsys.readouterr().out)["findings"]


def test_sound_files_have_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(tmp_path, capsys, objects_of({})) == (0, [])


@pytest.mark.parametrize("case", FAULTS["cases"], ids=lambda case: str(case["finds"]))
def test_seeded_faults_are_found(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examine(tmp_path, capsys, objects_of(case))
    matching = [finding for finding in found if finding["code"] == case["finds"]]
    assert matching, f"found only {[finding['code'] for finding in found]}"
    assert all(matching[0][part] for part in ("severity", "where", "what", "why", "remedy"))
    assert code == any(finding["severity"] == "error" for finding in found)


def test_there_are_forty_seeds_and_more() -> None:
    codes = [case["finds"] for case in FAULTS["cases"]]
    assert len(set(codes)) == len(codes) >= 40


COMPARED = ROOT / "examples" / "simulate" / "compare"
# What is applied together. The folders of a comparison have alternatives for the same queues.
EXAMPLES = {
    **{folder.name: [folder] for folder in sorted((ROOT / "examples").iterdir()) if folder != COMPARED.parent},
    "simulate": sorted(COMPARED.parent.glob("*.yaml")),
    **{f"compare/{name}": [*sorted(COMPARED.glob("*.yaml")), COMPARED / name] for name in ("before", "after")},
}


@pytest.mark.parametrize("paths", EXAMPLES.values(), ids=EXAMPLES)
def test_the_examples_have_no_findings(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    if not [each for path in paths for each in (path.rglob("*.yaml") if path.is_dir() else [path])]:
        pytest.skip("no manifests")
    files = [word for path in paths for word in ("-f", str(path))]
    assert cli.main(["doctor", "--strict", *files]) == 0, capsys.readouterr().out


def test_text_and_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unused = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "gpu"}}
    file = tmp_path / "queues.yaml"
    file.write_text(documents.render([*objects_of({}), unused]))
    assert cli.main(["doctor", "-f", str(file)]) == 0
    out = capsys.readouterr().out
    assert "warning [flavor-unused] ResourceFlavor gpu: no ClusterQueue lists this flavor" in out
    assert f"where: {file}:" in out
    assert "0 errors, 1 warnings" in out
    assert cli.main(["doctor", "--strict", "-f", str(file)]) == 1
    file.write_text("a: [")
    assert cli.main(["doctor", "-f", str(file)]) == 2
    file.write_text("")
    assert cli.main(["doctor", "-f", str(file)]) == 2


def test_lists_are_read(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": FAULTS["sound"]}))
    assert len(read_files([str(file)])) == len(FAULTS["sound"])
