"""Validation of the small built-in kinds: times, namespaces, Events, Leases, roles, limits, StatefulSets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.server.builtin import apps, core, events, limits, rbac
from kyu.server.builtin.pods import pods
from kyu.server.builtin.rbac import GROUP
from kyu.server.schema import go_times
from tests.support.answers import send
from tests.support.servers import serving

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
    core.prepare_namespace(namespace)
    assert namespace["spec"]["finalizers"] == ["x.com/f", "kubernetes"]
    assert not list(core.validate_namespace(namespace))
    assert next(core.validate_namespace({"spec": {"finalizers": ["f"]}})).field == "spec.finalizers"


@pytest.mark.parametrize(
    ("going", "phase", "is_fine"),
    [(False, "Active", True), (False, "Terminating", False), (True, "Terminating", True), (True, "Active", False)],
)
def test_the_phase_of_a_namespace_follows_its_deletion(going: bool, phase: str, is_fine: bool) -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}
    found = core.validate_namespace_status({"metadata": metadata, "status": {"phase": phase}}, {})
    assert (not list(found)) == is_fine


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
    assert [fault.field for fault in events.validate_new_event(event)] == blamed


def test_events_of_the_older_form_need_a_reporter_only_with_an_exact_time() -> None:
    assert not list(events.validate_event({"type": "Odd"}))
    found = events.validate_event({**NAMED, "action": "", "reportingComponent": "c"})
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


def test_fields_of_disabled_features_are_dropped() -> None:
    lease: Json = {"spec": {"holderIdentity": "me", "strategy": "OldestEmulationVersion", "preferredHolder": "you"}}
    core.default_lease(lease)
    assert lease == {"spec": {"holderIdentity": "me"}}
    spec: Json = {"containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {"exec": {}}}}]}
    pods.default_pod_spec(spec)
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"exec": {}}}


def test_nothing_is_counted_finer_than_in_thousandths() -> None:
    amounts: Json = {"cpu": "100u", "memory": "1", "x.com/tiny": "1000001n", "ephemeral-storage": "1500m"}
    pods.round_up(amounts)
    assert amounts == {"cpu": "1m", "memory": "1", "x.com/tiny": "2m", "ephemeral-storage": "1500m"}


@pytest.mark.parametrize(
    ("limit", "blamed"),
    [
        ({"type": "Container", "max": {"cpu": "1"}}, []),
        ({"type": "x.com/own", "max": {"x.com/thing": "1", "cpu": "1"}}, []),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, []),
        ({"type": "Own"}, ["spec.limits[0].type"]),
        ({"type": "Pod", "max": {"own": "1"}}, ["spec.limits[0].max[own]"] * 2),
        ({"type": "x.com/own", "min": {"own": "1"}}, ["spec.limits[0].min[own]"]),
    ],
)
def test_validation_of_limit_ranges(limit: Json, blamed: list[str]) -> None:
    found = limits.validate_limit_range({"spec": {"limits": [limit]}})
    assert [fault.field for fault in found] == blamed


@pytest.mark.parametrize(
    ("rule", "in_a_namespace", "in_the_cluster"),
    [
        ({"apiGroups": [""], "resources": ["pods"]}, 0, 0),
        ({"nonResourceURLs": ["/metrics"]}, 1, 0),
        ({"nonResourceURLs": ["/metrics"], "resources": ["pods"]}, 2, 1),
        ({}, 2, 2),
    ],
)
def test_validation_of_policy_rules(rule: Json, in_a_namespace: int, in_the_cluster: int) -> None:
    role: Json = {"rules": [{"verbs": ["get"], **rule}]}
    assert len(list(rbac.validate_role(role))) == in_a_namespace
    assert len(list(rbac.validate_cluster_role(role))) == in_the_cluster


def test_a_role_of_others_selects_some() -> None:
    [fault] = rbac.validate_cluster_role({"aggregationRule": {}})
    assert fault.field == "aggregationRule.clusterRoleSelectors"
    chosen = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    assert not list(rbac.validate_cluster_role(chosen))


@pytest.mark.parametrize(
    ("subject", "blamed"),
    [
        ({"kind": "ServiceAccount", "name": "robot"}, []),
        ({"kind": "User", "name": "Ann B", "apiGroup": GROUP}, []),
        ({"kind": "ServiceAccount", "name": "Robot"}, ["name"]),
        ({"kind": "ServiceAccount", "name": "robot", "apiGroup": "x.com"}, ["apiGroup"]),
        ({"kind": "Group", "name": "all", "apiGroup": "x.com"}, ["apiGroup"]),
        ({"kind": "Pod"}, ["name", "kind"]),
    ],
)
def test_validation_of_subjects(subject: Json, blamed: list[str]) -> None:
    role = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
    found = rbac.validate_binding({"roleRef": role, "subjects": [subject]})
    assert [fault.field for fault in found] == [f"subjects[0].{name}" for name in blamed]


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({}, ""),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}, ""),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}, "spec.template"),
        ({"podManagementPolicy": "Random"}, "spec.podManagementPolicy"),
        ({"updateStrategy": {"type": "Never"}}, "spec.updateStrategy"),
        ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}}, "spec.updateStrategy.rollingUpdate"),
        ({"updateStrategy": {"rollingUpdate": {"partition": -1}}}, "spec.updateStrategy.rollingUpdate.partition"),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Sell"}},
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        ),
        ({"ordinals": {"start": -1}}, "spec.ordinals.start"),
        ({"minReadySeconds": -1}, "spec.minReadySeconds"),
        ({"serviceName": "No_"}, "spec.serviceName"),
        ({"volumeClaimTemplates": [{"spec": {"accessModes": ["ReadWriteOnce"]}}]}, "spec.volumeClaimTemplates[0].spec"),
    ],
)
def test_policies_of_a_stateful_set(spec: Json, blamed: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    given: Json = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}}
    apps.default_stateful_set(given)
    found = [fault.field for fault in apps.validate_stateful_set(given)]
    assert len(found) == bool(blamed)
    assert all(field.startswith(blamed) for field in found)


def test_only_the_series_of_an_event_may_change() -> None:
    """This holds for events.k8s.io/v1; a v1 Event may change."""
    old: Json = {"regarding": {"name": "p"}, "reportingController": "x.com/c", "type": "Normal", "note": "n", **NAMED}
    series = {"series": {"count": 2, "lastObservedTime": NAMED["eventTime"]}}
    assert not list(events.validate_new_event_update({**old, **series}, old))
    found = events.validate_new_event_update({**old, "note": "other", "regarding": {"name": "q"}}, old)
    assert [fault.field for fault in found] == ["involvedObject", "message"]
    [fault] = events.validate_new_event_update({**old, "series": {"count": 3}}, old)
    assert fault.field == "series.lastObservedTime"
