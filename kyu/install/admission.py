"""
The objects that make an API server call the webhooks, and the policies that hold without a server.

Where the cluster has MutatingAdmissionPolicies, they suspend queued jobs and gate queued pods. Then no webhook has to
answer for a job to be created, and all of them fail open. Without policies, the webhooks of labelled jobs fail closed.
Unlabelled objects always pass when Kyu is down.

Called by: install/objects.py, on_cluster.py. Kueue: config/components/webhook
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from kyu.api import kueue
from kyu.api.definitions import crds
from kyu.api.meta import Json, Kind, Object
from kyu.api.workflows import Workflow
from kyu.kinds import metadata
from kyu.kinds.kind import JobKind
from kyu.kinds.pod import POD
from kyu.kinds.table import KINDS
from kyu.visibility import pending as visibility
from kyu.webhooks.certificates import TrustTarget

API = "admissionregistration.k8s.io/v1"
DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
NAME = "kyu-controller"
SERVICE = "kyu-webhook"
SECRET = "kyu-webhook-cert"
PORT = 443
VISIBILITY_PORT = 8082
# Namespaces that must work while Kyu is down.
SPARED_NAMESPACES = ("kube-system", "kube-node-lease")
TIMEOUT_SECONDS = 5
LABELLED: Json = {"matchExpressions": [{"key": metadata.QUEUE_NAME, "operator": "Exists"}]}
UNLABELLED: Json = {"matchExpressions": [{"key": metadata.QUEUE_NAME, "operator": "DoesNotExist"}]}
# An object that is being deleted must be able to lose its finalizers.
NOT_DELETED: Json = {"name": "not-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}
# Pods of a controller get their label from its template, so an unlabelled one is no concern of Kyu's.
NO_CONTROLLER: Json = {
    "name": "no-controller",
    "expression": "!has(object.metadata.ownerReferences)"
    " || !object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)",
}
MUTATED_KUEUE_KINDS: tuple[type[Object], ...] = (kueue.ClusterQueue, kueue.ResourceFlavor, kueue.Workload)
VALIDATED_KUEUE_KINDS: tuple[type[Object], ...] = (kueue.ClusterQueue, kueue.ResourceFlavor, kueue.Cohort)

KINDS_OF_POLICIES = frozenset(
    {
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }
)

Step = Literal["mutate", "validate"]
FailurePolicy = Literal["Fail", "Ignore"]


def objects(namespace: str, *, policies: bool) -> list[Json]:
    """Return the webhook configurations, and the policies where the cluster has them."""
    configurations = [
        _configuration("Mutating", _mutating(namespace, policies=policies)),
        _configuration("Validating", _validating(namespace, policies=policies)),
    ]
    return [*configurations, *policy_objects()] if policies else configurations


def _configuration(step: str, webhooks: Iterable[Json]) -> Json:
    kind = f"{step}WebhookConfiguration"
    return {"apiVersion": API, "kind": kind, "metadata": {"name": NAME}, "webhooks": list(webhooks)}


def _mutating(namespace: str, *, policies: bool) -> Iterator[Json]:
    for type_ in MUTATED_KUEUE_KINDS:
        # The controllers add what is missing, so nothing is lost when the webhook is away.
        yield _webhook(namespace, "mutate", type_.KIND, ["CREATE"], "Ignore")
    for job, kind in job_kinds():
        verbs = ["CREATE", "UPDATE"] if job.queued_as == "its pods" else ["CREATE"]
        labelled = _webhook(namespace, "mutate", kind, verbs, "Ignore" if policies else "Fail")
        yield {**labelled, **_in_job_namespaces(namespace), "objectSelector": LABELLED}
        yield {**_unlabelled(namespace, "mutate", kind), **_in_job_namespaces(namespace), "objectSelector": UNLABELLED}


def _unlabelled(namespace: str, step: Step, kind: Kind) -> Json:
    """Return the webhook for objects that may get the default LocalQueue. The cluster works without it."""
    webhook = _webhook(namespace, step, kind, ["CREATE"], "Ignore", suffix="-unlabelled")
    return {**webhook, "matchConditions": [NO_CONTROLLER]} if kind == POD else webhook


def _validating(namespace: str, *, policies: bool) -> Iterator[Json]:
    for type_ in VALIDATED_KUEUE_KINDS:
        webhook = _webhook(namespace, "validate", type_.KIND, ["CREATE", "UPDATE"], "Fail")
        yield {**webhook, "matchConditions": [NOT_DELETED]}
    # The controllers write Workloads themselves, so they must not depend on their own webhook.
    workload = _webhook(
        namespace, "validate", kueue.Workload.KIND, ["CREATE", "UPDATE"], "Ignore", parts=("", "/status")
    )
    yield {**workload, "matchConditions": [NOT_DELETED]}
    # The controller checks the same rules, and starts no step of an invalid Workflow.
    workflow = _webhook(namespace, "validate", Workflow.KIND, ["CREATE", "UPDATE"], "Ignore")
    yield {**workflow, **_in_job_namespaces(namespace), "matchConditions": [NOT_DELETED]}
    for _, kind in job_kinds():
        webhook = _webhook(namespace, "validate", kind, ["CREATE", "UPDATE"], "Ignore" if policies else "Fail")
        selectors = {**_in_job_namespaces(namespace), "objectSelector": LABELLED}
        yield {**webhook, **selectors, "matchConditions": [NOT_DELETED]}


def job_kinds() -> Iterator[tuple[JobKind, Kind]]:
    """Yield each kind of job that Kueue's settings can name, in each of its versions."""
    for job in KINDS:
        if job.framework:
            for kind in job.kinds:
                yield job, kind


def _in_job_namespaces(namespace: str) -> Json:
    spared = [*SPARED_NAMESPACES, namespace]
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _webhook(
    namespace: str,
    step: Step,
    kind: Kind,
    verbs: list[str],
    failure_policy: FailurePolicy,
    *,
    suffix: str = "",
    parts: tuple[str, ...] = ("",),
) -> Json:
    """Return a webhook with Kueue's name and path for the kind."""
    group = kind.group.replace(".", "-") or ""
    path = f"/{step}-{group}-{kind.version}-{kind.kind.lower()}"
    older = f"-{kind.version}" if _is_older(kind) else ""
    return {
        "name": f"{step[0]}{kind.kind.lower()}{older}{suffix}.kb.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": SERVICE, "namespace": namespace, "path": path, "port": PORT}},
        "failurePolicy": failure_policy,
        "matchPolicy": "Exact" if _is_older(kind) else "Equivalent",
        "rules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": [kind.version],
                "operations": verbs,
                "resources": [f"{kind.plural}{part}" for part in parts],
            }
        ],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }


def _is_older(kind: Kind) -> bool:
    """Return whether Kyu writes a newer version of the kind."""
    return any(kind in job.kinds and kind != job.kind for job in KINDS)


def targets() -> list[TrustTarget]:
    """Return the objects whose client configurations must trust the webhook server."""
    admission = [
        Kind(
            "admissionregistration.k8s.io",
            "v1",
            f"{step}WebhookConfiguration",
            f"{step.lower()}webhookconfigurations",
            namespaced=False,
        )
        for step in ("Mutating", "Validating")
    ]
    definitions = [definition["metadata"]["name"] for definition in crds.definitions() if is_converted(definition)]
    return [
        *(TrustTarget(kind, NAME) for kind in admission),
        *(TrustTarget(DEFINITION, name) for name in definitions),
        *(TrustTarget(API_SERVICE, api_service_name(version)) for version in visibility.VERSIONS),
    ]


def api_services(namespace: str) -> list[Json]:
    """Return the objects that make an API server forward requests of the visibility API."""
    service = {"name": SERVICE, "namespace": namespace, "port": VISIBILITY_PORT}
    return [
        {
            "apiVersion": API_SERVICE.api_version,
            "kind": API_SERVICE.kind,
            "metadata": {"name": api_service_name(version)},
            "spec": {
                "group": visibility.GROUP,
                "version": version,
                # Below custom resources, so that "clusterqueues" means those of kueue.x-k8s.io.
                "groupPriorityMinimum": 100,
                "versionPriority": 100 - number,
                # Said aloud, because that of Kueue may be there with another value.
                "insecureSkipTLSVerify": False,
                "service": service,
            },
        }
        for number, version in enumerate(visibility.VERSIONS)
    ]


def api_service_name(version: str) -> str:
    return f"{version}.{visibility.GROUP}"


def is_converted(definition: Json) -> bool:
    return bool(definition["spec"]["conversion"]["strategy"] == "Webhook")


# Policies.


def policy_objects() -> Iterator[Json]:
    """Yield the policies that suspend queued jobs and gate queued pods, with their bindings."""
    for job, kind in job_kinds():
        if kind == POD:
            yield from _policy("kyu-gate-queued-pods", [kind], gate_pod_expressions())
        elif job.queued_as == "itself" and job.framework and not job.stops_by_deletion:
            name = f"kyu-suspend-queued-{kind.plural}-{kind.version}"
            yield from _policy(name, [kind], [suspend_expression(job)])


def suspend_expression(job: JobKind) -> str:
    """Return the CEL expression that sets the suspend field of a kind."""
    names = [str(part) for part in job.suspend_path]
    value = f"Object.{'.'.join(names[:-1])}{{{names[-1]}: true}}"
    for depth in range(len(names) - 2, -1, -1):
        owner = f"Object.{'.'.join(names[:depth])}" if depth else "Object"
        value = f"{owner}{{{names[depth]}: {value}}}"
    return value


def gate_pod_expressions() -> list[str]:
    """Return the expressions that mark and gate a pod as Kueue's webhook does."""
    gates = f'Object.spec.schedulingGates{{name: "{metadata.ADMISSION_GATE}"}}'
    return [
        f"Object{{spec: Object.spec{{schedulingGates: [{gates}]}}}}",
        f'Object{{metadata: Object.metadata{{labels: {{"{metadata.MANAGED}": "true"}}, '
        f'finalizers: ["{metadata.MANAGED}"]}}}}',
    ]


def _policy(name: str, kinds: list[Kind], expressions: list[str]) -> Iterator[Json]:
    rules = [
        {"apiGroups": [k.group], "apiVersions": [k.version], "operations": ["CREATE"], "resources": [k.plural]}
        for k in kinds
    ]
    yield {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "objectSelector": LABELLED,
                **_in_job_namespaces("kueue-system"),
                "resourceRules": rules,
            },
            "matchConditions": [NO_CONTROLLER],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
                for expression in expressions
            ],
        },
    }
    yield {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
