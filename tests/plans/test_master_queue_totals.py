"""A total across pools, on a control plane as a user starts it: nobody gets more, whatever the pools would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, Workload
from kyu.api.meta import Json, Key
from kyu.api.pools import OFFLOAD_TAINT, MasterQueue
from kyu.kinds.job import JOB
from kyu.kube import errors
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.local_pools import publishing
from tests.support.nats_servers import nats_server

TOTAL = 4
JOBS = 8


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    """Two pools of 20 pods each, and a group that may use four of all of them, three of each."""
    folder: Path = tmp_path_factory.mktemp("totals")
    with nats_server(folder) as nats, local_kyu(folder / "data", "--trust-users") as one:
        lending = {"queue": "group1", "lendingLimit": {"pods": 3}, "totalLimit": {"pods": TOTAL}}
        flavor = {"natsConnector": nats.url, "natsSubject": "interlink.resources", "virtualNode": "interlink"}
        group = {"name": "interlink", "natsFlavor": {**flavor, "poolRegExp": ".*"}, "canLendTo": [lending]}
        one.client.create(MasterQueue.KIND, {"metadata": {"name": "masterqueue"}, "spec": {"flavors": [group]}})
        door = {"metadata": {"name": "gr1", "namespace": "default"}, "spec": {"clusterQueue": "group1"}}
        one.client.create(LocalQueue.KIND, door)
        with publishing(one, nats.url, "site-a"), publishing(one, nats.url, "site-b"):
            yield one


def submit(kyu: LocalKyu, name: str) -> None:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    toleration = {"key": OFFLOAD_TAINT.key, "operator": "Exists", "effect": OFFLOAD_TAINT.effect}
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": [toleration]}
    meta = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "gr1"}}
    kyu.client.create(JOB, {"metadata": meta, "spec": {"template": {"spec": pod}}})


def admitted(kyu: LocalKyu) -> list[Json]:
    """Those that may run now."""
    return [one for one in kyu.client.list(Workload.KIND) if is_so(one, "Admitted") and not is_so(one, "Finished")]


def is_so(obj: Json, type_: str) -> bool:
    return any(c["type"] == type_ and c["status"] == "True" for c in (obj.get("status") or {}).get("conditions") or ())


def until_admitted(kyu: LocalKyu, count: int) -> list[Json]:
    """And never more on the way."""

    def ask() -> list[Json] | None:
        found = admitted(kyu)
        assert len(found) <= count, [one["metadata"]["name"] for one in found]
        return found if len(found) == count else None

    return kyu.wait(f"{count} are admitted", ask)


def set_total(kyu: LocalKyu, total: Json | None) -> None:
    queue = kyu.client.get(MasterQueue.KIND, Key("", "masterqueue"))
    lending = queue["spec"]["flavors"][0]["canLendTo"][0]
    lending.pop("totalLimit", None)
    if total is not None:
        lending["totalLimit"] = total
    change = {"spec": {"flavors": queue["spec"]["flavors"]}}
    kyu.client.patch(MasterQueue.KIND, Key("", "masterqueue"), change)


def test_a_burst_gets_no_more_than_the_total_and_who_waits_comes_next(kyu: LocalKyu) -> None:
    for number in range(JOBS):
        submit(kyu, f"job-{number}")
    running = until_admitted(kyu, TOTAL)
    flavors = {one["status"]["admission"]["podSetAssignments"][0]["flavors"]["pods"] for one in running}
    assert flavors == {"masterqueue-interlink-site-a", "masterqueue-interlink-site-b"}

    kyu.kyu("delete", "job", running[0]["metadata"]["ownerReferences"][0]["name"])
    gone = running[0]["metadata"]["uid"]
    kyu.wait("another one takes its place", lambda: gone not in [w["metadata"]["uid"] for w in admitted(kyu)])
    until_admitted(kyu, TOTAL)


def test_a_total_that_is_raised_or_taken_away_lets_others_in(kyu: LocalKyu) -> None:
    until_admitted(kyu, TOTAL)
    set_total(kyu, {"pods": TOTAL + 1})
    until_admitted(kyu, TOTAL + 1)
    set_total(kyu, None)
    kyu.wait("the check is gone", lambda: not kyu.client.list(AdmissionCheck.KIND))
    assert "admissionChecksStrategy" not in kyu.client.get(ClusterQueue.KIND, Key("", "group1"))["spec"]
    until_admitted(kyu, 6)


def test_a_total_that_is_no_amount_is_refused(kyu: LocalKyu) -> None:
    with pytest.raises(errors.ApiError, match="totalLimit"):
        set_total(kyu, {"pods": "many"})
