"""Tables, representations, paths and discovery."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.server.builtin import table as builtin
from kyu.server.registry import Registry
from kyu.server.routing import routes
from kyu.server.tables import jsonpath, table
from tests.support.servers import CONFIG_MAP, ask, config_map, serving

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NOW = datetime(2026, 1, 10, tzinfo=UTC)


OBJECT: Json = {
    "spec": {"a.b": 1, "list": [{"type": "X", "status": "True"}, {"type": "Y", "status": "False"}], "deep": {"n": 0}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.deep.n", [0]),
        (".spec['a.b']", [1]),
        (".spec.list[1].type", ["Y"]),
        (".spec.list[-1].type", ["Y"]),
        (".spec.list[-1:].type", ["Y"]),
        (".spec.list[0:1].type", ["X"]),
        (".spec.list[::2].type", ["X"]),
        (".spec.list[*].type", ["X", "Y"]),
        (".spec.list[?(@.type=='X')].status", ["True"]),
        ('.spec.list[?(@.type!="X")].status', ["False"]),
        ("{.spec.deep.n}", [0]),
        (".spec.none.n", []),
        (".spec.list[7]", []),
        (".spec..list", []),
    ],
)
def test_paths_into_objects(path: str, found: list[object]) -> None:
    assert jsonpath.find(path, OBJECT) == found


@pytest.mark.parametrize("path", ["spec", ".spec..x", ".list[?(@.a)]", ".a[1:2:0]", ".a[99999999999]"])
def test_paths_that_are_not_served_are_refused(path: str) -> None:
    with pytest.raises(jsonpath.BadPath):
        jsonpath.parse(path)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/api", routes.Path("", "")),
        ("/api/v1/pods", routes.Path("", "v1", None, "pods")),
        ("/api/v1/namespaces/n", routes.Path("", "v1", None, "namespaces", "n")),
        ("/api/v1/namespaces/n/finalize", routes.Path("", "v1", None, "namespaces", "n", "finalize")),
        ("/api/v1/namespaces/n/pods/p/log", routes.Path("", "v1", "n", "pods", "p", "log")),
        ("/apis/batch/v1/namespaces/n/jobs", routes.Path("batch", "v1", "n", "jobs")),
        ("/apis/batch/v1/namespaces/n/jobs/j/status/x", routes.Path("batch", "v1", "n", "jobs", "j", "status/x")),
        ("/healthz", None),
    ],
)
def test_the_words_of_a_path(path: str, wanted: routes.Path | None) -> None:
    assert routes.parse_path(path) == wanted


def pod(**status: object) -> Json:
    meta = {"name": "p", "creationTimestamp": "2026-01-09T23:59:00Z"}
    return {"metadata": meta, "spec": {"containers": [{}, {}]}, "status": {"phase": "Running", **status}}


@pytest.mark.parametrize(
    ("obj", "word"),
    [
        (pod(), "Running"),
        (pod(reason="Evicted", phase="Failed"), "Evicted"),
        (pod(containerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]), "CrashLoopBackOff"),
        (pod(containerStatuses=[{"state": {"terminated": {"exitCode": 3}}}]), "ExitCode:3"),
        (pod(conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]), "SchedulingGated"),
    ],
)
async def test_the_status_cell_of_a_pod(tmp_path: Path, obj: Json, word: str) -> None:
    async with serving(tmp_path) as (api, _):
        resource = api.registry.find("", "v1", "pods")
        assert resource is not None
        assert table.cells(resource, obj, NOW)[:5] == ["p", "0/2", word, "0", "60s"]


async def test_a_watch_of_tables_has_columns_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for name in "ab":
            await client.create(CONFIG_MAP, config_map(name))
        path = "/api/v1/namespaces/default/configmaps?watch=1"
        watch = await ask(api, "GET", path, accept=TABLE)
        assert not isinstance(watch.body, bytes)
        parts = watch.body.parts()
        events = [msgspec.json.decode(line) for line in (await anext(parts)).splitlines()]
        await parts.aclose()
        assert [bool(event["object"]["columnDefinitions"]) for event in events] == [True, False]
        assert [event["object"]["rows"][0]["cells"][:2] for event in events] == [["a", 1], ["b", 1]]


@pytest.mark.parametrize(
    ("form", "field", "empty"), [("Table", "rows", []), ("PartialObjectMetadataList", "items", None)]
)
async def test_an_empty_list_in_another_form(tmp_path: Path, form: str, field: str, empty: object) -> None:
    async with serving(tmp_path) as (api, _):
        path = "/api/v1/namespaces/default/configmaps?labelSelector=none"
        answer = await ask(api, "GET", path, accept=TABLE.replace("Table", form))
        assert isinstance(answer.body, bytes)
        assert msgspec.json.decode(answer.body)[field] == empty


async def test_an_unknown_representation_is_406(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        answer = await ask(api, "GET", "/api/v1/configmaps", accept="text/html")
        assert answer.status == 406


async def test_discovery_in_both_forms_names_the_same(tmp_path: Path) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    async with serving(tmp_path) as (api, _):
        whole = await ask(api, "GET", "/apis", accept=accept)
        assert whole.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        assert isinstance(whole.body, bytes)
        for group in msgspec.json.decode(whole.body)["items"]:
            for version in group["versions"]:
                path = f"/apis/{group['metadata']['name']}/{version['version']}"
                answer = await ask(api, "GET", path)
                assert isinstance(answer.body, bytes)
                plain = {r["name"] for r in msgspec.json.decode(answer.body)["resources"]}
                named = {r["resource"] for r in version["resources"]}
                named |= {
                    f"{r['resource']}/{s['subresource']}"
                    for r in version["resources"]
                    for s in r.get("subresources", ())
                }
                assert plain == named


async def test_stable_versions_come_before_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        registry: Registry = api.registry
        assert registry.versions("kueue.x-k8s.io")[:2] == ["v1beta2", "v1beta1"]
        assert registry.versions("kueue.x-k8s.io")[-1] == "v1alpha1"


@pytest.mark.parametrize("accept", ["application/json", TABLE, TABLE.replace("Table", "PartialObjectMetadataList")])
async def test_a_long_list_is_whole_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    monkeypatch.setattr("kyu.server.representations.RECORDS_PER_PART", 2)
    async with serving(tmp_path) as (api, client):
        for i in range(7):
            await client.create(CONFIG_MAP, config_map(f"m-{i}"))
        answer = await ask(api, "GET", "/api/v1/namespaces/default/configmaps", accept=accept)
        assert isinstance(answer.body, bytes)
        body = msgspec.json.decode(answer.body)
        items = body["items"] if "items" in body else [row["object"] for row in body["rows"]]
        assert [item["metadata"]["name"] for item in items] == [f"m-{i}" for i in range(7)]


def row(kind: str, api_version: str, **content: Any) -> dict[str, Any]:
    """Return the cells of an object that is a minute old, by the names of their columns."""
    resource = next(
        each for each in builtin.resources() if (each.kind.kind, each.kind.api_version) == (kind, api_version)
    )
    obj = {"metadata": {"name": "a", "creationTimestamp": "2026-01-09T23:59:00Z"}, **content}
    return dict(zip((column.name for column in table.columns(resource)), table.cells(resource, obj, NOW), strict=True))


def test_the_row_of_a_deployment() -> None:
    template = {"spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y", "image": "i:2"}]}}
    rule = {"key": "tier", "operator": "In", "values": ["b", "a"]}
    spec = {"replicas": 3, "template": template, "selector": {"matchLabels": {"z": "1"}, "matchExpressions": [rule]}}
    found = row("Deployment", "apps/v1", spec=spec, status={"readyReplicas": 2, "updatedReplicas": 1})
    assert found == {
        "Name": "a", "Ready": "2/3", "Up-to-date": 1, "Available": 0, "Age": "60s", "Containers": "x,y",
        "Images": "i:1,i:2", "Selector": "tier in (a,b),z=1",
    }  # fmt: skip


def test_the_row_of_a_cron_job() -> None:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "x"}]}}}}}
    found = row("CronJob", "batch/v1", spec=spec, status={"lastScheduleTime": "2026-01-09T23:59:30Z", "active": [{}]})
    assert found == {
        "Name": "a", "Schedule": "* * * * *", "Timezone": "<none>", "Suspend": "False", "Active": 1,
        "Last Schedule": "30s", "Age": "60s", "Containers": "x", "Images": "", "Selector": "<none>",
    }  # fmt: skip


def test_the_row_of_a_service() -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]
    found = row("Service", "v1", spec={"type": "LoadBalancer", "ports": ports, "selector": {"b": "2", "a": "1"}})
    assert found == {
        "Name": "a", "Type": "LoadBalancer", "Cluster-IP": "<none>", "External-IP": "<pending>",
        "Port(s)": "80/TCP,53:30053/UDP", "Age": "60s", "Selector": "a=1,b=2",
    }  # fmt: skip


def test_the_row_of_an_event_ends_with_its_name() -> None:
    involved = {"kind": "Pod", "name": "p", "fieldPath": "spec.x"}
    found = row("Event", "v1", involvedObject=involved, type="Normal", reason="R", message=" m ", source={"host": "h"})
    assert list(found)[-1] == "Name"
    assert found == {
        "Last Seen": "<unknown>", "Type": "Normal", "Reason": "R", "Object": "pod/p", "Subobject": "spec.x",
        "Source": "h", "Message": "m", "First Seen": "<unknown>", "Count": 1, "Name": "a",
    }  # fmt: skip


def test_the_row_of_an_event_is_the_same_in_both_forms() -> None:
    place, when = {"kind": "Pod", "name": "p"}, "2026-01-01T00:00:00.000000Z"
    told = {"type": "Normal", "reason": "R", "eventTime": when, "reportingInstance": "i", "series": {"count": 3}}
    older = row("Event", "v1", involvedObject=place, message="m", reportingComponent="x.com/c", **told)
    newer = row("Event", "events.k8s.io/v1", regarding=place, note="m", reportingController="x.com/c", **told)
    assert newer == older
    assert (newer["Object"], newer["Source"], newer["Message"], newer["Count"]) == ("pod/p", "x.com/c, i", "m", 3)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"defaultBackend": {}}, ("<none>", "*", "", "80")),
        ({"ingressClassName": "c", "rules": [{"host": "a.b"}, {}], "tls": [{}]}, ("c", "a.b", "", "80, 443")),
        ({"rules": [{"host": name} for name in "abcde"]}, ("<none>", "a,b,c + 2 more...", "", "80")),
    ],
)
def test_the_row_of_an_ingress(spec: Json, expected: tuple[str, ...]) -> None:
    found = row("Ingress", "networking.k8s.io/v1", spec=spec)
    assert (found["Class"], found["Hosts"], found["Address"], found["Ports"]) == expected
    addresses = [{"ip": "10.1.2.3"}, {"hostname": "here"}]
    found = row("Ingress", "networking.k8s.io/v1", spec=spec, status={"loadBalancer": {"ingress": addresses}})
    assert found["Address"] == "10.1.2.3,here"


def test_the_row_of_a_quota() -> None:
    status = {"hard": {"pods": "5", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "1"}}
    found = row("ResourceQuota", "v1", status=status)
    assert (found["Request"], found["Limit"]) == ("cpu: 0/1, pods: 1/5", "limits.cpu: 0/2")


RUNS = {"running": {}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("first", "then", "ready", "word"),
    [
        ([RUNS], [], "0/3", "Init:0/2"),
        ([{"waiting": {"reason": "PodInitializing"}}], [], "0/3", "Init:0/2"),
        ([{"waiting": {"reason": "CrashLoopBackOff"}}], [], "0/3", "Init:CrashLoopBackOff"),
        ([{"terminated": {"exitCode": 3}}], [], "0/3", "Init:ExitCode:3"),
        ([{"terminated": {"exitCode": 137, "signal": 9}}], [], "0/3", "Init:Signal:9"),
        ([DONE, RUNS], [RUNS, RUNS], "3/3", "Running"),
        ([DONE, RUNS], [RUNS, DONE], "2/3", "NotReady"),
        ([DONE, RUNS], [DONE, {"terminated": {"exitCode": 2}}], "1/3", "Completed"),
    ],
)
def test_a_pod_whose_containers_start_one_after_the_other(
    first: list[Any], then: list[Any], ready: str, word: str
) -> None:
    """The second of the two init containers is a sidecar."""

    def statuses(names: str, states: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "ready": "running" in state,
                "started": "running" in state,
                "restartCount": 1,
                "state": state,
            }
            for name, state in zip(names, states, strict=False)
        ]

    spec = {
        "containers": [{"name": "x"}, {"name": "y"}],
        "initContainers": [{"name": "1"}, {"name": "2", "restartPolicy": "Always"}],
    }
    status = {
        "phase": "Running" if then else "Pending",
        "initContainerStatuses": statuses("12", first),
        "containerStatuses": statuses("xy", then),
    }
    found = row("Pod", "v1", spec=spec, status=status)
    assert (found["Ready"], found["Status"]) == (ready, word)


def test_when_a_container_was_started_again_last() -> None:
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-09T23:59:30Z"}}
    statuses = [{"name": "x", "restartCount": 3, "state": RUNS, "lastState": ended}]
    found = row("Pod", "v1", spec={"containers": [{"name": "x"}]}, status={"containerStatuses": statuses})
    assert found["Restarts"] == "3 (30s ago)"
