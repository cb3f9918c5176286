"""Rules of the small built-in kinds: times, namespaces, Events and Leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.server import builtin_core, builtin_events, go_times
from tests.answers import send
from tests.servers import serving

NAMED = {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingInstance": "i", "action": "A", "reason": "R"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.5+02:00", "2026-01-02T01:04:05Z"),
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2026-01-02", 'parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2026-13-02T03:04:05Z", 'parsing time "2026-13-02T03:04:05Z": month out of range'),
        ("2026-02-30T03:04:05Z", 'parsing time "2026-02-30T03:04:05Z": day out of range'),
        ("2026-01-02T03:04:05Zx", 'parsing time "2026-01-02T03:04:05Zx": extra text: "x"'),
    ],
)
def test_times_are_read_as_go_reads_them(text: str, expected: str) -> None:
    try:
        found = go_times.canonical(text, has_microseconds=False)
    except go_times.TimeFault as fault:
        found = str(fault)
    assert found == expected


def test_a_time_with_microseconds_has_all_six_digits() -> None:
    given = "2026-01-02T03:04:05.123456Z"
    assert go_times.canonical(given, has_microseconds=True) == given
    with pytest.raises(go_times.TimeFault, match=r'cannot parse "\.5Z" as "\.000000"'):
        go_times.canonical("2026-01-02T03:04:05.5Z", has_microseconds=True)


def test_finalizers_of_a_namespace_stay_and_are_qualified() -> None:
    namespace: Json = {"metadata": {"name": "n"}, "spec": {"finalizers": ["x.com/f"]}}
    builtin_core.prepare_namespace(namespace)
    assert namespace["spec"]["finalizers"] == ["x.com/f", "kubernetes"]
    assert builtin_core.validate_namespace(namespace) == []
    assert builtin_core.validate_namespace({"spec": {"finalizers": ["f"]}})[0].field == "spec.finalizers"


@pytest.mark.parametrize(
    ("going", "phase", "is_fine"),
    [(False, "Active", True), (False, "Terminating", False), (True, "Terminating", True), (True, "Active", False)],
)
def test_the_phase_of_a_namespace_follows_its_deletion(going: bool, phase: str, is_fine: bool) -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}
    found = builtin_core.validate_namespace_status({"metadata": metadata, "status": {"phase": phase}}, {})
    assert (not found) == is_fine


@pytest.mark.parametrize(
    ("event", "blamed"),
    [
        ({**NAMED, "type": "Normal", "reportingController": "x.com/c"}, []),
        ({"type": "Normal"}, ["eventTime"]),
        ({**NAMED, "type": "Odd", "reportingController": "c"}, ["type"]),
        ({**NAMED, "type": "Normal", "reportingController": "no name"}, ["reportingController"]),
        ({**NAMED, "type": "Normal", "reportingController": "c", "note": "x" * 1025}, ["message"]),
        ({**NAMED, "type": "Normal", "reportingController": "c", "deprecatedCount": 2}, ["count"]),
        (
            {**NAMED, "type": "Normal", "reportingController": "c", "series": {"count": 1, "lastObservedTime": "t"}},
            ["series.count"],
        ),
    ],
)  # fmt: skip
def test_events_of_the_newer_form(event: Json, blamed: list[str]) -> None:
    assert [fault.field for fault in builtin_events.validate_new_event(event)] == blamed


def test_events_of_the_older_form_need_a_reporter_only_with_an_exact_time() -> None:
    assert builtin_events.validate_event({"type": "Odd"}) == []
    found = builtin_events.validate_event({**NAMED, "action": "", "reportingComponent": "c"})
    assert [fault.field for fault in found] == ["action"]


@pytest.mark.parametrize(
    "path", ["/apis/coordination.k8s.io/v1/namespaces/default/leases", "/apis/node.k8s.io/v1/runtimeclasses"]
)
async def test_a_put_that_creates_forgets_the_version_but_not_the_identity(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as (api, _):
        created, lease = await send(api, f"PUT {path}/a", {"metadata": {"name": "a", "resourceVersion": "1"}})
        assert (created.status, lease["metadata"]["name"]) == (201, "a")
        refused, status = await send(api, f"PUT {path}/b", {"metadata": {"name": "b", "uid": "x"}})
        assert (refused.status, status["reason"]) == (409, "Conflict")
