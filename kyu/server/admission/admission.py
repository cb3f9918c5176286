"""
The admission chain: changes and refusals of a write beyond the rules of its kind.

A new object needs a namespace that is not being deleted and has room for it. Pods get their priority and tolerations.
Users may neither choose a node nor grant rights without the permission to do so. The embedded controllers take the
place of webhooks.

Kubernetes: plugin/pkg/admission/{priority,defaulttolerationseconds,namespace/lifecycle}.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kyu.api.meta import Json, Kind
from kyu.kinds import table, templates
from kyu.server import bounds, errors, representations
from kyu.server.admission import escalation, submitters
from kyu.server.admission.namespaces import NamespaceLifecycle
from kyu.server.admission.request import AdmissionRequest
from kyu.server.auth import auth, rbac
from kyu.server.builtin.pods import pods
from kyu.server.exchange import User, encode
from kyu.server.storage.store import Store

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


class AdmissionChain:
    def __init__(
        self, store: Store, authorizer: rbac.Authorizer, lifecycle: NamespaceLifecycle, internal: User
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._lifecycle = lifecycle
        self.internal = internal
        # Changes the new object, or raises. The embedded controllers set it.
        self.webhook: Callable[[AdmissionRequest], None] = lambda request: None
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.most_namespace_bytes = bounds.most_namespace_bytes(memory)

    def admit(self, request: AdmissionRequest) -> None:
        self._lifecycle.admit(request)
        self._check_room(request)
        if request.subresource:
            submitters.keep_annotations(request, self.internal)
            return
        if request.resource.storage == "pods" and request.old is None:
            pods.admit_pod(request.new, self)
        self._check_assignment(request)
        escalation.check(request, self._store, self._authorizer)
        self.webhook(request)

    # The ClusterLookup of server/builtin/pods/pods.py.

    def priority_class(self, name: str) -> Json | None:
        record = self._store.latest(PRIORITY_CLASSES, "", name)
        return representations.decode(record.value) if record is not None else None

    def has_service_account(self, namespace: str, name: str) -> bool:
        return self._store.latest("serviceaccounts", namespace, name) is not None

    def default_priority_class(self) -> Json | None:
        classes = (representations.decode(record.value) for record in self._store.objects(PRIORITY_CLASSES))
        chosen = [each for each in classes if each.get("globalDefault")]
        return min(chosen, key=lambda each: int(each.get("value", 0)), default=None)

    def _check_room(self, request: AdmissionRequest) -> None:
        """Reject a write that lets a full namespace grow, unless an administrator or a controller makes it."""
        metadata = request.new["metadata"]
        namespace = metadata.get("namespace", "")
        used, most = self._store.namespace_bytes(namespace), self.most_namespace_bytes
        if not namespace or used < most or auth.MASTERS in request.user.groups:
            return
        if request.old is None or len(encode(request.new)) > len(encode(request.old)):
            text = f"namespace {namespace} has objects of {used} bytes, and may have {most}; delete some of them"
            raise errors.forbidden(request.resource.kind, metadata.get("name", ""), text)

    def _check_assignment(self, request: AdmissionRequest) -> None:
        """Reject a node that the user chose, unless the user may bind pods: the queue decides where pods run."""
        chosen = chosen_nodes(request.resource.kind, request.new)
        if not chosen or (request.old is not None and chosen <= chosen_nodes(request.resource.kind, request.old)):
            return
        metadata = request.new["metadata"]
        wanted = rbac.Attributes("create", "", "pods", "binding", metadata.get("namespace", ""))
        if not self._authorizer.is_allowed(request.user, wanted):
            text = f'User "{request.user.name}" cannot set spec.nodeName: the queue decides where pods run'
            raise errors.forbidden(request.resource.kind, metadata.get("name", ""), text)


def chosen_nodes(kind: Kind, obj: Json) -> set[str]:
    """Return the nodes that an object sets for its pods."""
    spec = pod_spec(obj)
    if spec is not None:
        return {str(spec["nodeName"])} if spec.get("nodeName") else set()
    return set(templates.nodes_within(obj.get("spec"))) if table.find_kind(kind) is not None else set()


def pod_spec(obj: Json) -> Json | None:
    """Return the spec of a Pod, or of the pod template of an object."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return None
    if isinstance(spec.get("containers"), list):
        return spec
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    return inner if isinstance(inner, dict) else None
