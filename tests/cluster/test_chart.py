"""The Helm chart on a real API server: lint, render, install, upgrade, uninstall."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kyu.visibility import pending as visibility
from tests.cluster import kyu, parts
from tests.cluster.client import ApiError, Manifest, has
from tests.cluster.conftest import require
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.test_webhooks import KUEUE, QUEUE, job, namespace, queues

CHART = Path(__file__).parent.parent.parent / "config" / "chart"
INSTALL = ("kyu", str(CHART), "--namespace=kueue-system")
# Helm renders without a server for this version.
KUBERNETES = f"--kube-version={parts.KUBERNETES.version}"


def helm(*words: str, kubeconfig: Path | None = None) -> str:
    environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    command = [str(parts.binary("helm")), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*options: str) -> list[Manifest]:
    text = helm("template", *INSTALL, KUBERNETES, *options)
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


@pytest.fixture(autouse=True)
def _needs_helm() -> None:
    require("helm")


def test_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", str(CHART), "--strict", "--namespace=kueue-system")


@pytest.mark.parametrize("policies", [True, False])
def test_the_chart_renders_what_the_manifests_are(policies: bool) -> None:
    """Everything but the Deployment, which has more to choose from, is the same object."""
    options = ["--image=kyu:v1", *([] if policies else ["--no-policies"])]
    expected = [one for one in kyu.manifests(*options) if one["kind"] not in ("Namespace", "Deployment")]
    found = rendered("--set=image.tag=v1", f"--set=policies={str(policies).lower()}")
    for one in found:
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert [one for one in expected if one not in found] == []
    assert [one["kind"] for one in found if one not in expected] == ["Deployment"]


def test_values_reach_the_deployment() -> None:
    values = (
        "--set=replicas=3",
        "--set=image.repository=lab/kyu",
        "--set=image.tag=v7",
        "--set=nodeSelector.pool=infra",
    )
    settings = "--set=configuration.manageJobsWithoutQueueName=true"
    found = rendered(*values, settings)
    (deployment,) = [one for one in found if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 3
    assert pod["containers"][0]["image"] == "lab/kyu:v7"
    assert "--config=/etc/kyu/configuration.yaml" in pod["containers"][0]["command"]
    assert pod["nodeSelector"] == {"pool": "infra"}
    (configuration,) = [one for one in found if one["kind"] == "ConfigMap"]
    assert "manageJobsWithoutQueueName: true" in configuration["data"]["configuration.yaml"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set=replica=3"], "replica"),
        (["--set=policies=perhaps"], "policies"),
        (["--namespace=default"], "add --namespace kueue-system --create-namespace"),
    ],
)
def test_a_wrong_value_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        helm("template", *INSTALL, KUBERNETES, *words)


@pytest.fixture(scope="module")
def installed() -> Iterator[ControlPlane]:
    require(*EVERYTHING, "helm")
    with ControlPlane.start(*EVERYTHING) as plane:
        plane.add_nodes(["node"], {"cpu": "8", "memory": "8Gi"})
        helm("install", *INSTALL, "--create-namespace", kubeconfig=plane.kubeconfig)
        lead_all(plane)
        kyu.start(plane)
        yield plane


def lead_all(plane: ControlPlane) -> None:
    """Lead all that the chart has installed to the process, as a cluster's network would."""
    admission, definitions = "admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1"
    registration = "apiregistration.k8s.io/v1"
    names = [one["metadata"]["name"] for one in plane.admin.list(definitions, "CustomResourceDefinition")]
    found = [
        ("v1", "Service", "kyu-webhook", "kueue-system"),
        (admission, "MutatingWebhookConfiguration", "kyu-controller", ""),
        (admission, "ValidatingWebhookConfiguration", "kyu-controller", ""),
        *((definitions, "CustomResourceDefinition", name, "") for name in names),
        *((registration, "APIService", f"{version}.{visibility.GROUP}", "") for version in visibility.VERSIONS),
    ]
    for api_version, kind, name, where in found:
        manifest = plane.admin.get(api_version, kind, name, where)
        kyu.lead(plane, manifest)
        path = plane.admin.path(api_version, kind, name, where)
        body = {**manifest, "apiVersion": api_version, "kind": kind}
        plane.admin.request("PUT", path, body)


def run_job(plane: ControlPlane, name: str) -> None:
    plane.admin.create(job(name, **{QUEUE: "team"}))
    plane.admin.until(has("Complete"), "batch/v1", "Job", name, namespace="team")


def test_install_upgrade_and_uninstall(installed: ControlPlane) -> None:
    plane = installed
    plane.admin.create(namespace("team"))
    plane.admin.apply(queues("team"))
    run_job(plane, "before")
    helm("upgrade", *INSTALL, "--set=replicas=3", kubeconfig=plane.kubeconfig)
    lead_all(plane)
    run_job(plane, "after")
    plane.processes.kill("kyu")
    helm("uninstall", "kyu", "--namespace=kueue-system", kubeconfig=plane.kubeconfig)
    left = plane.admin.list("v1", "Secret", "kueue-system")
    assert [one["metadata"]["name"] for one in left] == ["kyu-webhook-cert"]
    assert plane.admin.get(KUEUE, "ClusterQueue", "team")
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy"):
        assert plane.admin.list("admissionregistration.k8s.io/v1", kind) == []
    with pytest.raises(ApiError):
        plane.admin.get("apps/v1", "Deployment", "kyu-controller", "kueue-system")
    plane.admin.create(job("unqueued"))
    plane.admin.until(has("Complete"), "batch/v1", "Job", "unqueued", namespace="team")
