"""
The objects of a new server: namespaces, roles, the definitions of Kueue's kinds, and a first set of queues.

Everything is created if it is missing and then belongs to the users; only the definitions are kept up to date, because
the code depends on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from kyu.api import kueue, pools, quantity, workflows
from kyu.api.accounting import ATTEMPT
from kyu.api.clusters import capacity
from kyu.api.definitions import crds
from kyu.api.meta import Json
from kyu.kinds import table
from kyu.server import errors
from kyu.server.api import INTERNAL, Api
from kyu.server.auth import auth, tokens
from kyu.server.builtin.rbac import GROUP
from kyu.server.exchange import encode
from kyu.server.options import WriteOptions
from kyu.server.paths import Target
from kyu.server.storage.records import Record

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", tokens.NAMESPACE)
MANAGER = "kyu"
# Small jobs that ask for next to nothing still take a process each.
PODS_PER_PROCESSOR = 50
# The hash of the definition that was applied last.
FINGERPRINT = "kyu.dev/definition"
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "deletecollection", "patch", "update"]
KUEUE = "kueue.x-k8s.io"


async def ensure(api: Api) -> None:
    """Create what is missing. On a store that has it all, nothing is written."""
    for name in NAMESPACES:
        _create(api, "v1", "Namespace", {"metadata": {"name": name}})
    for name, rules in cluster_roles().items():
        _create(api, f"{GROUP}/v1", "ClusterRole", {"metadata": {"name": name}, "rules": rules})
    for name, rules in former_roles().items():
        _renew_role(api, name, rules)
    for name, group in CLUSTER_BINDINGS.items():
        _create(api, f"{GROUP}/v1", "ClusterRoleBinding", _binding(name, group))
    for definition in (*crds.definitions(), pools.definition(), *capacity.definitions(), workflows.definition()):
        _put_definition(api, definition)
    await api.store.flush()


async def create_all(api: Api, objects: Iterable[Json]) -> None:
    """Create these objects where they are missing."""
    for obj in objects:
        body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
        _create(api, obj["apiVersion"], obj["kind"], body)
    await api.store.flush()


async def apply(api: Api, obj: Json) -> None:
    """Apply an object by force, whatever its other managers wrote."""
    resource = api.registry.find_kind(obj["apiVersion"], obj["kind"])
    assert resource is not None, f"{obj['kind']} is not served"
    target = Target(resource, obj["metadata"].get("namespace"), obj["metadata"]["name"])
    written = api.writes.apply_object(target, obj, WriteOptions(MANAGER, force=True), INTERNAL)
    if written.done is not None:
        await written.done


def local_queues(processors: int, memory_bytes: int, nodes: Iterable[Json] = ()) -> list[Json]:
    """Return a flavor, a ClusterQueue and a LocalQueue to it, all named ``local``.

    The quota has the size of this machine, and of other nodes without taints.
    """
    version, name = f"{KUEUE}/v1beta2", {"name": "local"}
    amounts = {"cpu": processors * 1000, "memory": memory_bytes, "pods": processors * PODS_PER_PROCESSOR}
    for node in nodes:
        if not (node.get("spec") or {}).get("taints"):
            for resource, value in (node["status"].get("allocatable") or {}).items():
                amounts[resource] = amounts.get(resource, 0) + quantity.amount(resource, value)
    amounts["memory"] -= amounts["memory"] % 2**20
    quotas = [{"name": key, "nominalQuota": quantity.render(key, total)} for key, total in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": "local", "resources": quotas}]}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": name, "spec": {}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": name,
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {**name, "namespace": "default"},
            "spec": {"clusterQueue": "local"},
        },
    ]


def _create(api: Api, api_version: str, kind: str, body: Json) -> None:
    resource = api.registry.find_kind(api_version, kind)
    if resource is None:
        raise AssertionError(f"{api_version} {kind} is not served")
    metadata = body["metadata"]
    if api.store.latest(resource.storage, metadata.get("namespace", ""), metadata["name"]) is not None:
        return
    try:
        obj, _ = resource.rules.read({"apiVersion": api_version, "kind": kind, **body})
        api.writes.create_object(resource, obj, WriteOptions(MANAGER), INTERNAL)
    except errors.StatusError as error:
        raise AssertionError(f"{kind} {metadata['name']}: {error}") from error


def _renew_role(api: Api, name: str, former: list[Json]) -> None:
    """Replace a role that still has exactly the rules of an earlier version. One that was edited is kept."""
    resource = api.registry.find_kind(f"{GROUP}/v1", "ClusterRole")
    assert resource is not None
    stored = api.store.latest(resource.storage, "", name)
    if stored is None or msgspec.json.decode(stored.value).get("rules") != former:
        return
    named = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    role: Json = {**named, "rules": cluster_roles()[name]}
    api.writes.apply_object(Target(resource, None, name), role, WriteOptions(MANAGER, force=True), INTERNAL)


def _put_definition(api: Api, definition: Json) -> None:
    resource = api.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert resource is not None
    name = definition["metadata"]["name"]
    fingerprint = fingerprint_of(definition)
    stored = api.store.latest(resource.storage, "", name)
    if stored is not None and has_fingerprint(stored, fingerprint):
        return
    marked = {**definition, "metadata": {"name": name, "annotations": {FINGERPRINT: fingerprint}}}
    api.writes.apply_object(Target(resource, None, name), marked, WriteOptions(MANAGER, force=True), INTERNAL)


def fingerprint_of(definition: Json) -> str:
    return hashlib.sha256(encode(definition)).hexdigest()


def has_fingerprint(stored: Record, fingerprint: str) -> bool:
    """Return whether a stored definition is current.

    Merging a definition of a megabyte to find that nothing has changed would be most of a start.
    """
    return fingerprint.encode() in stored.value


# Roles.

CLUSTER_BINDINGS = {
    "cluster-admin": auth.MASTERS,
    "system:basic-user": auth.AUTHENTICATED,
    "system:discovery": auth.AUTHENTICATED,
    "system:public-info-viewer": "system:unauthenticated",
}


def cluster_roles() -> dict[str, list[Json]]:
    """Return the roles: ``batch-user`` submits, ``batch-admin`` manages queues, ``admin`` manages a namespace."""
    everything = [_rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    return {
        "cluster-admin": everything,
        "admin": [*_user_rules(WRITE), _rule([""], ["secrets", "serviceaccounts", "pods"], READ + WRITE),
                  _rule([""], ["serviceaccounts/token"], ["create"]),
                  _rule([GROUP], ["roles", "rolebindings"], READ + WRITE),
                  _rule([KUEUE], ["localqueues"], READ + WRITE)],
        "batch-admin": _batch_admin_rules(_queue_rules()),
        "batch-user": _user_rules(WRITE),
        "view": _user_rules([]),
        "system:basic-user": [
            _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
            _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
        ],
        # For servers that ask about their callers. No user has it.
        "system:auth-delegator": [
            _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
            _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        ],
        "system:discovery": [_paths("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version")],
        "system:public-info-viewer": [_paths("/healthz", "/livez", "/readyz", "/version")],
    }  # fmt: skip


def former_roles() -> dict[str, list[Json]]:
    """Return the rules of roles that earlier versions created and that gave too much."""
    return {"batch-admin": _batch_admin_rules([_rule([KUEUE], ["*"], READ + WRITE)])}


def _batch_admin_rules(queue_rules: list[Json]) -> list[Json]:
    return [
        *_user_rules(WRITE),
        *queue_rules,
        _rule([""], ["namespaces", "nodes"], READ),
        _rule(["scheduling.k8s.io"], ["priorityclasses"], READ + WRITE),
    ]


def _queue_rules() -> list[Json]:
    """Read and write queues and Workloads. Controllers alone write their status, which gives quota."""
    plurals = [type_.KIND.plural for type_ in kueue.KINDS]
    return [
        _rule([KUEUE], plurals, READ + WRITE),
        _rule([KUEUE], [f"{plural}/status" for plural in plurals], ["get"]),
    ]


def _user_rules(verbs: list[str]) -> list[Json]:
    """Read what concerns one's jobs; with verbs, also submit them. Never Secrets, never the status of a Workload."""
    queues = ["localqueues", "workloads", "workloadpriorityclasses", "clusterqueues", "resourceflavors"]
    rules = [
        _rule([""], ["pods", "pods/log", "events", "configmaps", "limitranges", "resourcequotas"], READ),
        _rule([KUEUE], queues, READ),
        _rule(["visibility.kueue.x-k8s.io"], ["localqueues/pendingworkloads"], READ),
        _rule([ATTEMPT.group], [ATTEMPT.plural], ["list"]),
        _rule([workflows.GROUP], [workflows.Workflow.KIND.plural], READ + verbs),
        *(_rule([group], resources, READ) for group, resources in job_resources().items()),
    ]
    if verbs:
        rules += [
            _rule([""], ["pods", "configmaps"], verbs),
            # A user who may run pods may also enter them.
            _rule([""], ["pods/exec", "pods/attach", "pods/portforward"], ["create", "get"]),
            *(_rule([group], resources, verbs) for group, resources in job_resources().items()),
        ]
    return rules


def job_resources() -> dict[str, list[str]]:
    """Return the kinds of jobs by group, for users who submit them. Pods have rules of their own."""
    found: dict[str, list[str]] = {}
    for kind in (job_kind.kind for job_kind in table.KINDS if job_kind.kind.group):
        found.setdefault(kind.group, []).append(kind.plural)
    return found


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _paths(*paths: str) -> Json:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


def _binding(role: str, group: str) -> Json:
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
    }
