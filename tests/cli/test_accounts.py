"""Accounts: `kyu history` and `kyu usage`, and whose lines a user sees."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.accounting import SUBMITTER
from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue, Workload
from kyu.api.meta import Json, Key
from kyu.cli.batch.jobs_pods import POD
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--trust-users", "--cpu", "2") as running:
        for team in ("physics", "biology"):
            running.client.create(Namespace.KIND, {"metadata": {"name": team}})
            queue = {"metadata": {"name": "main", "namespace": team}, "spec": {"clusterQueue": "local"}}
            running.client.create(LocalQueue.KIND, queue)
        yield running


def login(kyu: LocalKyu, name: str, namespace: str) -> Path:
    config = kyu.data / f"{name}.kubeconfig"
    config.write_text(kyu.kyu("user", "add", name, "--namespace", namespace).stdout)
    return config


def as_user(config: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(config)}
    command = [sys.executable, "-m", "kyu", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert not check or done.returncode == 0, f"kyu {' '.join(words)}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def ana(kyu: LocalKyu) -> Path:
    """A user with two jobs of the past, of which one was cancelled and is deleted."""
    config = login(kyu, "ana", "physics")
    as_user(config, "submit", "--name", "fine", "--cpu", "500m", "--", "sh", "-c", "exit 3")
    as_user(config, "submit", "--name", "gone", "--cpu", "500m", "--", "sleep", "600")
    kyu.wait_for("gone", "Running")
    as_user(config, "cancel", "gone")
    kyu.wait_for("fine", "Failed")
    kyu.wait("both have a line", lambda: len(history(config, "--attempts")) == 2)
    return config


def history(config: Path, *words: str) -> list[Json]:
    found: list[Json] = json.loads(as_user(config, "history", *words, "-o", "json").stdout)
    return found


def test_jobs_of_the_past_are_listed_after_their_deletion(kyu: LocalKyu, ana: Path) -> None:
    fine, gone = sorted(history(ana), key=lambda row: str(row["job"]))
    assert (fine["state"], fine["exit_code"], fine["submitter"], fine["queue"]) == ("Failed", 3, "ana", "main")
    assert (gone["state"], gone["cpu"], gone["flavor"]) == ("Cancelled", 0.5, "local")
    assert gone["cpu_seconds"] is not None
    assert gone["peak_bytes"] > 0
    header, *lines = as_user(ana, "history", "--state", "Cancelled").stdout.splitlines()
    assert header.split()[:4] == ["JOB", "USER", "QUEUE", "STATE"]
    assert [line.split()[:4] for line in lines] == [["gone", "ana", "main", "Cancelled"]]
    assert as_user(ana, "history", "--until", "2020-01-01").stderr.startswith("no jobs of this namespace ended")
    wrong = as_user(ana, "history", "--since", "soon", check=False)
    assert (wrong.returncode, wrong.stderr.partition(":")[0]) == (2, "--since soon")


def test_a_user_sees_the_lines_of_the_own_namespace_only(kyu: LocalKyu, ana: Path) -> None:
    bo = login(kyu, "bo", "biology")
    assert history(bo) == []
    for words in (("-n", "physics"), ("-A",)):
        refused = as_user(bo, "history", *words, check=False)
        assert refused.returncode == 1
        assert "you may not see the attempts" in refused.stderr
    everything: list[Json] = json.loads(kyu.kyu("history", "-A", "--user", "ana", "-o", "json").stdout)
    assert {row["job"] for row in everything} == {"fine", "gone"}


def test_usage_is_summed_up_with_costs(kyu: LocalKyu, ana: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("prices: {cpu: 3600}\nflavors: {local: {cpu: 7200}}\n")
    done = as_user(ana, "usage", "--by", "user", "--prices", str(prices), "--csv")
    (line,) = csv.DictReader(done.stdout.splitlines())
    ran = sum(float(row["run_seconds"]) for row in history(ana))
    assert (line["user"], line["jobs"], line["attempts"]) == ("ana", "2", "2")
    assert float(line["cost"]) == pytest.approx(ran * 0.5 * 2, abs=0.011)
    teams = kyu.kyu("usage", "-A", "--by", "team").stdout
    assert [row.split()[0] for row in teams.splitlines()] == ["TEAM", "physics"]
    prices.write_text("prices: {cpu: cheap}\n")
    wrong = as_user(ana, "usage", "--prices", str(prices), check=False)
    assert (wrong.returncode, wrong.stderr) == (2, f"kyu usage: {prices}: the price of cpu is no number: 'cheap'\n")


def test_a_deleted_namespace_does_not_leave_its_lines_to_the_next(kyu: LocalKyu) -> None:
    kyu.client.create(Namespace.KIND, {"metadata": {"name": "brief"}})
    queue = {"metadata": {"name": "main", "namespace": "brief"}, "spec": {"clusterQueue": "local"}}
    kyu.client.create(LocalQueue.KIND, queue)
    kyu.submit("secret", "main", "sleep 1", namespace="brief")
    kyu.wait("it has a line", lambda: json.loads(kyu.kyu("history", "-n", "brief", "-o", "json").stdout))
    kyu.client.delete(Namespace.KIND, Key("", "brief"))
    kyu.wait("it is gone", lambda: kyu.client.find(Namespace.KIND, Key("", "brief")) is None)
    kyu.client.create(Namespace.KIND, {"metadata": {"name": "brief"}})
    assert json.loads(kyu.kyu("history", "-n", "brief", "-o", "json").stdout) == []
    assert json.loads(kyu.kyu("history", "-A", "--since", "all", "secret", "-o", "json").stdout)


def test_the_submitter_cannot_be_forged(kyu: LocalKyu, ana: Path) -> None:
    client = BlockingClient(kubeconfig.load(ana))
    forged = {SUBMITTER: "bo"}
    pod = {"containers": [{"name": "main", "image": "x", "command": ["true"]}], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": dict(forged)}, "spec": pod}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    meta = {"name": "forged", "namespace": "physics", "labels": labels, "annotations": dict(forged)}
    created = client.create(JOB, {"metadata": meta, "spec": {"template": template}})
    assert created["metadata"]["annotations"][SUBMITTER] == "ana"
    key = Key("physics", "forged")
    with pytest.raises(Forbidden, match="cannot be changed"):
        client.patch(JOB, key, {"metadata": {"annotations": forged}})
    kept = client.patch(JOB, key, {"metadata": {"annotations": {SUBMITTER: None}}})
    assert kept["metadata"]["annotations"][SUBMITTER] == "ana"
    kyu.wait_for("forged", "Succeeded")
    (workload,) = [one for one in client.list(Workload.KIND, "physics") if "forged" in one["metadata"]["name"]]
    assert workload["metadata"]["annotations"][SUBMITTER] == "ana"
    (run,) = client.list(POD, "physics", labels="batch.kubernetes.io/job-name=forged")
    assert run["metadata"]["annotations"][SUBMITTER] == "ana"
    kyu.wait("it has its line", lambda: history(ana, "forged"))
    assert [row["submitter"] for row in history(ana, "forged")] == ["ana"]
    client.close()
