"""
The table of built-in kinds: one row for each kind that is served.

START HERE to see what is served; kind.py describes a row. server/unserved.py lists what is left out on purpose.

Kubernetes: pkg/registry/*/strategy.go
"""

from __future__ import annotations

from typing import Final

from kyu.api.meta import Json, Kind
from kyu.server.builtin import (
    apps,
    core,
    cron_jobs,
    events,
    job_status,
    jobs,
    limits,
    network,
    nodes,
    rbac,
    reviews,
    services,
)
from kyu.server.builtin.kind import COUNTED, BuiltinKind, Change, Check, CheckUpdate, nothing
from kyu.server.builtin.pods import pods, rules, volumes, warnings
from kyu.server.crd import crd
from kyu.server.crd import rules as crd_rules
from kyu.server.registry import READ_WRITE, SCALE, Resource, Subresource
from kyu.server.selectors import PLAIN_REFUSAL, FieldLabels, Getter, at
from kyu.server.validation.metadata import ANY_FINALIZER, BRIEF, USUAL, RepeatedChecks
from kyu.server.validation.object_names import name_is_label, name_is_path_segment

JOB_REFUSAL: Final = 'field label "{name}" not supported for Job'
HOOKS_WARNING: Final = "this server stores admission webhooks and policies, but does not call them"
STATUS: Final = Subresource("status", READ_WRITE)
POD_SUBRESOURCES: Final = (
    Subresource("attach", ("create", "get"), Kind("", "v1", "PodAttachOptions", "")),
    Subresource("binding", ("create",), Kind("", "v1", "Binding", "")),
    Subresource("ephemeralcontainers", READ_WRITE),
    Subresource("eviction", ("create",), Kind("policy", "v1", "Eviction", "")),
    Subresource("exec", ("create", "get"), Kind("", "v1", "PodExecOptions", "")),
    Subresource("log", ("get",)),
    Subresource("portforward", ("create", "get"), Kind("", "v1", "PodPortForwardOptions", "")),
    Subresource("resize", READ_WRITE),
    STATUS,
)
TOKEN_SUBRESOURCE: Final = Subresource("token", ("create",), Kind("authentication.k8s.io", "v1", "TokenRequest", ""))


def resources() -> list[Resource]:
    """Return the Resources of all built-in kinds, and of the reviews."""
    rows = [*KINDS, *(BuiltinKind(kind, verbs=("create",)) for kind in reviews.KINDS)]
    return [row.resource() for row in rows]


def _core(kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    return Kind("", "v1", kind, plural, namespaced)


def _labels(*paths: str, **getters: Getter) -> FieldLabels:
    return FieldLabels({**{path: at(path) for path in paths}, **getters}, PLAIN_REFUSAL)


def _event_source(event: Json) -> str:
    source: str = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    return source


POD_LABELS: Final = FieldLabels(
    {
        **{path: at(path) for path in (
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
            "status.podIP", "status.nominatedNodeName",
        )},
        "spec.hostNetwork": at("spec.hostNetwork", "false"),
    },
    PLAIN_REFUSAL,
)  # fmt: skip
EVENT_LABELS: Final = FieldLabels(
    {
        **{path: at(path) for path in (
            "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
            "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
            "reportingComponent", "type",
        )},
        "source": _event_source,
    },
    PLAIN_REFUSAL,
)  # fmt: skip
JOB_LABELS: Final = FieldLabels({"status.successful": at("status.succeeded", "0")}, JOB_REFUSAL)

CORE: Final = (
    BuiltinKind(
        _core("Pod", "pods"), ("po",), ("all",), subresources=POD_SUBRESOURCES, generation=COUNTED,
        field_labels=POD_LABELS, fill=pods.default_pod, on_create=pods.prepare_pod,
        on_update=pods.prepare_pod_update, on_status=pods.prepare_pod_status,
        check=rules.validate_new_pod, check_update=rules.validate_pod_update,
        check_status=rules.validate_pod_status, warn=warnings.pod_warnings,
        grace=pods.grace_seconds, status_keeps=("ownerReferences",), answers_deleted_object=True,
        shows_mark_before_going=True,
    ),
    BuiltinKind(
        _core("Namespace", "namespaces", namespaced=False), ("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(Subresource("finalize", ("update",)), STATUS), name_rule=name_is_label,
        field_labels=FieldLabels({"status.phase": at("status.phase")}, PLAIN_REFUSAL, knows_namespace=False),
        fill=core.default_namespace, on_create=core.prepare_namespace,
        on_update=core.prepare_namespace_update, on_finalize=core.prepare_namespace_finalize,
        on_delete=core.prepare_namespace_deletion,
        check=core.validate_namespace, check_status=core.validate_namespace_status,
    ),
    BuiltinKind(
        _core("Node", "nodes", namespaced=False), ("no",), subresources=(STATUS,),
        field_labels=FieldLabels(
            {"spec.unschedulable": at("spec.unschedulable", "false")}, PLAIN_REFUSAL, knows_namespace=False
        ),
        fill=nodes.default_node, on_create=nodes.prepare_node, keeps_new_status=True,
        check=nodes.validate_node, check_update=nodes.validate_node_update,
    ),
    BuiltinKind(
        _core("ConfigMap", "configmaps"), ("cm",),
        check=core.validate_config_map, check_update=core.validate_config_map_update,
    ),
    BuiltinKind(
        _core("Secret", "secrets"), field_labels=_labels("type"), fill=core.default_secret,
        check=core.validate_secret, check_update=core.validate_secret_update,
    ),
    BuiltinKind(
        _core("Service", "services"), ("svc",), ("all",), subresources=(STATUS,), name_rule=name_is_label,
        field_labels=_labels("spec.clusterIP", "spec.type"), fill=services.default_service,
        on_create=services.prepare_service, on_update=services.prepare_service_update,
        check=services.validate_service, metadata_checks=USUAL, answers_deleted_object=True, creates_on_update=True,
    ),
    BuiltinKind(
        _core("ServiceAccount", "serviceaccounts"), ("sa",), subresources=(TOKEN_SUBRESOURCE,),
        answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("Event", "events"), ("ev",), creates_on_update=True, field_labels=EVENT_LABELS, metadata_checks=BRIEF,
        check=events.validate_event,
    ),
    BuiltinKind(
        _core("LimitRange", "limitranges"), ("limits",), creates_on_update=True,
        fill=limits.default_limit_range, check=limits.validate_limit_range,
        metadata_checks=RepeatedChecks(immutable=1, whole=2, finalizers=1),
    ),
    BuiltinKind(
        _core("ResourceQuota", "resourcequotas"), ("quota",), subresources=(STATUS,), answers_deleted_object=True,
        check=limits.validate_quota, metadata_checks=USUAL,
    ),
    BuiltinKind(
        _core("PodTemplate", "podtemplates"), generation=COUNTED, fill=pods.default_pod_template,
        warn=warnings.template_warnings("template"), answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("PersistentVolumeClaim", "persistentvolumeclaims"), ("pvc",), subresources=(STATUS,),
        fill=core.default_volume_claim, on_create=core.prepare_volume_claim,
        check=volumes.validate_claim, answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("Endpoints", "endpoints"), ("ep",), creates_on_update=True, fill=network.default_endpoints,
        check=network.validate_endpoints,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
)  # fmt: skip

JOBS: Final = (
    BuiltinKind(
        Kind("batch", "v1", "Job", "jobs"), categories=("all",), subresources=(STATUS,), generation=COUNTED,
        default_propagation="Orphan", field_labels=JOB_LABELS, fill=jobs.default_job,
        on_create=jobs.prepare_job, check=jobs.validate_job,
        check_update=jobs.validate_job_update, check_status=job_status.validate_job_status,
        warn=warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("batch", "v1", "CronJob", "cronjobs"), ("cj",), ("all",), subresources=(STATUS,), generation=COUNTED,
        fill=jobs.default_cron_job, check=cron_jobs.validate_cron_job,
        check_update=cron_jobs.validate_cron_job_update, metadata_checks=USUAL, status_metadata_checks=BRIEF,
        warn=warnings.template_warnings("spec.jobTemplate.spec.template", is_named_after=True),
    ),
)  # fmt: skip


APPS: Final = (
    BuiltinKind(
        Kind("apps", "v1", "Deployment", "deployments"), ("deploy",), ("all",), subresources=(SCALE, STATUS),
        generation=(*COUNTED, "annotations"), fill=apps.default_deployment, metadata_checks=USUAL,
        status_keeps=("labels",), check=apps.validate_deployment,
        check_update=apps.validate_deployment_update,
        warn=warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("apps", "v1", "StatefulSet", "statefulsets"), ("sts",), ("all",), subresources=(SCALE, STATUS),
        generation=COUNTED, name_rule=name_is_label, fill=apps.default_stateful_set, metadata_checks=USUAL,
        check=apps.validate_stateful_set, check_update=apps.validate_stateful_set_update,
        warn=apps.stateful_set_warnings,
    ),
    BuiltinKind(
        Kind("apps", "v1", "ReplicaSet", "replicasets"), ("rs",), ("all",), subresources=(SCALE, STATUS),
        generation=COUNTED, fill=apps.default_replica_set, metadata_checks=USUAL,
        check=apps.validate_workload, check_update=apps.validate_workload_update,
        warn=warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("apps", "v1", "DaemonSet", "daemonsets"), ("ds",), ("all",), subresources=(STATUS,),
        generation=COUNTED, fill=apps.default_daemon_set, metadata_checks=USUAL,
        on_update=apps.prepare_daemon_set_update, check=apps.validate_workload,
        check_update=apps.validate_workload_update,
        warn=warnings.template_warnings("spec.template"),
    ),
    BuiltinKind(
        Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
        check=apps.validate_controller_revision,
        check_update=apps.validate_controller_revision_update,
    ),
)  # fmt: skip


def _rbac(
    kind: str, plural: str, check: Check, *, namespaced: bool, fill: Change = nothing,
    check_update: CheckUpdate | None = None,
) -> BuiltinKind:  # fmt: skip
    return BuiltinKind(
        Kind(rbac.GROUP, "v1", kind, plural, namespaced), creates_on_update=True, name_rule=name_is_path_segment,
        fill=fill, check=check, check_update=check_update,
    )  # fmt: skip


RBAC: Final = (
    _rbac("Role", "roles", rbac.validate_role, namespaced=True),
    _rbac("ClusterRole", "clusterroles", rbac.validate_cluster_role, namespaced=False),
    _rbac("RoleBinding", "rolebindings", rbac.validate_binding, namespaced=True,
          fill=rbac.default_binding, check_update=rbac.validate_binding_update),
    _rbac("ClusterRoleBinding", "clusterrolebindings", rbac.validate_cluster_binding, namespaced=False,
          fill=rbac.default_binding, check_update=rbac.validate_binding_update),
)  # fmt: skip


def _hooks(kind: str, plural: str) -> BuiltinKind:
    """Make a row of an admission configuration: it is stored, and every write warns that it has no effect."""
    is_webhook = kind.endswith("WebhookConfiguration")
    return BuiltinKind(
        Kind("admissionregistration.k8s.io", "v1", kind, plural, False), categories=("api-extensions",),
        generation=COUNTED, fill=core.default_webhooks if is_webhook else nothing, warning=HOOKS_WARNING,
    )  # fmt: skip


OTHERS: Final = (
    BuiltinKind(
        Kind("events.k8s.io", "v1", "Event", "events"), ("ev",), creates_on_update=True,
        field_labels=_labels(
            "reason", "type", "reportingController", "regarding.kind", "regarding.namespace", "regarding.name",
            "regarding.uid",
        ),
        check=events.validate_new_event, check_update=events.validate_new_event_update, metadata_checks=BRIEF,
        stored_as="events", stored_version=events.STORED_VERSION, convert=events.convert,
    ),
    BuiltinKind(
        Kind("coordination.k8s.io", "v1", "Lease", "leases"), creates_on_update=True, allows_unconditional_update=False,
        fill=core.default_lease, check=core.validate_lease, metadata_checks=ANY_FINALIZER,
    ),
    BuiltinKind(
        Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False), ("pc",), generation=COUNTED,
        fill=core.default_priority_class, check=core.validate_priority_class,
        check_update=core.validate_priority_class_update, metadata_checks=USUAL,
    ),
    BuiltinKind(
        Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False), creates_on_update=True,
        allows_unconditional_update=False, metadata_checks=RepeatedChecks(immutable=2, whole=2, finalizers=0),
    ),
    BuiltinKind(
        Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"), ("pdb",), subresources=(STATUS,),
        allows_unconditional_update=False, generation=COUNTED, metadata_checks=BRIEF, status_metadata_checks=BRIEF,
        check=limits.validate_disruption_budget,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "Ingress", "ingresses"), ("ing",), subresources=(STATUS,), generation=COUNTED,
        check=network.validate_ingress, check_update=network.validate_ingress_update,
        check_status=network.validate_ingress_status, warn=network.ingress_warnings,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"), ("netpol",), generation=COUNTED,
        fill=network.default_network_policy, check=network.validate_network_policy, metadata_checks=USUAL,
    ),
    BuiltinKind(
        Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False), ("sc",), answers_deleted_object=True,
        fill=core.default_storage_class,
    ),
    _hooks("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    _hooks("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    _hooks("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _hooks("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    BuiltinKind(
        crd.KIND, ("crd", "crds"), ("api-extensions",), subresources=(STATUS,), generation=("spec",),
        allows_unconditional_update=False, fill=crd.default_definition, on_create=crd.prepare_definition,
        on_update=crd.prepare_definition_update, on_delete=crd.prepare_deletion,
        check=crd_rules.validate_definition, check_update=crd_rules.validate_definition_update,
    ),
)  # fmt: skip

KINDS: Final = (*CORE, *APPS, *JOBS, *RBAC, *OTHERS)
