"""The visibility API on a real API server, which forwards it to a leader and to a replica that stands by."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

import pytest

from tests.cluster import addresses, kyu
from tests.cluster.client import ApiError, Client, Manifest, has
from tests.cluster.conftest import require
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.test_webhooks import KUEUE, namespace, pod_spec, queues

REGISTRATION = "apiregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
GROUP = "visibility.kueue.x-k8s.io"
# While a replica reads the queues, and while the API server turns to another port.
NOT_YET = ("NotFound", "ServiceUnavailable")
SERVICES = [f"{version}.{GROUP}" for version in ("v1beta1", "v1beta2")]
OF_QUEUE = f"/apis/{GROUP}/v1beta2/clusterqueues/team/pendingworkloads"
OF_LOCAL_QUEUE = f"/apis/{GROUP}/v1beta1/namespaces/team/localqueues/team/pendingworkloads"
LEADER, STANDBY = addresses.KYU_VISIBILITY_PORT, addresses.KYU_VISIBILITY_PORT + 1


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A leader and a standby, and two workloads that do not fit."""
    require(*EVERYTHING)
    with ControlPlane.start(*EVERYTHING) as started:
        started.add_nodes(["node"], {"cpu": "8", "memory": "8Gi"})
        kyu.install_all(started)
        kyu.start(started)
        kyu.start(started, name="standby", shift=1)
        started.admin.create(namespace("team"))
        started.admin.apply(queues("team"))
        for name, priority in (("low", 1), ("high", 2)):
            started.admin.create(workload(name, priority))
        yield started


def workload(name: str, priority: int) -> Manifest:
    """Return a Workload that requests more than the quota of the queue."""
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec("2")}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"queueName": "team", "priority": priority, "podSets": [pod_set]},
    }


def forward(plane: ControlPlane, port: int) -> None:
    """Let the API server forward the visibility API to this port."""
    for name in SERVICES:
        plane.admin.patch(REGISTRATION, "APIService", name, {"spec": {"service": {"port": port}}})
    plane.admin.until_all(has("Available"), REGISTRATION, "APIService", SERVICES)
    plane.wait("kyu", lambda: is_forwarded(plane.admin))


def is_forwarded(client: Client) -> bool:
    try:
        client.request("GET", f"/apis/{GROUP}/v1beta2")
    except ApiError as error:
        if error.reason not in NOT_YET:
            raise
        return False
    return True


def positions(client: Client, path: str) -> list[tuple[str, int, int]]:
    shown = client.request("GET", path)
    return [
        (one["metadata"]["name"], one["positionInClusterQueue"], one["positionInLocalQueue"]) for one in shown["items"]
    ]


def shows(client: Client, path: str, expected: list[tuple[str, int, int]]) -> bool:
    """Return whether these are the positions. A replica may not know the queue yet, nor the API server it."""
    try:
        return positions(client, path) == expected
    except ApiError as error:
        if error.reason not in NOT_YET:
            raise
        return False


@pytest.mark.parametrize("port", [LEADER, STANDBY])
@pytest.mark.parametrize("path", [OF_QUEUE, OF_LOCAL_QUEUE])
def test_each_replica_shows_the_positions(plane: ControlPlane, port: int, path: str) -> None:
    forward(plane, port)
    plane.wait("kyu", lambda: shows(plane.admin, path, [("high", 0, 0), ("low", 1, 1)]))
    plane.wait("kyu", lambda: shows(plane.admin, f"{path}?limit=1&offset=1", [("low", 1, 1)]))


def test_the_api_server_discovers_it(plane: ControlPlane) -> None:
    forward(plane, LEADER)
    found = plane.admin.request("GET", f"/apis/{GROUP}/v1beta2")["resources"]
    assert "clusterqueues/pendingworkloads" in {one["name"] for one in found}
    with pytest.raises(ApiError, match="not found"):
        plane.admin.request("GET", OF_QUEUE.replace("team", "none"))


def test_a_user_needs_the_right_in_the_namespace(plane: ControlPlane) -> None:
    forward(plane, LEADER)
    ann = plane.user("ann")
    with pytest.raises(ApiError, match='User "ann" cannot get resource "localqueues/pendingworkloads"'):
        ann.request("GET", OF_LOCAL_QUEUE)
    plane.admin.create(binding("ann"))
    plane.wait("kyu", lambda: may_read(ann, OF_LOCAL_QUEUE))
    assert not may_read(ann, OF_QUEUE)
    ann.close()


def test_a_group_with_a_comma_is_one_group(plane: ControlPlane) -> None:
    forward(plane, LEADER)
    eve = plane.user("eve", ["staff,system:masters"])
    assert not may_read(eve, OF_QUEUE)
    eve.close()


def binding(user: str) -> Manifest:
    """Give a user Kueue's own role for LocalQueues in the namespace."""
    role = {"apiGroup": RBAC.partition("/")[0], "kind": "ClusterRole", "name": "kueue-pending-workloads-lq-viewer-role"}
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-sees-queues", "namespace": "team"},
        "roleRef": role,
        "subjects": [{"apiGroup": RBAC.partition("/")[0], "kind": "User", "name": user}],
    }


def may_read(client: Client, path: str) -> bool:
    try:
        client.request("GET", path)
    except ApiError as error:
        if error.reason != "Forbidden":
            raise
        return False
    return True


@pytest.mark.parametrize("named", [True, False], ids=["a certificate of the same authority", "no certificate"])
def test_other_clients_cannot_name_a_user(plane: ControlPlane, named: bool) -> None:
    bob = plane.user("bob")
    context = bob.context if named else ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(plane.layout.address, LEADER, context=context, timeout=30)
    with pytest.raises((OSError, http.client.HTTPException)):
        ask_as_administrator(connection)
    connection.close()
    bob.close()


def ask_as_administrator(connection: http.client.HTTPSConnection) -> None:
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    connection.request("GET", OF_QUEUE, headers=headers)
    connection.getresponse()
