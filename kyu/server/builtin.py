"""
The built-in kinds that are served: one row for each, with all that is special about it.

START HERE to see what is served and what is not; builtin_kind.py says what the parts of a row mean. What is left out on
purpose is in unserved.py.

Called by: server/api.py. Calls: builtin_*.py, where the functions of a kind are. Kubernetes: pkg/registry/*/strategy.go
"""

from __future__ import annotations

from typing import Final

from kyu.api.meta import Json, Kind
from kyu.server import (
    builtin_apps,
    builtin_core,
    builtin_cron,
    builtin_events,
    builtin_job_status,
    builtin_jobs,
    builtin_limits,
    builtin_network,
    builtin_nodes,
    builtin_pod_rules,
    builtin_pod_volumes,
    builtin_pod_warnings,
    builtin_pods,
    builtin_rbac,
    builtin_services,
    crd,
    crd_rules,
    rbac,
    reviews,
)
from kyu.server.builtin_kind import COUNTED, BuiltinKind, Change, Check, CheckUpdate, nothing
from kyu.server.builtin_metadata import PLAIN, SHORT, USUAL, Looks
from kyu.server.builtin_names import name_is_label, name_is_path_segment
from kyu.server.registry import READ_WRITE, SCALE, Resource, Subresource
from kyu.server.selectors import PLAIN_REFUSAL, FieldLabels, Getter, at

JOB_REFUSAL: Final = 'field label "{name}" not supported for Job'
HOOKS_WARNING: Final = "this server stores admission webhooks and policies, but does not call them"
STATUS: Final = Subresource("status", READ_WRITE)
POD_SUBRESOURCES: Final = (
    Subresource("binding", ("create",), Kind("", "v1", "Binding", "")),
    Subresource("ephemeralcontainers", READ_WRITE),
    Subresource("eviction", ("create",), Kind("policy", "v1", "Eviction", "")),
    Subresource("log", ("get",)),
    Subresource("resize", READ_WRITE),
    STATUS,
)


def resources() -> list[Resource]:
    """All of them, and the reviews, which are kinds without objects."""
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
        field_labels=POD_LABELS, fill=builtin_pods.default_pod, on_create=builtin_pods.prepare_pod,
        on_update=builtin_pods.prepare_pod_update, on_status=builtin_pods.prepare_pod_status,
        check=builtin_pod_rules.validate_new_pod, check_update=builtin_pod_rules.validate_pod_update,
        check_status=builtin_pod_rules.validate_pod_status, warn=builtin_pod_warnings.pod_warnings,
        grace=builtin_pods.grace_seconds, status_keeps=("ownerReferences",), answers_deleted_object=True,
        shows_mark_before_going=True,
    ),
    BuiltinKind(
        _core("Namespace", "namespaces", namespaced=False), ("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(Subresource("finalize", ("update",)), STATUS), name_rule=name_is_label,
        field_labels=FieldLabels({"status.phase": at("status.phase")}, PLAIN_REFUSAL, knows_namespace=False),
        fill=builtin_core.default_namespace, on_create=builtin_core.prepare_namespace,
        on_update=builtin_core.prepare_namespace_update, on_finalize=builtin_core.prepare_namespace_finalize,
        on_delete=builtin_core.prepare_namespace_deletion,
        check=builtin_core.validate_namespace, check_status=builtin_core.validate_namespace_status,
    ),
    BuiltinKind(
        _core("Node", "nodes", namespaced=False), ("no",), subresources=(STATUS,),
        field_labels=FieldLabels(
            {"spec.unschedulable": at("spec.unschedulable", "false")}, PLAIN_REFUSAL, knows_namespace=False
        ),
        fill=builtin_nodes.default_node, on_create=builtin_nodes.prepare_node, brings_status=True,
        check=builtin_nodes.validate_node, check_update=builtin_nodes.validate_node_update,
    ),
    BuiltinKind(
        _core("ConfigMap", "configmaps"), ("cm",),
        check=builtin_core.validate_config_map, check_update=builtin_core.validate_config_map_update,
    ),
    BuiltinKind(
        _core("Secret", "secrets"), field_labels=_labels("type"), fill=builtin_core.default_secret,
        check=builtin_core.validate_secret, check_update=builtin_core.validate_secret_update,
    ),
    BuiltinKind(
        _core("Service", "services"), ("svc",), ("all",), subresources=(STATUS,), name_rule=name_is_label,
        field_labels=_labels("spec.clusterIP", "spec.type"), fill=builtin_services.default_service,
        on_create=builtin_services.prepare_service, on_update=builtin_services.prepare_service_update,
        check=builtin_services.validate_service, looks=USUAL, answers_deleted_object=True, creates_on_update=True,
    ),
    BuiltinKind(_core("ServiceAccount", "serviceaccounts"), ("sa",), answers_deleted_object=True),
    BuiltinKind(
        _core("Event", "events"), ("ev",), creates_on_update=True, field_labels=EVENT_LABELS, looks=SHORT,
        check=builtin_events.validate_event,
    ),
    BuiltinKind(
        _core("LimitRange", "limitranges"), ("limits",), creates_on_update=True,
        fill=builtin_limits.default_limit_range, check=builtin_limits.validate_limit_range, looks=Looks(1, 2, 1),
    ),
    BuiltinKind(
        _core("ResourceQuota", "resourcequotas"), ("quota",), subresources=(STATUS,), answers_deleted_object=True,
        check=builtin_limits.validate_quota, looks=USUAL,
    ),
    BuiltinKind(
        _core("PodTemplate", "podtemplates"), generation=COUNTED, fill=builtin_pods.default_pod_template,
        warn=builtin_pod_warnings.template_warnings("template"), answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("PersistentVolumeClaim", "persistentvolumeclaims"), ("pvc",), subresources=(STATUS,),
        fill=builtin_core.default_volume_claim, on_create=builtin_core.prepare_volume_claim,
        check=builtin_pod_volumes.validate_claim, answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("Endpoints", "endpoints"), ("ep",), creates_on_update=True, fill=builtin_network.default_endpoints,
        check=builtin_network.validate_endpoints,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
)  # fmt: skip

JOBS: Final = (
    BuiltinKind(
        Kind("batch", "v1", "Job", "jobs"), categories=("all",), subresources=(STATUS,), generation=COUNTED,
        default_propagation="Orphan", field_labels=JOB_LABELS, fill=builtin_jobs.default_job,
        on_create=builtin_jobs.prepare_job, check=builtin_jobs.validate_job,
        check_update=builtin_jobs.validate_job_update, check_status=builtin_job_status.validate_job_status,
        warn=builtin_pod_warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("batch", "v1", "CronJob", "cronjobs"), ("cj",), ("all",), subresources=(STATUS,), generation=COUNTED,
        fill=builtin_jobs.default_cron_job, check=builtin_cron.validate_cron_job,
        check_update=builtin_cron.validate_cron_job_update, looks=USUAL, status_looks=SHORT,
        warn=builtin_pod_warnings.template_warnings("spec.jobTemplate.spec.template", is_named_after=True),
    ),
)  # fmt: skip


APPS: Final = (
    BuiltinKind(
        Kind("apps", "v1", "Deployment", "deployments"), ("deploy",), ("all",), subresources=(SCALE, STATUS),
        generation=(*COUNTED, "annotations"), fill=builtin_apps.default_deployment, looks=USUAL,
        status_keeps=("labels",), check=builtin_apps.validate_deployment,
        check_update=builtin_apps.validate_deployment_update,
        warn=builtin_pod_warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("apps", "v1", "StatefulSet", "statefulsets"), ("sts",), ("all",), subresources=(SCALE, STATUS),
        generation=COUNTED, name_rule=name_is_label, fill=builtin_apps.default_stateful_set, looks=USUAL,
        check=builtin_apps.validate_stateful_set, check_update=builtin_apps.validate_stateful_set_update,
        warn=builtin_apps.stateful_set_warnings,
    ),
    BuiltinKind(
        Kind("apps", "v1", "ReplicaSet", "replicasets"), ("rs",), ("all",), subresources=(SCALE, STATUS),
        generation=COUNTED, fill=builtin_apps.default_replica_set, looks=USUAL,
        check=builtin_apps.validate_workload, check_update=builtin_apps.validate_workload_update,
        warn=builtin_pod_warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("apps", "v1", "DaemonSet", "daemonsets"), ("ds",), ("all",), subresources=(STATUS,),
        generation=COUNTED, fill=builtin_apps.default_daemon_set, looks=USUAL,
        on_update=builtin_apps.prepare_daemon_set_update, check=builtin_apps.validate_workload,
        check_update=builtin_apps.validate_workload_update,
        warn=builtin_pod_warnings.template_warnings("spec.template"),
    ),
    BuiltinKind(
        Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
        check=builtin_apps.validate_controller_revision,
        check_update=builtin_apps.validate_controller_revision_update,
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
    _rbac("Role", "roles", builtin_rbac.validate_role, namespaced=True),
    _rbac("ClusterRole", "clusterroles", builtin_rbac.validate_cluster_role, namespaced=False),
    _rbac("RoleBinding", "rolebindings", builtin_rbac.validate_binding, namespaced=True,
          fill=builtin_rbac.default_binding, check_update=builtin_rbac.validate_binding_update),
    _rbac("ClusterRoleBinding", "clusterrolebindings", builtin_rbac.validate_cluster_binding, namespaced=False,
          fill=builtin_rbac.default_binding, check_update=builtin_rbac.validate_binding_update),
)  # fmt: skip


def _hooks(kind: str, plural: str) -> BuiltinKind:
    """Stored so that manifests that have one can be applied; every write says that nothing will come of it."""
    is_webhook = kind.endswith("WebhookConfiguration")
    return BuiltinKind(
        Kind("admissionregistration.k8s.io", "v1", kind, plural, False), categories=("api-extensions",),
        generation=COUNTED, fill=builtin_core.default_webhooks if is_webhook else nothing, warning=HOOKS_WARNING,
    )  # fmt: skip


OTHERS: Final = (
    BuiltinKind(
        Kind("events.k8s.io", "v1", "Event", "events"), ("ev",), creates_on_update=True,
        field_labels=_labels(
            "reason", "type", "reportingController", "regarding.kind", "regarding.namespace", "regarding.name",
            "regarding.uid",
        ),
        check=builtin_events.validate_new_event, check_update=builtin_events.validate_new_event_update, looks=SHORT,
        stored_as="events", stored_version=builtin_events.STORED_VERSION, convert=builtin_events.convert,
    ),
    BuiltinKind(
        Kind("coordination.k8s.io", "v1", "Lease", "leases"), creates_on_update=True, allows_unconditional_update=False,
        fill=builtin_core.default_lease, check=builtin_core.validate_lease, looks=PLAIN,
    ),
    BuiltinKind(
        Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False), ("pc",), generation=COUNTED,
        fill=builtin_core.default_priority_class, check=builtin_core.validate_priority_class,
        check_update=builtin_core.validate_priority_class_update, looks=USUAL,
    ),
    BuiltinKind(
        Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False), creates_on_update=True,
        allows_unconditional_update=False, looks=Looks(2, 2, 0),
    ),
    BuiltinKind(
        Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"), ("pdb",), subresources=(STATUS,),
        allows_unconditional_update=False, generation=COUNTED, looks=SHORT, status_looks=SHORT,
        check=builtin_limits.validate_disruption_budget,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "Ingress", "ingresses"), ("ing",), subresources=(STATUS,), generation=COUNTED,
        check=builtin_network.validate_ingress, check_update=builtin_network.validate_ingress_update,
        check_status=builtin_network.validate_ingress_status, warn=builtin_network.ingress_warnings,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"), ("netpol",), generation=COUNTED,
        fill=builtin_network.default_network_policy, check=builtin_network.validate_network_policy, looks=USUAL,
    ),
    BuiltinKind(
        Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False), ("sc",), answers_deleted_object=True,
        fill=builtin_core.default_storage_class,
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
