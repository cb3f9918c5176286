"""What `kyu get`, `apply`, `delete` and `ctl` say to what they cannot do: words and an exit code, no traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--bare", "--server-only") as running:
        yield running


def told(kyu: LocalKyu, *words: str) -> tuple[int, str]:
    """The exit code, and the last line on standard error."""
    done = kyu.kyu(*words, check=False)
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [["delete"], ["delete", "job"], ["delete", "--all"]], ids=" ".join)
def test_who_does_not_say_what_to_delete_is_asked(kyu: LocalKyu, words: list[str]) -> None:
    example = "kyu delete: name what to delete, for example `kyu delete job train`; all of a kind: --all"
    assert told(kyu, *words) == (2, example)


def test_deleting_all_of_nothing_is_done(kyu: LocalKyu) -> None:
    assert told(kyu, "delete", "job", "--all") == (0, "nothing to delete")


@pytest.mark.parametrize("verb", ["apply", "delete"])
def test_a_file_without_objects_is_not_taken_for_done(kyu: LocalKyu, verb: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    assert told(kyu, verb, "-f", str(empty)) == (2, f"{empty}: it contains no object")
    assert told(kyu, verb, "-f", str(tmp_path / "none")) == (
        2,
        f"{tmp_path / 'none'}: cannot be read: No such file or directory",
    )


@pytest.mark.parametrize("metadata", ["", "metadata:\n", "metadata: {}\n"], ids=["none", "null", "empty"])
def test_an_object_without_a_name_is_told_so(kyu: LocalKyu, metadata: str, tmp_path: Path) -> None:
    path = tmp_path / "nameless.yaml"
    path.write_text(f"apiVersion: v1\nkind: Namespace\n{metadata}")
    code, said = told(kyu, "delete", "-f", str(path))
    assert code == 2
    assert said.startswith(f"{path}: document 1, line ")
    assert said.endswith("metadata.name: must be set, to know what to delete")
    assert "metadata.name: Required value: name or generateName is required" in told(kyu, "apply", "-f", str(path))[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("ctl create resourceflavor BAD", 2),
        ("get jobs -l a=(", 2),
        ("ctl list workloads", 0),
        ("get job nowhere", 1),
        ("delete namespace default", 1),
    ],
)
def test_what_breaks_the_rules_of_the_server_is_bad_input(kyu: LocalKyu, words: str, code: int) -> None:
    assert told(kyu, *words.split())[0] == code


def test_queues_of_all_namespaces_are_told_apart(kyu: LocalKyu) -> None:
    kyu.make_queue("mine", "1")
    header, line = kyu.kyu("ctl", "list", "localqueue", "-A").stdout.splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert line.split()[:3] == ["default", "mine", "mine"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nominal-quota spot:cpu=8x", "--nominal-quota spot:cpu=8x: '8x' is not a quantity: there is no suffix 'x'"),
        ("--nominal-quota spot:=8", "--nominal-quota spot:=8: write it as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT"),
        (
            "--nominal-quota spot:cpu=8 --borrowing-limit spot:memory=8",
            'spot:memory has a limit but no quota; add --nominal-quota "spot:memory=0"',
        ),
    ],
)
def test_a_quota_that_cannot_be_is_refused_before_it_is_sent(kyu: LocalKyu, words: str, said: str) -> None:
    assert told(kyu, "ctl", "create", "clusterqueue", "odd", *words.split()) == (2, f"kyu ctl create: {said}")


def test_a_flavor_may_be_named_for_each_resource(kyu: LocalKyu) -> None:
    words = ("ctl", "create", "clusterqueue", "twice", "--nominal-quota", "spot:cpu=8,spot:memory=4Gi", "--dry-run")
    assert "coveredResources:\n    - cpu\n    - memory\n" in kyu.kyu(*words).stdout


def test_a_list_of_one_is_a_list(kyu: LocalKyu) -> None:
    words = ("get", "namespace", "-l", "kubernetes.io/metadata.name=default")
    listed = json.loads(kyu.kyu(*words, "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["default"]
    assert json.loads(kyu.kyu("jobs", "-o", "json").stdout)["items"] == []
    assert json.loads(kyu.kyu("get", "namespace", "default", "-o", "json").stdout)["kind"] == "Namespace"


def test_a_pod_that_does_not_exist_is_not_taken_for_a_job(kyu: LocalKyu) -> None:
    missing = "kyu logs: no pod 'nowhere' in namespace default; `kyu get pods` lists them"
    assert told(kyu, "logs", "pod/nowhere") == (1, missing)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("jobs -n nosuch", "there is no namespace 'nosuch'; there are: default, kube-"),
        ("queues -n nosuch", "there is no namespace 'nosuch'; there are: default, kube-"),
        ("submit -n nosuch -- true", "there is no namespace 'nosuch'; there are: default, kube-"),
        ("why train -n nosuch", "there is no namespace 'nosuch'; there are: default, kube-"),
        ("jobs -q nosuch", "namespace default has no queue 'nosuch'; there are: "),
        ("jobs -A -q nosuch", "there is no queue 'nosuch'; there are: "),
        ("cancel --all -q nosuch", "namespace default has no queue 'nosuch'; there are: "),
    ],
)
def test_a_misspelt_namespace_or_queue_is_told_with_those_there_are(kyu: LocalKyu, words: str, told: str) -> None:
    refused = kyu.kyu(*words.split(), check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(told)


def test_an_empty_namespace_is_no_misspelt_one(kyu: LocalKyu) -> None:
    assert "no jobs in namespace kube-public" in kyu.kyu("jobs", "-n", "kube-public").stderr
