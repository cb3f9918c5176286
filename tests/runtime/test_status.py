"""From a supervisor's record to the status of a Pod: phases, readiness, conditions and their times."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.runtime import status

NOW, EARLIER = "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"
RUNNING = {"state": {"running": {"startedAt": EARLIER}}, "restartCount": 2}
DONE = {"state": {"terminated": {"exitCode": 0}}}
FAILED = {"state": {"terminated": {"exitCode": 3}}}


def pod(*names: str, init: tuple[str, ...] = (), conditions: tuple[Json, ...] = ()) -> Json:
    spec: Json = {"containers": [{"name": name, "image": "i"} for name in names or ("main",)]}
    if init:
        spec["initContainers"] = [{"name": name} for name in init]
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"conditions": list(conditions)}}


def told(pod: Json, phase: str, **containers: Json) -> Json:
    record = {"uid": "u", "phase": phase, "startTime": EARLIER, "containers": containers}
    return status.pod_status(pod, record, NOW)


def holds(found: Json) -> dict[str, str]:
    return {c["type"]: f"{c['status']}{'/' + c['reason'] if 'reason' in c else ''}" for c in found["conditions"]}


@pytest.mark.parametrize(
    ("phase", "containers", "ready"),
    [
        ("Running", {"a": RUNNING, "b": RUNNING}, "True"),
        ("Running", {"a": RUNNING, "b": DONE}, "False/ContainersNotReady"),
        ("Pending", {}, "False/ContainersNotReady"),
        ("Succeeded", {"a": DONE, "b": DONE}, "False/PodCompleted"),
        ("Failed", {"a": DONE, "b": FAILED}, "False/PodFailed"),
        # A record of the end may come before that of the last container.
        ("Failed", {"a": RUNNING, "b": RUNNING}, "False/PodFailed"),
    ],
)
def test_a_pod_is_ready_while_all_its_containers_run(phase: str, containers: Json, ready: str) -> None:
    found = holds(told(pod("a", "b"), phase, **containers))
    assert found["Ready"] == found["ContainersReady"] == ready
    assert found["PodScheduled"] == "True"


def test_the_containers_that_are_not_ready_are_named_until_the_pod_is_over() -> None:
    def message(found: Json) -> Any:
        return next(c for c in found["conditions"] if c["type"] == "Ready").get("message")

    assert message(told(pod("a", "b"), "Running", a=RUNNING)) == "containers with unready status: [b]"
    assert message(told(pod("a", "b"), "Running", a=RUNNING, b=RUNNING)) is None
    assert message(told(pod("a", "b"), "Failed", a=RUNNING)) is None


def test_it_is_initialized_when_its_init_containers_are_done_or_a_main_one_has_run() -> None:
    with_init = pod("main", init=("first",))
    not_yet = "False/ContainersNotInitialized"
    assert holds(told(with_init, "Pending"))["Initialized"] == not_yet
    assert holds(told(with_init, "Pending", first=FAILED))["Initialized"] == not_yet
    assert holds(told(with_init, "Pending", first=DONE))["Initialized"] == "True"
    assert holds(told(with_init, "Running", main=RUNNING))["Initialized"] == "True"
    assert holds(told(pod(), "Pending"))["Initialized"] == "True"


def test_a_condition_keeps_its_time_while_it_holds_and_those_of_others_stay() -> None:
    before = (
        {"type": "Ready", "status": "True", "lastTransitionTime": EARLIER},
        {"type": "Initialized", "status": "False", "lastTransitionTime": EARLIER},
        {"type": "Mine", "status": "True"},
    )
    found = {c["type"]: c for c in told(pod(conditions=before), "Running", main=RUNNING)["conditions"]}
    assert found["Ready"]["lastTransitionTime"] == EARLIER
    assert found["Initialized"]["lastTransitionTime"] == NOW
    assert found["Mine"] == before[2]
    assert len(found) == 5


def test_a_container_has_an_id_from_its_first_start_on() -> None:
    for state, expected in ((RUNNING, "kyu://u/main/2"), (DONE, "kyu://u/main/0"), ({}, None)):
        (shown,) = told(pod(), "Running", main=state)["containerStatuses"]
        assert shown.get("containerID") == expected
        assert shown["started"] == shown["ready"] == (state is RUNNING)


def test_init_containers_are_listed_if_there_are_any_and_ready_when_done() -> None:
    assert "initContainerStatuses" not in told(pod(), "Running")
    (shown,) = told(pod(init=("first",)), "Pending", first=DONE)["initContainerStatuses"]
    assert shown["ready"]


@pytest.mark.parametrize(("at_fault", "ended"), [("", ["a", "b"]), ("b", ["b"])])
def test_a_pod_that_was_never_started_names_the_container_at_fault(at_fault: str, ended: list[str]) -> None:
    found = status.failed_status(pod("a", "b"), "StartError", "no command", at_fault, NOW)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "StartError", "no command")
    assert [c["name"] for c in found["containerStatuses"] if "terminated" in c["state"]] == ended
    waiting = status.waiting_status(pod("a", "b"), at_fault, "CreateContainerConfigError", "no such ConfigMap", NOW)
    blamed = [c["name"] for c in waiting["containerStatuses"] if c["state"]["waiting"].get("message")]
    assert (waiting["phase"], blamed) == ("Pending", ended)


def test_what_ran_when_its_supervisor_was_lost_has_ended_and_what_had_ended_stays() -> None:
    record = {"uid": "u", "phase": "Running", "startTime": EARLIER, "containers": {"a": DONE, "b": RUNNING}}
    lost = status.lost_record(record, "SupervisorLost", "why", NOW)
    assert lost["containers"]["a"] == DONE
    ended = lost["containers"]["b"]["state"]["terminated"]
    assert (ended["exitCode"], ended["startedAt"], ended["finishedAt"]) == (137, EARLIER, NOW)
    assert (lost["phase"], lost["reason"]) == ("Failed", "SupervisorLost")
