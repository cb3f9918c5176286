"""The resources of Kubernetes that this server leaves out on purpose, each with the reason that clients are told."""

from __future__ import annotations

_NO_NETWORK = "pods share the network of this machine: connect to their ports directly, or use `kubectl port-forward`"

# resource.group/subresource, or resource.group -> why not
UNSERVED = {
    "pods/proxy": _NO_NETWORK,
    # These two can be read; nothing is written there.
    "pods/ephemeralcontainers": "no container is added to a pod that runs; run another pod beside it",
    "pods/resize": "a pod keeps the resources with which it started",
    "services/proxy": _NO_NETWORK,
    "nodes/proxy": _NO_NETWORK,
    "horizontalpodautoscalers.autoscaling": "there are no metrics of pods here; set the replicas by `kubectl scale`",
    "replicationcontrollers": "use a ReplicaSet or a Deployment",
    "persistentvolumes": "volumes are folders of this machine; a claim needs no volume object",
    "componentstatuses": "there is one component; ask /readyz",
    "certificatesigningrequests.certificates.k8s.io": "the server signs no certificates for others; users have tokens",
    "apiservices.apiregistration.k8s.io": "other API servers are not aggregated",
}


def why_not(group: str, plural: str, subresource: str) -> str:
    """Return why a path is not served; empty if it does not exist in Kubernetes."""
    resource = f"{plural}.{group}" if group else plural
    return UNSERVED.get(f"{resource}/{subresource}" if subresource else resource, "")
