"""
Hostile requests: each is small enough to be sent by any tenant, and made to cost the server as much as possible.

    python -m tests.attack.hostile        time and answer of each, on a server in this process
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.server.exchange import Response
from tests.support.servers import ask, serving

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JSON, STEPS, MERGE = "application/json", "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
YAML, PROTOBUF = "application/yaml", "application/vnd.kubernetes.protobuf"
LARGEST = 2**63 - 1
encode = msgspec.json.encode


class Hostile(NamedTuple):
    """A request with a name; it is sent to a server with a ConfigMap and a Job named ``victim``."""

    name: str
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON


def config_map(name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "data": {"k": "v"}}


def pod_spec(**fields: Any) -> Json:
    return {"containers": [{"name": "c", "image": "i", **fields}], "restartPolicy": "Never"}


def job(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod_spec()}, **spec}}


def owner(number: int, **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{number}", "uid": f"u{number}", **fields}


def requests() -> Iterator[Hostile]:
    yield from patches()
    yield from metadata()
    yield from shapes()
    yield from numbers()
    yield from texts()
    yield from reads()


def patches() -> Iterator[Hostile]:
    victim = f"{MAPS}/victim"
    doubling = [{"op": "add", "path": "/data/a", "value": "x" * 100}]
    doubling += [{"op": "copy", "from": "/data", "path": f"/data/n{number}"} for number in range(40)]
    yield Hostile("copies that double", "PATCH", victim, encode(doubling), STEPS)
    nested = [{"op": "copy", "from": "/metadata", "path": "/metadata/x"} for _ in range(9_999)]
    yield Hostile("copies that nest", "PATCH", victim, encode(nested), STEPS)
    large = [{"op": "add", "path": "/data/a", "value": "x" * 100_000}]
    large += [{"op": "copy", "from": "/data/a", "path": f"/data/b{number}"} for number in range(9_999)]
    yield Hostile("copies of a large text", "PATCH", victim, encode(large), STEPS)
    yield Hostile("100,000 operations", "PATCH", victim, encode([{"op": "test", "path": "/kind"}] * 100_000), STEPS)
    front = [{"op": "add", "path": "/l", "value": list(range(40_000))}]
    front += [{"op": "add", "path": "/l/0", "value": 1} for _ in range(9_000)]
    yield Hostile("items put before many", "PATCH", victim, encode(front), STEPS)
    deeper = [{"op": "add", "path": "/a", "value": {}}]
    deeper += [
        step
        for _ in range(4_000)
        for step in ({"op": "move", "from": "/a", "path": "/b/a"}, {"op": "move", "from": "/b", "path": "/a"})
    ]
    yield Hostile(
        "moves that nest", "PATCH", victim, encode([{"op": "add", "path": "/b", "value": {}}, *deeper]), STEPS
    )
    deep = "/a" * 200_000
    yield Hostile(
        "a path with 200,000 parts", "PATCH", victim, encode([{"op": "add", "path": deep, "value": 1}]), STEPS
    )
    twice = b"[" + b",".join([b'{"op":"test","op":"test","path":"/kind"}'] * 9_000) + b"]"
    yield Hostile("operations with a field twice", "PATCH", victim, twice, STEPS)
    merge = {"data": {f"k{number}": "v" for number in range(40_000)}}
    yield Hostile("merge of 40,000 keys", "PATCH", victim, encode(merge), MERGE)
    yield Hostile("strategic patch of 40,000 keys", "PATCH", victim, encode(merge), STRATEGIC)
    containers = [{"name": f"c{number}"} for number in range(20_000)]
    strategic = {"spec": {"template": {"spec": {"containers": containers}}}}
    yield Hostile("strategic patch of 20,000 containers", "PATCH", f"{JOBS}/victim", encode(strategic), STRATEGIC)
    orders = {"spec": {"template": {"spec": {"$setElementOrder/containers": containers, "containers": containers}}}}
    yield Hostile("strategic order of 20,000", "PATCH", f"{JOBS}/victim", encode(orders), STRATEGIC)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "victim"}, **merge}
    path = f"{victim}?fieldManager=a&force=true"
    yield Hostile("apply of 40,000 keys", "PATCH", path, encode(applied), APPLY)
    job_applied = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "victim"}, **strategic}
    path = f"{JOBS}/victim?fieldManager=a&force=true"
    yield Hostile("apply of 20,000 containers", "PATCH", path, encode(job_applied), APPLY)


def metadata() -> Iterator[Hostile]:
    for count in (900, 10_000):
        owners = [owner(number) for number in range(count)]
        yield Hostile(f"{count} owners", "POST", MAPS, encode(config_map(f"owners{count}", ownerReferences=owners)))
        owners = [owner(0)] * count
        yield Hostile(f"the same owner {count} times", "POST", MAPS, encode(config_map("o", ownerReferences=owners)))
        owners = [owner(number, controller=True) for number in range(count)]
        yield Hostile(f"{count} controllers", "POST", MAPS, encode(config_map("o", ownerReferences=owners)))
    for count in (2_000, 100_000):
        labels = {f"l{number}": "" for number in range(count)}
        yield Hostile(f"{count} labels", "POST", MAPS, encode(config_map(f"labels{count}", labels=labels)))
        yield Hostile(f"{count} annotations", "POST", MAPS, encode(config_map(f"a{count}", annotations=labels)))
    bad = {f"l {number}": "-" for number in range(1_500)}
    yield Hostile("1,500 invalid labels", "POST", MAPS, encode(config_map("bad", labels=bad)))
    yield Hostile("a label of a megabyte", "POST", MAPS, encode(config_map("long", labels={"a" * 2**20: "b" * 2**20})))
    finalizers = [f"a.b/{number}" for number in range(20_000)]
    yield Hostile("20,000 finalizers", "POST", MAPS, encode(config_map("f", finalizers=finalizers)))
    managed = [
        {"manager": f"m{number}", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:data": {f"f:k{number}": {}}}}
        for number in range(5_000)
    ]  # fmt: skip
    yield Hostile("5,000 managers", "POST", MAPS, encode(config_map("managed", managedFields=managed)))
    fields = {"f:data": {f"f:k{number}": {} for number in range(40_000)}}
    wide = [{**managed[0], "fieldsV1": fields}]
    yield Hostile("a manager of 40,000 fields", "POST", MAPS, encode(config_map("wide", managedFields=wide)))
    deep: Any = {}
    for _ in range(400):
        deep = {"f:a": deep}
    yield Hostile(
        "fields nested deeply", "POST", MAPS, encode(config_map("d", managedFields=[{**managed[0], "fieldsV1": deep}]))
    )
    yield Hostile("a name of a megabyte", "POST", MAPS, encode(config_map("n" * 2**20)))
    yield Hostile("a generateName of a megabyte", "POST", MAPS, encode({"metadata": {"generateName": "n" * 2**20}}))
    yield Hostile("a URL of 60,000 bytes", "GET", f"{MAPS}/{'n' * 60_000}")


def shapes() -> Iterator[Hostile]:
    yield Hostile("3 MB of empty lists", "POST", MAPS, b'{"metadata":{"name":"x"},"l":[' + b"[]," * 900_000 + b"[]]}")
    yield Hostile(
        "40,000 unknown fields", "POST", MAPS, encode({**config_map("u"), **{f"f{n}": 1 for n in range(40_000)}})
    )
    twice = b'{"metadata":{"name":"t"},"data":{' + b",".join([b'"a":"b"'] * 45_000) + b"}}"
    yield Hostile("a field 45,000 times", "POST", MAPS, twice)
    yield Hostile(
        "deep lists", "POST", MAPS, b'{"metadata":{"name":"x"},"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    )
    yield Hostile("depth 900", "POST", MAPS, b'{"metadata":{"name":"x"},"data":' + b'{"a":' * 900 + b"1" + b"}" * 901)
    data = {f"k{number}": "v" for number in range(45_000)}
    yield Hostile("a ConfigMap of 45,000 keys", "POST", MAPS, encode({"metadata": {"name": "keys"}, "data": data}))
    yield Hostile(
        "a ConfigMap of 3 MB", "POST", MAPS, encode({"metadata": {"name": "big"}, "data": {"k": "x" * 3_000_000}})
    )
    yield Hostile("commas in a text", "POST", MAPS, encode({"metadata": {"name": "csv"}, "data": {"k": "," * 900_000}}))
    env = [{"name": f"E{number}", "value": "v"} for number in range(15_000)]
    yield Hostile("15,000 variables", "POST", JOBS, encode(job("env", template={"spec": pod_spec(env=env)})))
    twice_env = [{"name": "E", "value": "v"}] * 15_000
    yield Hostile(
        "a variable 15,000 times", "POST", JOBS, encode(job("env2", template={"spec": pod_spec(env=twice_env)}))
    )
    ports = [{"containerPort": 80}] * 15_000
    yield Hostile(
        "a port 15,000 times", "POST", PODS, encode({"metadata": {"name": "p"}, "spec": pod_spec(ports=ports)})
    )
    many = {"containers": [{"name": f"c{number}", "image": "i"} for number in range(10_000)]}
    yield Hostile("10,000 containers", "POST", PODS, encode({"metadata": {"name": "p"}, "spec": many}))
    same = {"containers": [{"name": "c", "image": "i"}] * 10_000}
    yield Hostile("a container 10,000 times", "POST", PODS, encode({"metadata": {"name": "p"}, "spec": same}))
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number in range(8_000)]
    mounts = [{"name": f"v{number}", "mountPath": f"/{number}"} for number in range(8_000)]
    spec = {**pod_spec(volumeMounts=mounts), "volumes": volumes}
    yield Hostile("8,000 volumes and mounts", "POST", PODS, encode({"metadata": {"name": "p"}, "spec": spec}))
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(15_000)]
    spec = {**pod_spec(), "tolerations": tolerations}
    yield Hostile("15,000 tolerations", "POST", PODS, encode({"metadata": {"name": "p"}, "spec": spec}))
    rule = {"apiGroups": ["g"], "resources": ["r"], "verbs": ["v"]}
    yield Hostile(
        "10,000 rules of a Role", "POST", ROLES, encode({"metadata": {"name": "r"}, "rules": [rule] * 10_000})
    )
    wide = {
        "apiGroups": [f"g{n}" for n in range(200)],
        "resources": [f"r{n}" for n in range(200)],
        "verbs": [f"v{n}" for n in range(200)],
    }
    yield Hostile("8,000,000 rights in one rule", "POST", ROLES, encode({"metadata": {"name": "w"}, "rules": [wide]}))
    sets = [{"name": f"s{n}", "count": 1, "template": {"spec": pod_spec()}} for n in range(5_000)]
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}}
    yield Hostile("a Workload of 5,000 pod sets", "POST", WORKLOADS, encode({**body, "spec": {"podSets": sets}}))
    containers = [{"name": f"c{n}", "image": "i"} for n in range(8_000)]
    one = [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]
    yield Hostile("a Workload of 8,000 containers", "POST", WORKLOADS, encode({**body, "spec": {"podSets": one}}))
    yield Hostile("YAML of a megabyte", "POST", MAPS, b"metadata: {name: y}\ndata:\n" + b"  k: v\n" * 140_000, YAML)
    yield Hostile(
        "YAML of 40,000 keys",
        "POST",
        MAPS,
        b"metadata: {name: y}\ndata:\n" + b"".join(b"  k%d: v\n" % n for n in range(40_000)),
        YAML,
    )
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%b]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(12)
    )
    yield Hostile("YAML with aliases", "POST", MAPS, bomb, YAML)
    yield Hostile("YAML nested deeply", "POST", MAPS, b"[" * 50_000, YAML)
    yield Hostile("protobuf of 1,500,000 fields", "POST", MAPS, b"k8s\0" + b"\x08\x01" * 1_500_000, PROTOBUF)
    inner = b"\x12" + bytes([0xFC, 0xFF, 0x3F]) + b"\x08\x01" * 524_286
    yield Hostile("protobuf with a wide object", "POST", MAPS, b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap" + inner, PROTOBUF)


def numbers() -> Iterator[Hostile]:
    yield Hostile("Job deadline 2^63-1", "POST", JOBS, encode(job("d", activeDeadlineSeconds=LARGEST)))
    yield Hostile(
        "Pod deadline 2^63-1",
        "POST",
        PODS,
        encode({"metadata": {"name": "p"}, "spec": {**pod_spec(), "activeDeadlineSeconds": LARGEST}}),
    )
    yield Hostile(
        "grace 2^63-1",
        "POST",
        PODS,
        encode({"metadata": {"name": "g"}, "spec": {**pod_spec(), "terminationGracePeriodSeconds": LARGEST}}),
    )
    tolerations = [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LARGEST}]
    yield Hostile(
        "toleration 2^63-1",
        "POST",
        PODS,
        encode({"metadata": {"name": "t"}, "spec": {**pod_spec(), "tolerations": tolerations}}),
    )
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": job("x")["spec"]}}
    for name in ("startingDeadlineSeconds",):
        yield Hostile(
            f"CronJob {name} 2^63-1",
            "POST",
            CRON_JOBS,
            encode({"metadata": {"name": "c"}, "spec": {**cron, name: LARGEST}}),
        )
    inner = {"spec": {**job("x")["spec"], "activeDeadlineSeconds": LARGEST}}
    yield Hostile(
        "CronJob template deadline",
        "POST",
        CRON_JOBS,
        encode({"metadata": {"name": "c2"}, "spec": {**cron, "jobTemplate": inner}}),
    )
    pod = {**pod_spec(), "terminationGracePeriodSeconds": LARGEST}
    yield Hostile("Job template grace", "POST", JOBS, encode(job("g2", template={"spec": pod})))
    yield Hostile("delete with grace 2^63-1", "DELETE", f"{PODS}/victim", encode({"gracePeriodSeconds": LARGEST}))
    yield Hostile("delete with grace in the query", "DELETE", f"{PODS}/victim?gracePeriodSeconds={LARGEST}")
    yield Hostile(
        "evict with grace 2^63-1",
        "POST",
        f"{PODS}/victim/eviction",
        encode(
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "victim"},
                "deleteOptions": {"gracePeriodSeconds": LARGEST},
            }
        ),
    )
    for text in (
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "0000-00-00T00:00:00Z",
        "2026-01-01T00:00:60Z",
    ):
        yield Hostile(
            f"Event at {text}",
            "POST",
            EVENTS,
            encode({"metadata": {"name": "e"}, "involvedObject": {}, "lastTimestamp": text}),
        )
        yield Hostile(
            f"micro time {text}",
            "POST",
            EVENTS,
            encode({"metadata": {"name": "e2"}, "involvedObject": {}, "eventTime": text}),
        )
        yield Hostile(
            f"Lease at {text}",
            "POST",
            LEASES,
            encode({"metadata": {"name": f"l{abs(hash(text))}"}, "spec": {"renewTime": text}}),
        )
        yield Hostile(
            f"managedFields time {text}",
            "POST",
            MAPS,
            encode(
                config_map(
                    "mt",
                    managedFields=[
                        {
                            "manager": "m",
                            "operation": "Update",
                            "apiVersion": "v1",
                            "time": text,
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {},
                        }
                    ],
                )
            ),
        )
        yield Hostile(f"creation {text}", "POST", MAPS, encode(config_map("ct", creationTimestamp=text)))
        status = {
            "status": {
                "startTime": text,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": text}],
            }
        }
        yield Hostile(f"Pod status {text}", "PATCH", f"{PODS}/victim/status", encode(status), MERGE)
        condition = {"type": "Evicted", "status": "True", "reason": "r", "message": "", "lastTransitionTime": text}
        yield Hostile(
            f"Workload status {text}",
            "PATCH",
            f"{WORKLOADS}/victim/status",
            encode({"status": {"conditions": [condition]}}),
            MERGE,
        )
    for text in (b"1e400", b"-1e400", b"9" * 5_000, b"0." + b"1" * 5_000, b"1E+999999999"):
        yield Hostile(
            f"number {text[:8].decode()}",
            "POST",
            JOBS,
            b'{"metadata":{"name":"n"},"spec":{"parallelism":' + text + b"}}",
        )
        yield Hostile(
            f"quantity {text[:8].decode()}",
            "POST",
            PODS,
            encode({"metadata": {"name": "q"}, "spec": pod_spec(resources={"requests": {"cpu": text.decode()}})}),
        )
        yield Hostile(
            f"raw quantity {text[:8].decode()}",
            "POST",
            PODS,
            b'{"metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":'
            + text
            + b"}}}]}}",
        )
    yield Hostile(
        "a quantity of 1,000,000 digits",
        "POST",
        PODS,
        encode({"metadata": {"name": "q"}, "spec": pod_spec(resources={"requests": {"cpu": "9" * 1_000_000}})}),
    )
    yield Hostile(
        "a schedule of a megabyte",
        "POST",
        CRON_JOBS,
        encode({"metadata": {"name": "c"}, "spec": {**cron, "schedule": "*," * 400_000 + " * * * *"}}),
    )
    yield Hostile(
        "a time zone of a megabyte",
        "POST",
        CRON_JOBS,
        encode({"metadata": {"name": "c"}, "spec": {**cron, "timeZone": "A/" * 400_000}}),
    )


def texts() -> Iterator[Hostile]:
    for name, value in (("nul", "a\0b"), ("long", "a" * 2**20), ("deep", "a/" * 5_000)):
        mounts = [{"name": "v", "mountPath": "/m", "subPath": value}]
        spec = {**pod_spec(volumeMounts=mounts), "volumes": [{"name": "v", "emptyDir": {}}]}
        yield Hostile(f"{name} subPath", "POST", PODS, encode({"metadata": {"name": "s"}, "spec": spec}))
        mounts = [{"name": "v", "mountPath": "/" + value}]
        spec = {**pod_spec(volumeMounts=mounts), "volumes": [{"name": "v", "emptyDir": {}}]}
        yield Hostile(f"{name} mountPath", "POST", PODS, encode({"metadata": {"name": "s"}, "spec": spec}))
        for field in ("workingDir", "terminationMessagePath", "image"):
            yield Hostile(
                f"{name} {field}",
                "POST",
                PODS,
                encode({"metadata": {"name": f"s{field.lower()}{name}"}, "spec": pod_spec(**{field: value})}),
            )
        yield Hostile(
            f"{name} command",
            "POST",
            PODS,
            encode({"metadata": {"name": f"sc{name}"}, "spec": pod_spec(command=[value])}),
        )
        yield Hostile(
            f"{name} variable",
            "POST",
            PODS,
            encode({"metadata": {"name": f"sv{name}"}, "spec": pod_spec(env=[{"name": "A", "value": value}])}),
        )
    yield Hostile("a lone surrogate", "POST", MAPS, b'{"metadata":{"name":"s"},"data":{"k":"\\ud800"}}')
    yield Hostile("bytes that are no text", "POST", MAPS, b'{"metadata":{"name":"s"},"data":{"k":"\xff\xfe"}}')
    references = "$(A)" * 100_000
    yield Hostile(
        "100,000 references to variables",
        "POST",
        PODS,
        encode({"metadata": {"name": "sr"}, "spec": pod_spec(args=[references])}),
    )


def reads() -> Iterator[Hostile]:
    yield Hostile(
        "a selector of 5,000 terms", "GET", f"{MAPS}?labelSelector=" + ",".join(f"k{n}" for n in range(5_000))
    )
    yield Hostile(
        "a set of 5,000 values", "GET", f"{MAPS}?labelSelector=k+in+(" + ",".join(f"v{n}" for n in range(5_000)) + ")"
    )
    yield Hostile("a value 20,000 times", "GET", f"{MAPS}?labelSelector=k+in+(" + "v," * 20_000 + ")")
    yield Hostile(
        "a field selector of 2,000 terms", "GET", f"{MAPS}?fieldSelector=" + ",".join(["metadata.name=a"] * 2_000)
    )
    yield Hostile("a limit of 2^63-1", "GET", f"{MAPS}?limit={LARGEST}")
    yield Hostile("a limit of 2^64", "GET", f"{MAPS}?limit={2**64}")
    yield Hostile("a version of 5,000 digits", "GET", f"{MAPS}?resourceVersion={'9' * 5_000}")
    yield Hostile("a timeout of 2^63-1", "GET", f"{MAPS}?watch=1&timeoutSeconds={LARGEST}")
    yield Hostile("a negative timeout", "GET", f"{MAPS}?watch=1&timeoutSeconds=-1")
    yield Hostile("a broken token", "GET", f"{MAPS}?continue=AAAA")
    yield Hostile("a token of other types", "GET", f"{MAPS}?continue=WzEsMiwzXQ")
    yield Hostile("an Accept of 20,000 clauses", "GET", MAPS, b"", JSON)
    yield Hostile(
        "logs of 2^63-1 lines",
        "GET",
        f"{PODS}/victim/log?tailLines={LARGEST}&sinceSeconds={LARGEST}&limitBytes={LARGEST}",
    )
    yield Hostile("logs since a strange time", "GET", f"{PODS}/victim/log?sinceTime=0001-01-01T00:00:00%2B10:00")


async def measure(folder: Path) -> AsyncIterator[tuple[Hostile, Response, float]]:
    """Send each request to a new server; yield the answers and the seconds of processor time that they took."""
    async with serving(folder, controllers=True) as (api, _):
        await prepare(api)
        for hostile in requests():
            start = time.thread_time()
            response = await ask(
                api, hostile.method, hostile.path, hostile.body, content_type=hostile.content_type, accept=JSON
            )
            if not isinstance(response.body, bytes):
                response.body.close()
            yield hostile, response, time.thread_time() - start


async def prepare(api: Any) -> None:
    for path, body in (
        (MAPS, config_map("victim")),
        (JOBS, job("victim")),
        (PODS, {"metadata": {"name": "victim"}, "spec": pod_spec()}),
    ):
        response = await ask(api, "POST", path, encode(body), content_type=JSON)
        assert response.status == 201, response
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": pod_spec()}}]
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "victim"},
        "spec": {"podSets": pod_sets},
    }
    response = await ask(api, "POST", WORKLOADS, encode(body), content_type=JSON)
    assert response.status == 201, response


async def show() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async for hostile, response, seconds in measure(Path(folder)):
            mark = "!!" if response.status >= 500 or seconds > 0.2 else "  "
            body = response.body if isinstance(response.body, bytes) else b""
            shown = body[:150].decode(errors="replace") if response.status >= 500 else ""
            print(f"{mark} {response.status} {seconds * 1000:7.1f} ms  {hostile.name} {shown}", flush=True)


if __name__ == "__main__":
    asyncio.run(show())
