"""Connections to worker clusters: credentials, watched kinds, and the rights that a kubeconfig needs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kyu.api import codec, roles
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.core import SECRET
from kyu.api.kueue import MultiKueueCluster
from kyu.api.meta import Json
from kyu.controllers.clusters import secrets as worker_secrets
from kyu.controllers.clusters.secrets import Unusable, find_credentials
from kyu.kinds import table
from kyu.kube.cache import Cache

PLAIN_CLUSTER = {"server": "https://10.0.0.1:6443"}


def kubeconfig(cluster: Json | None = None, user: Json | None = None) -> str:
    document = {
        "clusters": [{"name": "c", "cluster": PLAIN_CLUSTER | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "t"} | (user or {})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return msgspec.json.encode(document).decode()


def secrets(text: str, key: str = "kubeconfig") -> Cache:
    cache = Cache()
    data = {key: base64.b64encode(text.encode()).decode()}
    meta = {"name": "west", "namespace": "kueue-system", "resourceVersion": "1"}
    cache.observe(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    return cache


def cluster(**source: Any) -> MultiKueueCluster:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "west"}}
    source = source or {"kubeConfig": {"location": "west"}}
    return codec.decode_as(MultiKueueCluster, {**body, "spec": {"clusterSource": source}})


def test_a_secret_of_kueues_namespace_lets_us_in() -> None:
    found = find_credentials(cluster(), secrets(kubeconfig()), Configuration())
    assert (found.server, found.token) == ("https://10.0.0.1:6443", "t")


@pytest.mark.parametrize(
    ("stored", "reason", "words"),
    [
        (Cache(), "BadKubeConfig", "Secret kueue-system/west does not exist"),
        (secrets(kubeconfig(), key="config"), "BadKubeConfig", "has no kubeconfig"),
        (secrets("- no kubeconfig"), "BadKubeConfig", "not a kubeconfig"),
        (secrets('{"clusters": ["c"]}'), "BadKubeConfig", "clusters has an entry without cluster"),
        (secrets('{"contexts": [{"name": "x"}], "current-context": "x"}'), "BadKubeConfig", "without context"),
        (secrets("{}"), "BadKubeConfig", "contexts has no entry"),
        (secrets('{"contexts": 5}'), "BadKubeConfig", "contexts must be a list"),
        (secrets(kubeconfig({"server": ""})), "BadKubeConfig", "has no server"),
        (secrets(kubeconfig({"certificate-authority-data": "A"})), "BadKubeConfig", "base64"),
        (secrets(kubeconfig({"insecure-skip-tls-verify": True})), "InsecureKubeConfig", "insecure-skip-tls-verify"),
        (secrets(kubeconfig({"certificate-authority": "/etc/passwd"})), "InsecureKubeConfig", "certificate-authority"),
        (secrets(kubeconfig(user={"tokenFile": "/etc/passwd"})), "InsecureKubeConfig", "tokenFile"),
        (secrets(kubeconfig(user={"exec": {"command": "sh"}})), "InsecureKubeConfig", "exec"),
        (secrets(kubeconfig(user={"client-key": "/etc/passwd"})), "InsecureKubeConfig", "client-key"),
        (secrets(kubeconfig(user={"username": "u"})), "InsecureKubeConfig", "username"),
    ],
)
def test_a_kubeconfig_that_is_not_complete_or_not_safe_is_refused(stored: Cache, reason: str, words: str) -> None:
    with pytest.raises(Unusable, match=words) as raised:
        find_credentials(cluster(), stored, Configuration())
    assert raised.value.reason == reason


def test_a_cluster_profile_is_refused_by_name() -> None:
    with pytest.raises(Unusable) as raised:
        find_credentials(cluster(clusterProfileRef={"name": "p"}), Cache(), Configuration())
    assert raised.value.reason == "MultiKueueClusterProfileFeatureDisabled"


def test_a_file_is_read_in_its_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "west").write_text(kubeconfig())
    (allowed / "connection").symlink_to(other / "west")
    monkeypatch.setattr(worker_secrets, "FOLDER", allowed)

    def find(path: Path, configuration: Configuration) -> str:
        source = {"location": str(path), "locationType": "Path"}
        return find_credentials(cluster(kubeConfig=source), Cache(), configuration).server

    assert find(allowed / "west", Configuration()) == "https://10.0.0.1:6443"
    for path in (other / "west", allowed / "connection", allowed / ".." / "other" / "west"):
        with pytest.raises(Unusable, match="is not below"):
            find(path, Configuration())
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    gates = {"MultiKueueKubeConfigPathValidation": False}
    anywhere = file.load({**document, "featureGates": gates}).configuration
    assert find(other / "west", anywhere) == "https://10.0.0.1:6443"


def test_the_role_for_managers_covers_every_kind_that_is_sent() -> None:
    (role,) = [one for one in roles.cluster_roles() if one["metadata"]["name"] == "kueue-multikueue-manager-role"]
    allowed = {(rule["apiGroups"][0], plural) for rule in role["rules"] for plural in rule["resources"]}
    sent = {(kind.kind.group, kind.kind.plural) for kind in table.KINDS if kind.may_be_dispatched}
    group = "kueue.x-k8s.io"
    assert allowed == sent | {(group, "workloads"), (group, "workloads/status")}


@pytest.mark.parametrize(
    "kind", [kind for kind in table.KINDS if kind.may_be_dispatched], ids=lambda kind: kind.kind.kind
)
def test_a_job_whose_cluster_is_lost_counts_as_stopped_when_its_status_is_forgotten(kind: Any) -> None:
    group = {"active": 1, "name": "g"}
    running = {
        "active": 1,
        "ready": 1,
        "conditions": [{"type": one, "status": "True"} for one in ("Running", "QuotaReserved", "Ready")],
        "replicatedJobsStatus": [group],
        "jobsStatus": [group],
        "replicaStatuses": {"Worker": {"active": 1}},
        "state": "ready",
        "jobDeploymentStatus": "Running",
        "phase": "Running",
    }
    obj = {"metadata": {"name": "j"}, "spec": {}, "status": running}
    assert kind.is_active(obj)
    left = {name: value for name, value in running.items() if name not in kind.forget_patch(obj)}
    assert not kind.is_active({**obj, "status": left})
