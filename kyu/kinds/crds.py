"""
CustomResourceDefinitions of the job kinds and of what they need, so that a server without operators can hold them.

Compact and permissive: the fields that Kyu reads are typed, all others are kept as they come. Names, versions, columns
and subresources are those of the operators' own definitions, which take their place when a user applies them.

Kubernetes: apiextensions/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kyu.api.meta import Json, Kind
from kyu.kinds import fields, table
from kyu.kinds.training.runtime import CLUSTER_RUNTIME, RUNTIME

Type: TypeAlias = Literal["string", "integer", "boolean"]

AGE = ("Age", "date", ".metadata.creationTimestamp")
STATE = ("State", "string", ".status.conditions[-1:].type")
# Requests to a cluster autoscaler; in embedded mode Kyu answers them.
PROVISIONING_REQUEST = Kind("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests")
# Kinds that are no jobs themselves.
OTHER_KINDS = (RUNTIME, CLUSTER_RUNTIME, PROVISIONING_REQUEST)


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """The content of a definition besides its names. A typed path may pass through lists ([]) and mappings (*)."""

    typed: Mapping[str, Type] = field(default_factory=dict)
    columns: tuple[tuple[str, str, str], ...] = ()
    wide_columns: tuple[tuple[str, str, str], ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    # Groups under k8s.io are protected: their definitions must say where Kubernetes' reviewers were asked.
    approval: str = ""
    # The number of pods, where it may be changed through /scale, its count in the status, and the selector.
    scale: tuple[str, str, str] | None = None
    has_status: bool = True


def pod_template(path: str) -> dict[str, Type]:
    """Return the schema of a pod template as far as the kinds rely on it: its mappings and lists."""
    maps = ("metadata.labels.*", "metadata.annotations.*", "spec.nodeSelector.*")
    lists = ("containers[].name", "initContainers[].name", "tolerations[].key", "schedulingGates[].name")
    return {f"{path}.{part}": "string" for part in (*maps, *(f"spec.{part}" for part in lists))}


def integers(path: str, *names: str) -> dict[str, Type]:
    return {f"{path}.{name}": "integer" for name in names}


def training(replicas: str, *, scalable: bool = False) -> JobDefinition:
    worker = f".spec.{replicas}.Worker.replicas"
    status = ".status.replicaStatuses.Worker"
    return JobDefinition(
        typed={
            f"spec.{replicas}.*.replicas": "integer",
            **integers("spec.runPolicy", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
            **pod_template(f"spec.{replicas}.*.template"),
        },
        columns=(STATE, AGE),
        scale=(worker, f"{status}.active", f"{status}.selector") if scalable else None,
    )


def condition(name: str, type_: str) -> tuple[str, str, str]:
    return name, "string", f'.status.conditions[?(@.type=="{type_}")].status'


def ray(cluster: str, *columns: tuple[str, str, str], wide: tuple[tuple[str, str, str], ...] = ()) -> JobDefinition:
    typed: dict[str, Type] = {
        f"{cluster}.enableInTreeAutoscaling": "boolean",
        f"{cluster}.workerGroupSpecs[].groupName": "string",
        **integers("spec", "backoffLimit", "activeDeadlineSeconds"),
        **integers(f"{cluster}.workerGroupSpecs[]", "replicas", "minReplicas", "maxReplicas", "numOfHosts"),
        **pod_template(f"{cluster}.headGroupSpec.template"),
        **pod_template(f"{cluster}.workerGroupSpecs[].template"),
    }
    return JobDefinition(typed=typed, columns=columns, wide_columns=wide, categories=("all",))


RUNTIME_RESOURCE = JobDefinition(
    typed=pod_template("spec.template.spec.replicatedJobs[].template.spec.template"), has_status=False
)

RESOURCES: dict[str, JobDefinition] = {
    "JobSet": JobDefinition(
        typed={
            "spec.replicatedJobs[].name": "string",
            "spec.replicatedJobs[].replicas": "integer",
            "spec.ttlSecondsAfterFinished": "integer",
            "spec.failurePolicy.maxRestarts": "integer",
            "spec.failurePolicy.restartStrategy": "string",
            "spec.failurePolicy.rules[].action": "string",
            "spec.failurePolicy.rules[].onJobFailureReasons[]": "string",
            "spec.failurePolicy.rules[].targetReplicatedJobs[]": "string",
            **pod_template("spec.replicatedJobs[].template.spec.template"),
        },
        columns=(
            ("TerminalState", "string", ".status.terminalState"),
            ("Restarts", "string", ".status.restarts"),
            condition("Completed", "Completed"),
            ("Suspended", "string", ".spec.suspend"),
            AGE,
        ),
    ),
    "MPIJob": training("mpiReplicaSpecs"),
    "PyTorchJob": training("pytorchReplicaSpecs", scalable=True),
    "TFJob": training("tfReplicaSpecs"),
    "XGBoostJob": training("xgbReplicaSpecs"),
    "PaddleJob": training("paddleReplicaSpecs", scalable=True),
    "JAXJob": training("jaxReplicaSpecs", scalable=True),
    "TrainJob": JobDefinition(typed={"spec.runtimeRef.name": "string"}, columns=(STATE, AGE)),
    "TrainingRuntime": RUNTIME_RESOURCE,
    "ClusterTrainingRuntime": RUNTIME_RESOURCE,
    "RayCluster": ray(
        "spec",
        ("desired workers", "integer", ".status.desiredWorkerReplicas"),
        ("available workers", "integer", ".status.availableWorkerReplicas"),
        ("cpus", "string", ".status.desiredCPU"),
        ("memory", "string", ".status.desiredMemory"),
        ("gpus", "string", ".status.desiredGPU"),
        ("status", "string", ".status.state"),
        ("age", "date", ".metadata.creationTimestamp"),
        wide=(("head pod IP", "string", ".status.head.podIP"),),
    ),
    "RayJob": ray(
        "spec.rayClusterSpec",
        ("job status", "string", ".status.jobStatus"),
        ("deployment status", "string", ".status.jobDeploymentStatus"),
        ("ray cluster name", "string", ".status.rayClusterName"),
        ("start time", "string", ".status.startTime"),
        ("end time", "string", ".status.endTime"),
        ("age", "date", ".metadata.creationTimestamp"),
    ),
    "RayService": ray(
        "spec.rayClusterConfig",
        ("service status", "string", ".status.serviceStatus"),
        ("num serve endpoints", "string", ".status.numServeEndpoints"),
    ),
    "SparkApplication": JobDefinition(
        typed={
            "spec.mode": "string",
            "spec.executor.instances": "integer",
            "spec.timeToLiveSeconds": "integer",
            "spec.restartPolicy.type": "string",
            **integers("spec.restartPolicy", "onFailureRetries", "onFailureRetryInterval"),
            **{f"spec.{r}.{k}.*": "string" for r in ("driver", "executor") for k in ("labels", "annotations")},
            **pod_template("spec.driver.template"),
            **pod_template("spec.executor.template"),
        },
        columns=(
            ("Suspend", "boolean", ".spec.suspend"),
            ("Status", "string", ".status.applicationState.state"),
            ("Attempts", "string", ".status.executionAttempts"),
            ("Start", "string", ".status.lastSubmissionAttemptTime"),
            ("Finish", "string", ".status.terminationTime"),
            AGE,
        ),
        short_names=("sparkapp",),
        approval="https://github.com/kubeflow/spark-operator/pull/1298",
    ),
    "AppWrapper": JobDefinition(
        typed={"spec.components[].podSets[].replicas": "integer", "spec.components[].podSets[].path": "string"},
        columns=(
            ("Status", "string", ".status.phase"),
            condition("Quota Reserved", "QuotaReserved"),
            condition("Resources Deployed", "ResourcesDeployed"),
            condition("Unhealthy", "Unhealthy"),
            AGE,
        ),
        short_names=("aw",),
    ),
    "LeaderWorkerSet": JobDefinition(
        typed={
            "spec.replicas": "integer",
            "spec.leaderWorkerTemplate.size": "integer",
            **pod_template("spec.leaderWorkerTemplate.leaderTemplate"),
            **pod_template("spec.leaderWorkerTemplate.workerTemplate"),
        },
        columns=(
            ("Ready", "integer", ".status.readyReplicas"),
            ("Desired", "integer", ".spec.replicas"),
            ("Up-to-date", "integer", ".status.updatedReplicas"),
            AGE,
        ),
        short_names=("lws",),
        scale=(".spec.replicas", ".status.replicas", ".status.hpaPodSelector"),
    ),
    "MiniCluster": JobDefinition(
        typed={
            **integers("spec", "size", "minSize", "maxSize", "backoffLimit", "deadlineSeconds"),
            "spec.jobLabels.*": "string",
            "spec.containers[].command": "string",
            "spec.containers[].runFlux": "boolean",
        },
        scale=(".spec.size", ".status.size", ".status.selector"),
    ),
    "ProvisioningRequest": JobDefinition(
        typed={
            "spec.provisioningClassName": "string",
            "spec.parameters.*": "string",
            "spec.podSets[].count": "integer",
            "spec.podSets[].podTemplateRef.name": "string",
        },
        short_names=("provreq", "provreqs"),
    ),
}


def definitions() -> list[Json]:
    """Return all definitions. Kinds of Kubernetes itself (Job, Pod, Deployment, …) need none."""
    found = [kinds for job_kind in table.KINDS if (kinds := job_kind.kinds)[0].kind in RESOURCES]
    return [definition(kinds, suspend_paths(kinds[0])) for kinds in (*found, *((kind,) for kind in OTHER_KINDS))]


def suspend_paths(kind: Kind) -> dict[str, Type]:
    """Return the paths of suspend and managedBy of a kind."""
    job_kind = table.find_kind(kind)
    if job_kind is None or job_kind.queued_as != "itself":
        return {}
    paths: dict[str, Type] = {fields.show(job_kind.suspend_path): "boolean"}
    if job_kind.managed_by_path:
        paths[fields.show(job_kind.managed_by_path)] = "string"
    return paths


def definition(kinds: tuple[Kind, ...], own_fields: Mapping[str, Type]) -> Json:
    """Return a definition. The first of the kinds is the stored version; the others have the same schema."""
    kind, resource = kinds[0], RESOURCES[kinds[0].kind]
    names: Json = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    metadata: Json = {"name": f"{kind.plural}.{kind.group}"}
    if resource.approval:
        metadata["annotations"] = {"api-approved.kubernetes.io": resource.approval}
    schema = schema_of({**own_fields, **resource.typed}, has_status=resource.has_status)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [version(k, resource, schema, stored=k is kind) for k in kinds],
        },
    }


def version(kind: Kind, resource: JobDefinition, schema: Json, *, stored: bool) -> Json:
    body: Json = {"name": kind.version, "served": True, "storage": stored, "schema": {"openAPIV3Schema": schema}}
    columns: list[Json] = [{"name": n, "type": t, "jsonPath": p} for n, t, p in resource.columns]
    columns += [{"name": n, "type": t, "jsonPath": p, "priority": 1} for n, t, p in resource.wide_columns]
    if columns:
        body["additionalPrinterColumns"] = columns
    if resource.has_status:
        body["subresources"] = {"status": {}}
    if resource.scale:
        keys = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        body["subresources"]["scale"] = dict(zip(keys, resource.scale, strict=True))
    return body


def schema_of(typed: Mapping[str, Type], *, has_status: bool) -> Json:
    root: Json = {
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}},
    }
    root["properties"]["spec"] = anything()
    if has_status:
        root["properties"]["status"] = anything()
    for path, type_ in typed.items():
        put_type(root, path.replace("[]", ".[]").split("."), type_)
    return root


def put_type(schema: Json, steps: list[str], type_: Type) -> None:
    """Type the field at the path, and open what lies on the way to it."""
    if not steps:
        schema.clear()
        schema["type"] = type_
        if type_ == "integer":
            schema["format"] = "int32"
        return
    step, rest = steps[0], steps[1:]
    if step == "[]":
        items = schema.get("items") or anything()
        schema.clear()
        schema.update({"type": "array", "items": items})
        put_type(items, rest, type_)
    elif step == "*":
        schema.pop("x-kubernetes-preserve-unknown-fields", None)
        put_type(schema.setdefault("additionalProperties", anything()), rest, type_)
    else:
        put_type(schema.setdefault("properties", {}).setdefault(step, anything()), rest, type_)


def anything() -> Json:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
