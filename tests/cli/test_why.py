"""What people are told about queues that admit nothing, by `kyu why` and `kyu top`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest

from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue
from kyu.api.meta import Json, Key
from kyu.cli.batch import top, why
from kyu.cli.batch.jobs import JobState
from kyu.engine.cluster import Inactive
from kyu.engine.explain import Explanation
from kyu.engine.reasons import Untried
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--bare") as running:
        yield running


def assert_why(kyu: LocalKyu, job: str, words: str) -> None:
    kyu.wait(f"{job} says: {words}", lambda: words in kyu.kyu("why", job).stdout)


def test_there_is_a_remedy_for_every_queue_that_is_not_active() -> None:
    assert set(why.INACTIVE) == set(get_args(Inactive))


def test_a_stopped_queue_is_told_with_what_starts_it(kyu: LocalKyu) -> None:
    kyu.make_queue("held", "1", stopPolicy="Hold")
    kyu.submit("patient", "held", "true")
    assert_why(kyu, "patient", "`kyu ctl resume clusterqueue held` resumes it")
    kyu.kyu("ctl", "resume", "clusterqueue", "held")
    kyu.client.patch(LocalQueue.KIND, Key("default", "held"), {"spec": {"stopPolicy": "Hold"}})
    kyu.submit("more-patient", "held", "true")
    assert_why(kyu, "more-patient", "`kyu ctl resume localqueue held -n default` resumes it")
    kyu.kyu("ctl", "resume", "localqueue", "held")
    kyu.wait_for("more-patient", "Succeeded")


def test_a_flavor_that_does_not_exist_is_named(kyu: LocalKyu) -> None:
    kyu.make_queue("renamed", "1")
    kyu.submit("stranded", "renamed", "sleep 600", cpu="1")
    kyu.wait_for("stranded", "Running")
    kyu.submit("behind", "renamed", "true", cpu="1")
    kyu.wait_for("behind", "Queued")
    quota = {"name": "typo", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    kyu.client.patch(ClusterQueue.KIND, Key("", "renamed"), {"spec": {"resourceGroups": [group]}})
    assert_why(kyu, "behind", "it says: Can't admit new workloads: references missing ResourceFlavor(s): typo.")
    kyu.kyu("cancel", "stranded", "behind")


def test_a_queue_that_is_misspelt_is_told_with_those_there_are(kyu: LocalKyu) -> None:
    kyu.make_queue("spelt", "1")
    misspelt = {"metadata": {"name": "leads-nowhere", "namespace": "default"}, "spec": {"clusterQueue": "spelled"}}
    kyu.client.create(LocalQueue.KIND, misspelt)
    kyu.submit("typo", "spellt", "true")
    kyu.submit("detour", "leads-nowhere", "true")
    kyu.wait_for("typo", "Queued")
    kyu.wait_for("detour", "Queued")
    assert re.search("namespace default has LocalQueues: .*spelt", kyu.kyu("why", "typo").stdout)
    told = kyu.kyu("why", "detour").stdout
    assert re.search("LocalQueue leads-nowhere names spelled; there are ClusterQueues: .*spelt", told)
    kyu.kyu("cancel", "typo", "detour")


def test_cohorts_that_are_above_each_other_are_told_and_shown(kyu: LocalKyu) -> None:
    kyu.make_queue("dizzy", "1", cohortName="snake")
    for name, parent in (("snake", "tail"), ("tail", "snake")):
        kyu.client.create(Cohort.KIND, {"metadata": {"name": name}, "spec": {"parentName": parent}})
    kyu.submit("lost", "dizzy", "true")
    assert_why(kyu, "lost", "the parents of cohort snake / tail form a cycle")
    assert "dizzy" in kyu.kyu("top", "--once").stdout
    kyu.client.delete(Cohort.KIND, Key("", "tail"))
    kyu.wait_for("lost", "Succeeded")


def test_who_would_fit_is_told_what_held_it_at_its_last_turn() -> None:
    found = Explanation(0, Untried(), hint="it fits now", path=("main",), length=1)
    workload = {"metadata": {"name": "w", "namespace": "default"}}
    answer = why.WhyAnswer(JobState("Queued", "waits for the pods of others"), found, found.hint, {}, [], "")
    lines = list(why.describe_waiting(workload, answer, found))
    assert "  at its last attempt: waits for the pods of others" in lines


def test_a_tree_has_every_queue_once_whatever_the_parents() -> None:
    def cohort(name: str, parent: str = "") -> Json:
        return {"metadata": {"name": name}, "spec": {"parentName": parent} if parent else {}}

    cohorts = [
        cohort("a", "b"),
        cohort("b", "a"),
        cohort("below", "a"),
        cohort("self", "self"),
        cohort("child", "root"),
    ]
    queues = [
        {"kind": ClusterQueue.KIND.kind, "metadata": {"name": f"in-{name}"}, "spec": {"cohortName": name}}
        for name in ("a", "b", "below", "self", "child", "root")
    ]
    roots = top.tree(cohorts, queues)
    assert [root.name for root in roots] == ["a", "b", "root", "self"]
    shown = [line for root in roots for line in top.branch_lines(root, "") if "running" in line]
    assert sorted(line.split()[0] for line in shown) == sorted(
        f"in-{name}" for name in ("a", "b", "below", "self", "child", "root")
    )
