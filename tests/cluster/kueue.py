"""
Upstream Kueue on a control plane: its own installation, with the process outside instead of in a Deployment.

The manifests are those that Kueue's release renders, and the process signs in as Kueue's service account, so its roles
hold. What a cluster would do for it is done here: its Services lead to the process, and the Secret with its certificate
is filled and put in a folder.

Called by: the tests, __main__.py, measure.py.
Kueue: config/default, cmd/kueue/main.go, pkg/util/cert.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from tests.cluster import addresses, certificates, client, parts
from tests.cluster.certificates import KeyPair
from tests.cluster.client import Manifest
from tests.cluster.controlplane import ControlPlane, write_user

NAME = "kueue"
NAMESPACE = "kueue-system"
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
WEBHOOK_SERVICE = "kueue-webhook-service"
WEBHOOK_SECRET = "kueue-webhook-server-cert"
VISIBILITY_SERVICE = "kueue-visibility-server"
METRICS_SERVICE = "kueue-controller-manager-metrics-service"

PORT_BY_SERVICE = {
    WEBHOOK_SERVICE: addresses.KUEUE_WEBHOOK_PORT,
    VISIBILITY_SERVICE: addresses.KUEUE_VISIBILITY_PORT,
    METRICS_SERVICE: addresses.KUEUE_METRICS_PORT,
}
# Kueue looks for a CA of this name in the Secret, and makes a new one when it does not find it.
AUTHORITY = "kueue-ca"
DEFINITION = "CustomResourceDefinition"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def start(plane: ControlPlane, configuration: Manifest | None = None, *, webhooks: bool = True) -> None:
    """
    Install Kueue and run it, ready when this returns.

    ``configuration`` is merged into one that fits the control plane. Without webhooks nothing is defaulted or refused
    on admission; conversion between the API versions works in either case.
    """
    manifests = install(plane, webhooks=webhooks)
    run(plane, configuration or {})
    # Last, because the API server asks an aggregated one whose first answer was no only every half minute.
    services = [manifest for manifest in manifests if manifest["kind"] == "APIService"]
    plane.admin.apply(services)
    names = [service["metadata"]["name"] for service in services]
    plane.admin.until_all(client.has("Available"), "apiregistration.k8s.io/v1", "APIService", names)


def install(plane: ControlPlane, *, webhooks: bool) -> list[Manifest]:
    """Everything but the process and the aggregated API, which needs it. Returns all of Kueue's manifests."""
    authority = certificates.authority(AUTHORITY)
    manifests = list(installation(plane, authority, webhooks=webhooks))
    plane.admin.apply(manifest for manifest in manifests if manifest["kind"] != "APIService")
    plane.admin.apply([write_certificate(plane, authority)])
    names = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == DEFINITION]
    plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", DEFINITION, names)
    return manifests


def run(plane: ControlPlane, configuration: Manifest) -> None:
    """Start the process of an installed Kueue; after ``plane.processes.kill("kueue")`` it may be called again."""
    folder = plane.layout.folder / NAME
    folder.mkdir(exist_ok=True)
    settings = folder / "configuration.yaml"
    settings.write_text(yaml.safe_dump(merged(default_configuration(plane), configuration), sort_keys=False))
    write_user(plane.layout, plane.authority, SERVICE_ACCOUNT, GROUPS).close()
    kubeconfig = plane.layout.folder / f"user-{SERVICE_ACCOUNT.replace(':', '-')}.kubeconfig"
    command = [str(parts.binary(NAME)), f"--config={settings}", f"--kubeconfig={kubeconfig}", "--zap-log-level=2"]
    plane.processes.start(NAME, command)
    plane.wait_until_healthy(NAME, f"http://{health_address(plane)}/readyz")


def default_configuration(plane: ControlPlane) -> Manifest:
    address = plane.layout.address
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": health_address(plane)},
        "metrics": {"bindAddress": f"{address}:{PORT_BY_SERVICE[METRICS_SERVICE]}"},
        "webhook": {
            "host": address,
            "port": PORT_BY_SERVICE[WEBHOOK_SERVICE],
            "certDir": str(certificate_folder(plane)),
        },
        "visibilityServer": {"bindAddress": address, "bindPort": PORT_BY_SERVICE[VISIBILITY_SERVICE]},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": WEBHOOK_SERVICE,
            "webhookSecretName": WEBHOOK_SECRET,
        },
        "clientConnection": {"qps": 300, "burst": 500},
        # The kinds that a bare Kubernetes serves.
        "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
    }


def health_address(plane: ControlPlane) -> str:
    return f"{plane.layout.address}:{addresses.KUEUE_HEALTH_PORT}"


def merged(base: Manifest, change: Manifest) -> Manifest:
    """Mappings are merged, everything else is replaced."""
    result = dict(base)
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            result[key] = merged(base[key], value)
        else:
            result[key] = value
    return result


def installation(plane: ControlPlane, authority: KeyPair, *, webhooks: bool) -> Iterator[Manifest]:
    """Kueue's own manifests, without the Deployment and led to our process."""
    authority_pem = base64.b64encode(authority.certificate_pem()).decode()
    documents: Iterable[Manifest] = yaml.load_all(parts.installation(parts.KUEUE).read_text(), yaml.CSafeLoader)
    for manifest in documents:
        kind = manifest["kind"]
        if kind in ("Deployment", "Secret") or (kind in WEBHOOK_KINDS and not webhooks):
            continue
        if kind == "Service":
            # There is no kube-proxy: the Service is another name for the address on which the process listens.
            manifest["spec"] = {"type": "ExternalName", "externalName": plane.layout.address}
        if kind == "APIService":
            lead(manifest["spec"])
        for configuration in client_configurations(manifest):
            lead(configuration)
            configuration["caBundle"] = authority_pem
        yield manifest


def lead(caller: Manifest) -> None:
    """What the API server calls listens on the port of the process, as nothing translates that of the Service."""
    caller["service"]["port"] = PORT_BY_SERVICE[caller["service"]["name"]]


def client_configurations(manifest: Manifest) -> Iterator[Manifest]:
    """How the API server calls the webhooks of this manifest, for admission or conversion."""
    if manifest["kind"] in WEBHOOK_KINDS:
        for webhook in manifest["webhooks"]:
            yield webhook["clientConfig"]
    conversion = manifest.get("spec", {}).get("conversion", {})
    if conversion.get("strategy") == "Webhook":
        yield conversion["webhook"]["clientConfig"]


def certificate_folder(plane: ControlPlane) -> Path:
    return plane.layout.folder / NAME / "certificates"


def write_certificate(plane: ControlPlane, authority: KeyPair) -> Manifest:
    """
    The Secret with the webhook's certificate, also written where the process reads it.

    Kueue would make it on its first start and then wait for a kubelet to mount it; a valid one is taken as it is.
    """
    server = certificates.server(authority, [f"{WEBHOOK_SERVICE}.{NAMESPACE}.svc"])
    files = {**pem_files("ca", authority), **pem_files("tls", server)}
    folder = certificate_folder(plane)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": WEBHOOK_SECRET, "namespace": NAMESPACE},
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def pem_files(name: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{name}.crt": pair.certificate_pem(), f"{name}.key": pair.key_pem()}
