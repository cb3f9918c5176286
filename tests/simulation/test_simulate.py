"""kyu simulate: loads of every format, the figures, plots, and refusals; the waits of an independent simulator."""

from __future__ import annotations

import csv
import gzip
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from kyu.cli import main as cli
from kyu.simulation.pictures import sparkline
from kyu.simulation.report import quantile
from kyu.simulation.usage import UsageSeries
from tests.support import parallel_machine

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulate"
MACHINE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: node}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: machine}
spec:
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: node
      resources:
      - {name: cpu, nominalQuota: 16}
      - {name: memory, nominalQuota: 64Gi}
      - {name: nvidia.com/gpu, nominalQuota: 4}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: batch}
spec: {clusterQueue: machine}
"""


class Simulate:
    """`kyu simulate` on the queues of one file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.queues = folder / "queues.yaml"
        self.queues.write_text(MACHINE)

    def __call__(self, name: str, load: str, *words: str, code: int = 0) -> str:
        (self.folder / name).write_text(load)
        return self.run(self.folder / name, *words, code=code)

    def run(self, load: Path, *words: str, code: int = 0) -> str:
        assert cli.main(["simulate", "-f", str(self.queues), "--load", str(load), *words]) == code
        out, err = self.capsys.readouterr()
        return err if code else out

    def report(self, name: str, load: str, *words: str) -> dict[str, Any]:
        found = json.loads(self(name, load, "-o", "json", *words))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    return Simulate(tmp_path, capsys)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("seed", range(3))
def test_strict_fifo_has_the_waits_of_first_come_first_served(simulate: Simulate, tmp_path: Path, seed: int) -> None:
    jobs = parallel_machine.random_jobs(seed, 300, 16)
    simulate("log.swf", parallel_machine.as_swf(jobs), "--csv", str(tmp_path / "jobs.csv"))
    found = [int(row["wait_s"]) for row in rows_of(tmp_path / "jobs.csv")]
    assert found == parallel_machine.waits(jobs, 16, backfill=False)
    assert max(found) > 0


def test_figures_of_a_small_load(simulate: Simulate) -> None:
    load = "job,submit_s,run_s,procs,user\na,0,100,16,ann\nb,10,50,8,bob\nc,10,50,8,bob\nd,20,5,1,ann\n"
    found = simulate.report("load.csv", load, "--starved-after", "90s")
    assert found["total"]["waitSeconds"]["mean"] == (0 + 90 + 90 + 130) / 4
    assert found["total"]["slowdown"]["max"] == 13.5  # 135 s in the system over 10 s, though d runs for 5 s
    assert found["teams"]["bob"]["waitSeconds"]["max"] == 90
    assert found["seconds"] == 155
    used = (100 * 16 + 50 * 8 * 2 + 5) / (155 * 16)
    assert found["resources"]["cpu"]["utilisation"] == pytest.approx(used)
    assert sum(found["shares"]["resources"]["cpu"]["machine"]) / 120 == pytest.approx(used, abs=0.001)
    assert (found["starvation"]["waitedLonger"], found["starvation"]["longestWaits"][0]["job"]) == (1, "d")
    assert found["clusterQueues"]["machine"]["jobs"] == found["total"]["finished"] == 4


def test_a_preempted_job_starts_anew(simulate: Simulate) -> None:
    load = """
    jobs:
    - {name: low, count: 1, runtime: 100s, requests: {cpu: 16}}
    - {name: high, count: 1, first: 40s, runtime: 10s, priority: 5, requests: {cpu: 1}}
    """
    found = simulate.report("load.yaml", load)
    assert found["classes"]["low"]["preemptions"] == 1
    assert found["classes"]["low"]["lostSeconds"] == 40
    assert found["classes"]["high"]["waitSeconds"]["max"] == 0
    assert found["seconds"] == 150


def test_a_job_is_stopped_at_its_limit_and_the_simulation_at_until(simulate: Simulate) -> None:
    load = "jobs: [{name: long, count: 3, runtime: 2h, limit: 1h, requests: {cpu: 16}}]"
    assert simulate.report("load.yaml", load)["seconds"] == 3 * 3600
    cut = simulate.report("load.yaml", load, "--until", "90m")
    assert (cut["seconds"], cut["total"]["started"], cut["total"]["finished"]) == (5400, 2, 1)


def test_jobs_that_can_never_start_are_named_with_the_reason(simulate: Simulate) -> None:
    load = "submit_s,run_s,cpu\n0,10,17\n"
    out = simulate("load.csv", load)
    assert "1 job never started, such as job-2:" in out
    assert "ExceedsMaxQuota" in out


def test_scenarios_draw_the_same_jobs_again(simulate: Simulate, tmp_path: Path) -> None:
    load = """
    seed: 3
    jobs:
    - {name: a, count: 50, every: 1m, arrivals: random, runtime: {median: 5m, p90: 1h}, pods: 2, requests: {cpu: 2}}
    - {name: b, count: 50, every: 2m, runtime: {from: 1m, to: 9m}, limit: 10m, requests: {cpu: 1, memory: 1Gi}}
    """
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    simulate("load.yaml", load, "--csv", str(first))
    simulate("load.yaml", load, "--csv", str(second))
    assert first.read_text() == second.read_text()
    assert len({row["run_s"] for row in rows_of(first) if row["class"] == "a"}) > 30
    assert all(60 <= float(row["run_s"]) <= 540 for row in rows_of(first) if row["class"] == "b")


def test_pods_of_openb(simulate: Simulate) -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [
        "p0,12000,16384,1,1000,,LS,Running,0,100,0",
        "p1,6000,1024,4,460,T4,BE,Running,10,110,50",
        "p2,1,1,0,0,,BE,Pending,5,,",
    ]
    found = simulate.report("pods.csv", "\n".join([header, *rows]) + "\n")
    assert found["load"] == {"jobs": 2, "leftOut": 1}
    assert found["classes"]["BE"]["waitSeconds"]["max"] == 90
    assert found["resources"]["nvidia.com/gpu"]["utilisation"] == pytest.approx((100 * 1 + 60 * 4) / (160 * 4))


def test_a_compressed_log_and_the_pictures(simulate: Simulate, tmp_path: Path) -> None:
    log = tmp_path / "log.swf.gz"
    log.write_bytes(gzip.compress(parallel_machine.as_swf(parallel_machine.random_jobs(1, 60, 16)).encode()))
    out = simulate.run(log, "--svg", str(tmp_path / "plot.svg"))
    assert "Share of all cpu quota" in out
    assert "█" in out
    drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"machine", "Pending jobs", "log.swf.gz: 60 jobs"} <= set(words)


def test_a_comparison_says_who_wins_and_who_loses(simulate: Simulate, tmp_path: Path) -> None:
    for name, quota in (("before.yaml", 2), ("after.yaml", 1)):
        (tmp_path / name).write_text(MACHINE.replace("nominalQuota: 16}", f"nominalQuota: {quota}}}"))
    load = tmp_path / "load.csv"
    load.write_text("job,team,submit_s,run_s,cpu\na,ann,0,100,1\nb,bob,0,100,1\nc,ann,0,100,2\n")
    files = ("--compare", str(tmp_path / "before.yaml"), str(tmp_path / "after.yaml"))
    words = ["simulate", *files, "--load", str(load), "--svg", str(tmp_path / "change.svg")]
    assert cli.main([*words, "--csv", str(tmp_path / "jobs.csv"), "-o", "json"]) == 0
    found = json.loads(simulate.capsys.readouterr().out)
    teams = found["comparison"]["teams"]
    assert {team: group["verdict"] for team, group in teams.items()} == {"ann": "loses", "bob": "loses"}
    # The job of 2 cpu never starts on 1 cpu, and counts with its wait until the end.
    assert teams["ann"]["before"]["waitSeconds"]["mean"] == 50
    assert teams["ann"]["after"]["waitSeconds"]["mean"] == 100
    assert (teams["ann"]["later"], teams["ann"]["earlier"]) == (1, 0)
    assert found["before"]["total"]["started"] == 3
    assert found["after"]["total"]["started"] == 2
    ElementTree.fromstring((tmp_path / "change.svg").read_text())
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert [(row["wait_before_s"], row["wait_after_s"]) for row in rows] == [("0", "0"), ("0", "100"), ("100", "")]
    assert cli.main(words) == 0
    assert "wins: no team; loses: ann, bob" in simulate.capsys.readouterr().out


def test_equal_queues_change_nothing(simulate: Simulate, tmp_path: Path) -> None:
    load = tmp_path / "load.csv"
    load.write_text("job,team,submit_s,run_s,cpu\na,ann,0,100,16\nb,bob,0,100,16\n")
    queues = str(simulate.queues)
    assert cli.main(["simulate", "--compare", queues, queues, "--load", str(load), "-o", "json"]) == 0
    found = json.loads(simulate.capsys.readouterr().out)["comparison"]
    assert {group["verdict"] for group in found["teams"].values()} == {"same"}
    assert cli.main(["simulate", "--load", str(load)]) == 2


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "-f", str(EXAMPLE / "queues.yaml"), "--load", str(EXAMPLE / "week.yaml"), "-o", "json"]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["finished"] == 1565
    assert found["clusterQueues"]["production"]["waitSeconds"]["max"] == 0


@pytest.mark.parametrize(
    ("name", "load", "words", "told"),
    [
        ("a.swf", "1 0 -1 x 1\n", (), "line 1: 'x' is not a number"),
        ("a.swf", "1 0\n", (), "line 1: expected 18 fields of SWF, found 2"),
        ("a.swf", "; nothing\n", (), "the load has no job"),
        ("a.csv", "submit_s\n0\n", (), "line 1: no column 'run_s'"),
        ("a.csv", "submit_s,run_s,cpu\n0,1,lots\n", (), "line 2: cpu: "),
        ("a.csv", "submit_s,run_s,cpu,queue\n0,1,1,other\n", (), "LocalQueue 'other' does not exist"),
        ("a.yaml", "jobs: [{runtime: 1m, requests: {cpu: 1}, colour: red}]", (), "unknown field 'colour'"),
        ("a.yaml", "jobs: [{runtime: soon, requests: {cpu: 1}}]", (), "jobs[0].runtime: 'soon' is not a duration"),
        ("a.yaml", "jobs: [{runtime: 1m}]", (), "jobs[0].requests: expected resources"),
        ("a.yaml", "just a text", (), "a scenario is an object"),
        ("a.csv", "submit_s,run_s,cpu\n0,1,1\n", ("--resource", "tpu"), "--resource: no quota of 'tpu'"),
        ("a.csv", "submit_s,run_s,cpu\n0,1,1\n", ("--until", "later"), "--until: 'later' is not a duration"),
    ],
)
def test_bad_input_is_refused(simulate: Simulate, name: str, load: str, words: tuple[str, ...], told: str) -> None:
    assert told in simulate(name, load, *words, code=2)


def test_without_a_name_the_text_tells_the_format(simulate: Simulate) -> None:
    assert "1 job in" in simulate("load", "1 0 -1 5 1\n")
    assert "1 job in" in simulate("load", "submit_s,run_s,cpu\n0,5,1\n")
    assert "1 job in" in simulate("load", "jobs: [{runtime: 5s, requests: {cpu: 1}}]")


def test_series_integrate_and_sample() -> None:
    series = UsageSeries()
    for value, now in ((4, 0.0), (8, 10.0), (8, 12.0), (2, 15.0), (0, 15.0)):
        series.note(value, now)
    series.close(20.0)
    assert series.integral == 4 * 10 + 8 * 5
    assert series.sampled(0.0, 20.0, 4) == [4.0, 4.0, 8.0, 0.0]
    assert series.highest == 8


def test_quantiles_and_sparklines() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0.25, 0.5, 0.9, 0.99)] == [1, 2, 4, 4]
    assert sparkline([0, 0.001, 0.5, 1], 1.0, 4) == " ▁▄█"
