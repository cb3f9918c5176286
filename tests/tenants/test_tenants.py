"""Tenants: the objects and settings that follow from a file, its faults, and changes by hand on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api import codec, documents, rules
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key
from kyu.tenants import exports, objects, tenant
from tests.support.local_kyu import LocalKyu, local_kyu

EXAMPLES = Path(__file__).parents[2] / "examples"
ROLES = ("batch-user", "batch-admin")


def read(text: str) -> list[tenant.Tenant]:
    return tenant.read(codec.read(text, "tenants.yaml"))


def make(name: str) -> dict[str, Json]:
    made = objects.make_objects(read((EXAMPLES / name).read_text()), roles=ROLES)
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in made}


def write(name: str, **spec: object) -> str:
    body = {"apiVersion": tenant.API_VERSION, "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
    return documents.render([body])


CPU = [{"flavor": "default", "resources": {"cpu": 4}}]


def test_two_teams_share_one_queue() -> None:
    made = make("02-one-queue/tenants.yaml")
    queue = made["ClusterQueue/skypilot-cluster-queue"]["spec"]
    assert queue["namespaceSelector"]["matchExpressions"][0]["values"] == ["team1", "team2"]
    assert queue["resourceGroups"][0]["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu"]
    for team in ("team1", "team2"):
        local = made[f"LocalQueue/skypilot-local-queue-{team}"]
        assert local["metadata"]["namespace"] == team
        assert local["spec"] == {"clusterQueue": "skypilot-cluster-queue"}
    assert not any(name.startswith("Cohort/") for name in made)


def test_two_teams_have_a_queue_each_in_a_cohort() -> None:
    made = make("02-two-queues/tenants.yaml")
    assert "Cohort/skypilot-cohort" in made
    first = made["ClusterQueue/skypilot-cluster-queue-team1"]["spec"]
    assert first["cohortName"] == "skypilot-cohort"
    assert first["fairSharing"] == {"weight": "2"}
    gpu = first["resourceGroups"][0]["flavors"][0]["resources"][2]
    assert gpu == {"name": "nvidia.com/gpu", "nominalQuota": "2", "borrowingLimit": "1"}
    binding = made["RoleBinding/tenant-members"]
    assert binding["roleRef"]["name"] == "batch-user"


@pytest.mark.parametrize("name", ["02-one-queue/tenants.yaml", "02-two-queues/tenants.yaml"])
def test_the_objects_are_valid(name: str) -> None:
    for obj in make(name).values():
        if obj["apiVersion"].startswith("kueue"):
            assert rules.validate(rules.defaults(obj)) == []
            assert rules.unknown_fields(obj) == []


def test_an_organisation_has_a_queue_for_each_type_of_job() -> None:
    tenants = read((EXAMPLES / "03-scheduler-plugins/tenants.yaml").read_text())
    made = objects.make_objects(tenants, roles=ROLES)
    queues = {obj["metadata"]["name"] for obj in made if obj["kind"] == "LocalQueue"}
    assert queues == {"org1.ray", "org1.spark", "org1.default"}
    (org,) = exports.yunikorn(tenants)["partitions"][0]["queues"][0]["queues"]
    assert org["name"] == "org1"
    assert [leaf["name"] for leaf in org["queues"]] == ["ray", "spark", "default"]
    assert org["submitacl"] == " org1"
    assert org["resources"] == {
        "guaranteed": {"vcore": "20", "memory": "80Gi"},
        "max": {"vcore": "20", "memory": "80Gi"},
    }


def test_skypilot_names_the_queue_of_its_team() -> None:
    tenants = read((EXAMPLES / "02-one-queue/tenants.yaml").read_text())
    team1 = next(each for each in tenants if each.name == "team1")
    queue = "skypilot-local-queue-team1"
    assert exports.skypilot(team1) == {"kubernetes": {"kueue": {"local_queue_name": queue}}}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    assert exports.skypilot(team1, "labels") == {"kubernetes": {"pod_config": {"metadata": {"labels": labels}}}}
    values = exports.helm_values(team1)
    assert documents.parse(values["apiService"]["config"])[0].value == exports.skypilot(team1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (write("a", quota=[]), "Object contains unknown field `quota`"),
        (write("A"), "metadata.name: 'A'"),
        (write("a", parent="b", quotas=CPU), "there is no Tenant 'b'; there are a"),
        (write("a", parent="a", quotas=CPU), "a -> a is a circle"),
        (write("a"), "spec.quotas: a ClusterQueue without quotas admits nothing"),
        (write("a", quotas=[{"flavor": "x", "resources": {"cpu": "many"}}]), "'many' is no quantity"),
        (write("a", quotas=CPU, sharedQueue=True), "no Tenant names a as its parent"),
        (write("a", quotas=CPU) + "---\n" + write("a", quotas=CPU), "two Tenants a"),
        (
            write("a", quotas=CPU, namespaces=["n"]) + "---\n" + write("b", quotas=CPU, namespaces=["n"]),
            "n belongs to Tenant a",
        ),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", "v1 Namespace is no kyu.dev/v1alpha1 Tenant"),
        ("", "there is no Tenant in the files"),
    ],
)
def test_faults_are_named(text: str, message: str) -> None:
    with pytest.raises(tenant.TenantError) as error:
        read(text)
    assert message in str(error.value)


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu")) as running:
        yield running


def test_a_change_by_hand_is_shown_and_kept(kyu: LocalKyu) -> None:
    file = str(EXAMPLES / "02-two-queues/tenants.yaml")
    planned = kyu.kyu("tenant", "plan", "-f", file, check=False)
    assert planned.returncode == 1
    assert "create: clusterqueues/skypilot-cluster-queue-team1" in planned.stdout
    assert "clusterqueues/skypilot-cluster-queue-team1 created" in kyu.kyu("tenant", "apply", "-f", file).stdout
    kyu.kyu("tenant", "plan", "-f", file)
    key = Key("", "skypilot-cluster-queue-team1")
    queue = kyu.client.get(ClusterQueue.KIND, key)
    groups = queue["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = "99"
    kyu.client.patch(ClusterQueue.KIND, key, {"spec": {"resourceGroups": groups}})
    drift = kyu.kyu("tenant", "plan", "-f", file, check=False)
    assert drift.returncode == 1
    assert "changed by hand: clusterqueues/skypilot-cluster-queue-team1" in drift.stdout
    assert "nominalQuota: 99 -> 8" in drift.stdout
    kept = kyu.kyu("tenant", "apply", "-f", file, check=False)
    assert kept.returncode == 1
    assert "was changed by hand and is kept" in kept.stdout
    assert kyu.client.get(ClusterQueue.KIND, key)["spec"]["resourceGroups"] == groups
    kyu.kyu("tenant", "apply", "-f", file, "--force")
    kyu.kyu("tenant", "plan", "-f", file)


def test_a_queue_that_the_file_forgets_is_left_over(kyu: LocalKyu, tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(write("solo", quotas=CPU, jobTypes=["ray", "spark"]))
    kyu.kyu("tenant", "apply", "-f", str(file))
    file.write_text(write("solo", quotas=CPU, jobTypes=["ray"]))
    planned = kyu.kyu("tenant", "plan", "-f", str(file), check=False)
    assert "left over: localqueues/solo/solo.spark" in planned.stdout
    kyu.kyu("tenant", "apply", "-f", str(file))
    assert kyu.client.find(LocalQueue.KIND, Key("solo", "solo.spark")) is not None
