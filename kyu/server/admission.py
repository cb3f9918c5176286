"""
Admission: what else is changed or refused in a write, besides by the rules of its kind.

New objects need a namespace that stays, Pods get their priority and tolerations, nobody chooses a node or gives away
rights without having the right to, and controllers in the same process are asked in place of webhooks.

Called by: server/writes.py, through server/api.py, for each write, after defaults and before validation.
Kubernetes: plugin/pkg/admission/{priority,defaulttolerationseconds,namespace/lifecycle}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kyu.api.meta import Json, Kind
from kyu.kinds import table
from kyu.server import builtin_pods, errors, escalation, forms, rbac
from kyu.server.attempts import Attempt
from kyu.server.namespaces import Lifecycle
from kyu.server.store import Store

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


class Admission:
    def __init__(self, store: Store, authorizer: rbac.Authorizer, lifecycle: Lifecycle) -> None:
        self._store = store
        self._authorizer = authorizer
        self._lifecycle = lifecycle
        # What controllers in the same process want to see first, in place of webhooks: they may change it, or raise.
        self.further: Callable[[Attempt], None] = lambda attempt: None

    def admit(self, attempt: Attempt) -> None:
        self._lifecycle.admit(attempt)
        if attempt.subresource:
            return
        if attempt.resource.storage == "pods" and attempt.old is None:
            builtin_pods.admit_pod(attempt.new, self)
        self._check_assignment(attempt)
        escalation.check(attempt, self._store, self._authorizer)
        self.further(attempt)

    # What builtin_pods.py asks of the cluster.

    def priority_class(self, name: str) -> Json | None:
        record = self._store.latest(PRIORITY_CLASSES, "", name)
        return forms.decode(record.value) if record is not None else None

    def has_service_account(self, namespace: str, name: str) -> bool:
        return self._store.latest("serviceaccounts", namespace, name) is not None

    def default_priority_class(self) -> Json | None:
        classes = (forms.decode(record.value) for record in self._store.objects(PRIORITY_CLASSES))
        chosen = [each for each in classes if each.get("globalDefault")]
        return min(chosen, key=lambda each: int(each.get("value", 0)), default=None)

    def _check_assignment(self, attempt: Attempt) -> None:
        """Where a pod runs is decided by the queue: whoever may not bind pods may not choose a node either."""
        chosen = chosen_nodes(attempt.resource.kind, attempt.new)
        if not chosen or (attempt.old is not None and chosen <= chosen_nodes(attempt.resource.kind, attempt.old)):
            return
        metadata = attempt.new["metadata"]
        wanted = rbac.Attributes("create", "", "pods", "binding", metadata.get("namespace", ""))
        if not self._authorizer.is_allowed(attempt.user, wanted):
            text = f'User "{attempt.user.name}" cannot set spec.nodeName: the queue decides where pods run'
            raise errors.forbidden(attempt.resource.kind, metadata.get("name", ""), text)


def chosen_nodes(kind: Kind, obj: Json) -> set[str]:
    """The nodes that an object names for its pods."""
    spec = pod_spec(obj)
    if spec is not None:
        return {str(spec["nodeName"])} if spec.get("nodeName") else set()
    return set(nodes_within(obj.get("spec"))) if table.find_kind(kind) is not None else set()


def nodes_within(part: object) -> Iterator[str]:
    """Kinds of jobs have their pod templates in many places; wherever one is, its node stands beside its containers."""
    if isinstance(part, dict):
        if part.get("nodeName") and "containers" in part:
            yield str(part["nodeName"])
        for value in part.values():
            yield from nodes_within(value)
    elif isinstance(part, list):
        for value in part:
            yield from nodes_within(value)


def pod_spec(obj: Json) -> Json | None:
    """The spec of a Pod, or of the pods that an object is the template of."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return None
    if isinstance(spec.get("containers"), list):
        return spec
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    return inner if isinstance(inner, dict) else None
