"""ServiceAccounts in pods of `kyu up`: the official Python client within a pod, and tokens that are renewed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.meta import Key, Kind
from kyu.kinds.pod import POD
from tests.support.local_kyu import LocalKyu, local_kyu

GROUP = "rbac.authorization.k8s.io"
ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
BINDING = Kind(GROUP, "v1", "RoleBinding", "rolebindings")
# An in-cluster client as its authors write it: the version, which all may read, then the pods.
CLIENT = """
from kubernetes import client, config
config.load_incluster_config()
print(client.VersionApi().get_code().major)
namespace = open("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read()
try:
    print(len(client.CoreV1Api().list_namespaced_pod(namespace).items) > 0)
except client.ApiException as error:
    print(error.status, error.reason)
"""


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("accounts") / "data", "--bare") as running:
        yield running


def run(kyu: LocalKyu, name: str, *command: str, account: str = "default") -> str:
    """Run a pod to its end, and return its output."""
    container = {"name": "main", "image": "python:3", "command": list(command)}
    spec = {"restartPolicy": "Never", "serviceAccountName": account, "containers": [container]}
    kyu.client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    kyu.wait(f"pod {name} is over", lambda: phase(kyu, name) in ("Succeeded", "Failed"))
    return b"".join(kyu.client.logs(Key("default", name), {})).decode()


def phase(kyu: LocalKyu, name: str) -> str:
    return str((kyu.client.get(POD, Key("default", name)).get("status") or {}).get("phase"))


def test_an_in_cluster_client_may_discover_and_no_more(kyu: LocalKyu) -> None:
    assert run(kyu, "by-default", sys.executable, "-c", CLIENT) == "1\n403 Forbidden\n"


def test_an_account_has_the_rights_that_a_binding_gives(kyu: LocalKyu) -> None:
    kyu.client.create(ACCOUNT, {"metadata": {"name": "reader", "namespace": "default"}})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}
    body = {"metadata": {"name": "reader", "namespace": "default"}, "roleRef": role, "subjects": [subject]}
    kyu.client.create(BINDING, body)
    assert run(kyu, "reads", sys.executable, "-c", CLIENT, account="reader") == "1\nTrue\n"


def test_a_token_in_a_running_pod_is_renewed(kyu: LocalKyu) -> None:
    """The time of the file says how old its token is; the server looks after them when it starts."""
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    script = f'old=$(cat {token}); echo ready; while [ "$(cat {token})" = "$old" ]; do sleep 0.1; done; echo renewed'
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    made = kyu.client.create(POD, {"metadata": {"name": "waits", "namespace": "default"}, "spec": spec})
    kyu.wait("it runs", lambda: phase(kyu, "waits") == "Running")
    uid = made["metadata"]["uid"]
    written = Path(kyu.data, "runtime", "pods", uid, "volumes", "kube-api-access", "token")
    os.utime(written, (0, 0))
    kyu.kill()
    kyu.start()
    kyu.wait("it is renewed", lambda: phase(kyu, "waits") == "Succeeded")
    assert b"".join(kyu.client.logs(Key("default", "waits"), {})) == b"ready\nrenewed\n"
    assert written.stat().st_mode & 0o777 == 0o400
