"""The official Python client of Kubernetes against the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch

NAMESPACE = "default"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    data = tmp_path_factory.mktemp("official") / "data"
    command = [sys.executable, "-m", "kyu"]
    subprocess.run([*command, "up", "-d", "--bare", "--server-only", "--data", str(data)], check=True, timeout=60)
    with config.new_client_from_config(str(data / "kubeconfig")) as connected:
        yield connected
    subprocess.run([*command, "down", "--data", str(data)], check=True, timeout=60)


def test_typed_objects_are_created_listed_patched_and_deleted(api: Any) -> None:
    core = client.CoreV1Api(api)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"l": "1"}), data={"k": "1"})
    made = core.create_namespaced_config_map(NAMESPACE, body)
    assert made.metadata.uid
    assert [item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE, label_selector="l=1").items] == [
        "a"
    ]
    patched = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"m": "2"}})
    assert patched.data == {"k": "1", "m": "2"}
    made.data = {"k": "3"}
    with pytest.raises(client.ApiException) as refused:
        core.replace_namespaced_config_map("a", NAMESPACE, made)
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    core.delete_namespaced_config_map("a", NAMESPACE)
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_config_map("a", NAMESPACE)
    assert missing.value.status == 404


def test_a_watch_sees_what_happens_after_the_list(api: Any) -> None:
    core = client.CoreV1Api(api)
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "w"}})
    core.delete_namespaced_config_map("w", NAMESPACE)
    watching = watch.Watch()
    stream = watching.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=60)
    seen = []
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            watching.stop()
    assert seen == [("ADDED", "w"), ("DELETED", "w")]


def test_jobs_with_their_defaults(api: Any) -> None:
    batch = client.BatchV1Api(api)
    container = client.V1Container(name="main", image="busybox", command=["true"])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
    job = client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template, suspend=True))
    made = batch.create_namespaced_job(NAMESPACE, job)
    assert (made.spec.completions, made.spec.backoff_limit) == (1, 6)


def test_custom_objects_of_kueue(api: Any) -> None:
    custom = client.CustomObjectsApi(api)
    where = ("kueue.x-k8s.io", "v1beta2", NAMESPACE, "localqueues")
    body = {"metadata": {"name": "q"}, "spec": {"clusterQueue": "c"}}
    custom.create_namespaced_custom_object(
        *where, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", **body}
    )
    patched = custom.patch_namespaced_custom_object(*where, "q", {"spec": {"stopPolicy": "Hold"}})
    assert patched["spec"]["stopPolicy"] == "Hold"
    listed = custom.list_namespaced_custom_object(*where)["items"]
    assert "q" in [item["metadata"]["name"] for item in listed]


def test_the_dynamic_client_finds_kinds_by_discovery(api: Any) -> None:
    queues = dynamic.DynamicClient(api).resources.get(api_version="kueue.x-k8s.io/v1beta2", kind="LocalQueue")
    queues.server_side_apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "applied"},
            "spec": {"clusterQueue": "c"},
        },
        namespace=NAMESPACE,
        field_manager="tests",
    )
    assert queues.get(name="applied", namespace=NAMESPACE).spec.clusterQueue == "c"


def test_the_version_is_that_of_the_api_that_is_spoken(api: Any) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.36")
