"""
A stand-in for KubeStellar's transport, in a thread. It does what KubeStellar's documents say, and nothing more:

- An object of the hub whose label a BindingPolicy selects is copied to the cluster of the policy, once (createOnly).
- A copy loses its status and the fields that belong to the hub's server. A Job also loses its selector, ``suspend`` and
  the labels of its controller. Of other kinds the paths that a CustomTransform names are removed.
- When the label goes, or the object, the copy is deleted.
- The status of the one copy is written to the original (singleton status), and cleared when there is no copy any more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kyu.api.clusters.kubestellar import BINDING_POLICY, COMBINED_STATUS, CUSTOM_TRANSFORM
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.kinds import fields
from kyu.kinds.job import JOB
from kyu.kube import errors, kubeconfig
from kyu.kube.blocking import BlockingClient, Unreachable
from tests.support.local_kyu import LocalKyu

PYTORCH = Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
KINDS = (JOB, PYTORCH)
COPY = "transport.kubestellar.io/copy"
CONTROLLER_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)


def definition(kind: Kind) -> Json:
    """The definition of one of KubeStellar's kinds, with all of its fields open."""
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.kind.lower()}
    open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": open_}}
    scope = "Namespaced" if kind.namespaced else "Cluster"
    spec = {"group": kind.group, "names": names, "scope": scope, "versions": [version]}
    meta = {"name": f"{kind.plural}.{kind.group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


DEFINITIONS = [definition(kind) for kind in (BINDING_POLICY, CUSTOM_TRANSFORM, COMBINED_STATUS)]


class KubeStellarStandIn(threading.Thread):
    """Carries objects between a hub and its clusters until ``stop`` is called. ``rounds`` counts complete rounds."""

    def __init__(self, hub: LocalKyu, clusters: Mapping[str, LocalKyu]) -> None:
        super().__init__(daemon=True)
        self._hub = BlockingClient(kubeconfig.load(hub.data / "kubeconfig"), "kubestellar")
        self._clusters = {
            name: BlockingClient(kubeconfig.load(one.data / "kubeconfig"), "kubestellar")
            for name, one in clusters.items()
        }
        self._stopped = threading.Event()
        self._returned: set[tuple[Kind, Key]] = set()
        self.rounds = 0

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            try:
                for kind in KINDS:
                    self._carry(kind)
                self.rounds += 1
            except (errors.ApiError, Unreachable):
                # As the real one, it tries again.
                continue

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _carry(self, kind: Kind) -> None:
        originals = {key_of(one): one for one in self._hub.list(kind)}
        chosen = {key: self._cluster_of(one) for key, one in originals.items()}
        for name, client in self._clusters.items():
            copies = {key_of(one): one for one in client.list(kind, labels=f"{COPY}=true")}
            for key, copy in copies.items():
                if chosen.get(key) != name:
                    client.delete(kind, key)
                else:
                    self._return(kind, key, originals[key], copy.get("status") or {})
            for key, cluster in chosen.items():
                if cluster == name and key not in copies:
                    client.create(kind, self._copy(kind, originals[key]))
        for key, one in originals.items():
            if (kind, key) in self._returned and not chosen[key]:
                self._return(kind, key, one, {})
                self._returned.discard((kind, key))

    def _cluster_of(self, obj: Json) -> str:
        labels = obj["metadata"].get("labels") or {}
        for policy in self._hub.list(BINDING_POLICY):
            for clause in policy["spec"]["downsync"]:
                for selector in clause["objectSelectors"]:
                    if all(labels.get(name) == value for name, value in selector["matchLabels"].items()):
                        return str(policy["spec"]["clusterSelectors"][0]["matchLabels"]["name"])
        return ""

    def _copy(self, kind: Kind, obj: Json) -> Json:
        meta = {name: obj["metadata"][name] for name in ("name", "namespace", "annotations") if name in obj["metadata"]}
        meta["labels"] = {**(obj["metadata"].get("labels") or {}), COPY: "true"}
        body = fields.merged({"spec": obj["spec"]}, {})
        if kind == JOB:
            labels = dict.fromkeys(CONTROLLER_LABELS)
            gone = {"selector": None, "suspend": None, "template": {"metadata": {"labels": labels}}}
            body = fields.merged(body, {"spec": gone})
        for one in self._hub.list(CUSTOM_TRANSFORM):
            if (one["spec"]["apiGroup"], one["spec"]["resource"]) == (kind.group, kind.plural):
                for path in one["spec"]["remove"]:
                    body = without(body, path.removeprefix("$.").split("."))
        return {"metadata": meta, **body}

    def _return(self, kind: Kind, key: Key, original: Json, status: Json) -> None:
        if patch := fields.merge_patch(original.get("status") or {}, status):
            self._hub.patch(kind, key, {"status": patch}, subresource="status")
        self._returned.add((kind, key))


def without(obj: Json, path: list[str]) -> Json:
    """Return the object without the field at the path."""
    if len(path) == 1:
        return {name: value for name, value in obj.items() if name != path[0]}
    inner = obj.get(path[0])
    return {**obj, path[0]: without(inner, path[1:])} if isinstance(inner, dict) else obj
