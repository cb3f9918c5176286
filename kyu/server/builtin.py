"""
The built-in kinds that are served: one row for each, with all that is special about it.

A row names what discovery shows and which functions fill in, prepare and check an object of the kind. A kind
without a function for a step needs none. START HERE to see what is served and what is not.

Called by: server/catalog.py, which makes Resources of the rows. Calls builtin_{pods,pod_rules,jobs,core,apps}.py.
Kubernetes: pkg/registry/*/strategy.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

from kyu.api.errors import FieldError
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
    builtin_services,
    crd,
    crd_rules,
    managed,
)
from kyu.server.builtin_data import load
from kyu.server.builtin_metadata import PLAIN, SHORT, THOROUGH, USUAL, Looks, validate_plain_finalizers
from kyu.server.builtin_names import (
    NameRule,
    name_is_label,
    name_is_path_segment,
    name_is_subdomain,
)
from kyu.server.patch import clone
from kyu.server.schema_node import Schema
from kyu.server.selectors import PLAIN_REFUSAL, FieldLabels, Getter, at

Change: TypeAlias = Callable[[Json], None]
ChangeFromOld: TypeAlias = Callable[[Json, Json], None]
Check: TypeAlias = Callable[[Json], list[FieldError]]
# (object, from version, to version) -> object
Convert: TypeAlias = Callable[[Json, str, str], Json]
CheckUpdate: TypeAlias = Callable[[Json, Json], list[FieldError]]

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_WRITE: Final = ("get", "patch", "update")
JOB_REFUSAL: Final = 'field label "{name}" not supported for Job'
METADATA_ONLY: Final = FieldLabels()
HOOKS_WARNING: Final = "this server stores admission webhooks and policies, but does not call them"


def nothing(obj: Json) -> None:
    """For steps in which a kind does nothing."""


def no_warnings(obj: Json, old: Json | None) -> tuple[()]:
    return ()


def accept(obj: Json) -> list[FieldError]:
    return []


@dataclass(frozen=True)
class BuiltinKind:
    """One row. ``update`` defaults to the checks of creation."""

    kind: Kind
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    # Subresources by name, with their verbs and the kind they speak if it is another.
    subresources: tuple[Subresource, ...] = ()
    # metadata.generation: 1 on creation, one more when the spec changes.
    has_generation: bool = False
    # A change of the annotations counts in the generation, too.
    counts_annotations: bool = False
    # A PUT to a name that is not there creates the object.
    creates_on_update: bool = False
    # A PUT without a resourceVersion replaces whatever is there.
    allows_unconditional_update: bool = True
    default_propagation: Literal["Background", "Orphan"] = "Background"
    name_rule: NameRule = name_is_subdomain
    field_labels: FieldLabels = METADATA_ONLY
    default: Change = nothing
    create: Change = nothing
    prepare_update_from: ChangeFromOld | None = None
    prepare_status_from: ChangeFromOld | None = None
    check: Check = accept
    check_update: CheckUpdate | None = None
    check_status: CheckUpdate | None = None
    warn: builtin_pod_warnings.Warn = no_warnings
    # Sent with every write, and with every answer.
    warning: str = ""
    deprecation: str = ""
    # DELETE answers the object even if it is gone.
    answers_deleted_object: bool = False
    # Another kind under whose name the objects are stored, the version that stands for it, and the way there and back.
    stored_as: str = ""
    stored_version: str = ""
    convert: Convert | None = None

    @cached_property
    def schema(self) -> Schema:
        return load(self.kind.group, self.kind.version).schema(self.kind.group, self.kind.version, self.kind.kind)

    @property
    def singular(self) -> str:
        return self.kind.kind.lower()

    @property
    def list_kind(self) -> str:
        return f"{self.kind.kind}List"

    @property
    def has_status(self) -> bool:
        return any(each.name == "status" for each in self.subresources)


@dataclass(frozen=True, slots=True)
class Subresource:
    name: str
    verbs: tuple[str, ...]
    # The kind of its body, where that is not the kind of the object: group, version, kind.
    body: tuple[str, str, str] | None = None


STATUS: Final = Subresource("status", READ_WRITE)
SCALE: Final = Subresource("scale", READ_WRITE, ("autoscaling", "v1", "Scale"))
# Parts of the metadata that are not written by way of the status.
STATUS_KEEPS: Final = {"Pod": ("ownerReferences",), "Deployment": ("labels",)}
# Where Kubernetes looks less often at the metadata of an update than at those of other kinds.
LOOKS: Final = {
    **dict.fromkeys(
        ("CronJob", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Service", "PriorityClass",
         "ResourceQuota", "NetworkPolicy"), USUAL,
    ),
    "Lease": PLAIN,
    "Event": SHORT,
    "PodDisruptionBudget": SHORT,
    "LimitRange": Looks(1, 2, 1),
    "RuntimeClass": Looks(2, 2, 0),
}  # fmt: skip
STATUS_LOOKS: Final = {"CronJob": SHORT, "PodDisruptionBudget": SHORT}
POD_SUBRESOURCES: Final = (
    Subresource("binding", ("create",), ("", "v1", "Binding")),
    Subresource("ephemeralcontainers", READ_WRITE),
    Subresource("eviction", ("create",), ("policy", "v1", "Eviction")),
    Subresource("log", ("get",)),
    Subresource("resize", READ_WRITE),
    STATUS,
)


def default(row: BuiltinKind, obj: Json) -> None:
    """Fill in what is absent, in place."""
    row.default(obj)


def prepare_create(row: BuiltinKind, obj: Json) -> None:
    """Set what only the server sets on a new object, in place. Name and uid are there already."""
    if row.has_status and row.kind.kind != "Node":
        _reset_status(row, obj)
    if row.has_generation:
        obj["metadata"]["generation"] = 1
    row.create(obj)


def _reset_status(row: BuiltinKind, obj: Json) -> None:
    """The status of an object to which nothing has happened: what cannot be left out of it, and that empty."""
    nothing_yet = clone(managed.unborn(row.schema).get("status"))
    if nothing_yet is None:
        obj.pop("status", None)
    else:
        obj["status"] = nothing_yet


def prepare_update(row: BuiltinKind, new: Json, old: Json) -> None:
    """On the main path the status stays; a change of the spec counts in the generation."""
    if row.has_status:
        _keep("status", new, old)
    if row.prepare_update_from is not None:
        row.prepare_update_from(new, old)
    if row.has_generation:
        generation = old["metadata"].get("generation", 0)
        has_changed = new.get("spec") != old.get("spec") or (
            row.counts_annotations and _annotations(new) != _annotations(old)
        )
        new["metadata"]["generation"] = generation + 1 if has_changed else generation


def _annotations(obj: Json) -> Json:
    return obj["metadata"].get("annotations") or {}


def prepare_status(row: BuiltinKind, new: Json, old: Json) -> None:
    """On the path of the status everything but the status and the metadata stays."""
    for name in {*new, *old} - {"status", "metadata", "kind", "apiVersion"}:
        _keep(name, new, old)
    for name in STATUS_KEEPS.get(row.kind.kind, ()):
        _keep(name, new["metadata"], old["metadata"])
    if row.prepare_status_from is not None:
        row.prepare_status_from(new, old)


def _keep(name: str, new: Json, old: Json) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def validate_create(row: BuiltinKind, obj: Json) -> list[FieldError]:
    """The rules of the kind; those of metadata that hold for all kinds are in builtin_metadata.py."""
    return validate_plain_finalizers(obj) + row.check(obj)


def validate_update(row: BuiltinKind, new: Json, old: Json) -> list[FieldError]:
    return row.check_update(new, old) if row.check_update is not None else row.check(new)


def looks(row: BuiltinKind, subresource: str) -> Looks:
    """At the metadata of an update."""
    kind = row.kind.kind
    if subresource == "status":
        return STATUS_LOOKS.get(kind, USUAL)
    return LOOKS.get(kind, THOROUGH)


def validate_status(row: BuiltinKind, new: Json, old: Json) -> list[FieldError]:
    return row.check_status(new, old) if row.check_status is not None else []


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
        _core("Pod", "pods"), ("po",), ("all",), subresources=POD_SUBRESOURCES, has_generation=True,
        field_labels=POD_LABELS, default=builtin_pods.default_pod, create=builtin_pods.prepare_pod,
        prepare_update_from=builtin_pods.prepare_pod_update, prepare_status_from=builtin_pods.prepare_pod_status,
        check=builtin_pod_rules.validate_new_pod, check_update=builtin_pod_rules.validate_pod_update,
        check_status=builtin_pod_rules.validate_pod_status, warn=builtin_pod_warnings.pod_warnings,
        answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("Namespace", "namespaces", namespaced=False), ("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(Subresource("finalize", ("update",)), STATUS), name_rule=name_is_label,
        field_labels=FieldLabels({"status.phase": at("status.phase")}, PLAIN_REFUSAL, knows_namespace=False),
        default=builtin_core.default_namespace,
        create=builtin_core.prepare_namespace, prepare_update_from=builtin_core.prepare_namespace_update,
        check=builtin_core.validate_namespace, check_status=builtin_core.validate_namespace_status,
    ),
    BuiltinKind(
        _core("Node", "nodes", namespaced=False), ("no",), subresources=(STATUS,),
        field_labels=FieldLabels(
            {"spec.unschedulable": at("spec.unschedulable", "false")}, PLAIN_REFUSAL, knows_namespace=False
        ),
        default=builtin_nodes.default_node, create=builtin_nodes.prepare_node, check=builtin_nodes.validate_node,
        check_update=builtin_nodes.validate_node_update,
    ),
    BuiltinKind(
        _core("ConfigMap", "configmaps"), ("cm",),
        check=builtin_core.validate_config_map, check_update=builtin_core.validate_config_map_update,
    ),
    BuiltinKind(
        _core("Secret", "secrets"), field_labels=_labels("type"), default=builtin_core.default_secret,
        check=builtin_core.validate_secret, check_update=builtin_core.validate_secret_update,
    ),
    BuiltinKind(
        _core("Service", "services"), ("svc",), ("all",), subresources=(STATUS,), name_rule=name_is_label,
        field_labels=_labels("spec.clusterIP", "spec.type"), default=builtin_services.default_service,
        create=builtin_services.prepare_service, prepare_update_from=builtin_services.prepare_service_update,
        check=builtin_services.validate_service, answers_deleted_object=True, creates_on_update=True,
    ),
    BuiltinKind(_core("ServiceAccount", "serviceaccounts"), ("sa",), answers_deleted_object=True),
    BuiltinKind(
        _core("Event", "events"), ("ev",), creates_on_update=True, field_labels=EVENT_LABELS,
        check=builtin_events.validate_event,
    ),
    BuiltinKind(
        _core("LimitRange", "limitranges"), ("limits",), creates_on_update=True,
        default=builtin_core.default_limit_range,
        check=builtin_limits.validate_limit_range,
    ),
    BuiltinKind(
        _core("ResourceQuota", "resourcequotas"), ("quota",), subresources=(STATUS,), answers_deleted_object=True,
        check=builtin_limits.validate_quota,
    ),
    BuiltinKind(
        _core("PodTemplate", "podtemplates"), has_generation=True, default=builtin_core.default_pod_template,
        warn=builtin_pod_warnings.template_warnings("template"), answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("PersistentVolumeClaim", "persistentvolumeclaims"), ("pvc",), subresources=(STATUS,),
        default=builtin_core.default_volume_claim, create=builtin_core.prepare_volume_claim,
        check=builtin_pod_volumes.validate_claim, answers_deleted_object=True,
    ),
    BuiltinKind(
        _core("Endpoints", "endpoints"), ("ep",), creates_on_update=True, default=builtin_network.default_endpoints,
        check=builtin_network.validate_endpoints,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
)  # fmt: skip

JOBS: Final = (
    BuiltinKind(
        Kind("batch", "v1", "Job", "jobs"), categories=("all",), subresources=(STATUS,), has_generation=True,
        default_propagation="Orphan", field_labels=JOB_LABELS, default=builtin_jobs.default_job,
        create=builtin_jobs.prepare_job, check=builtin_jobs.validate_job,
        check_update=builtin_jobs.validate_job_update, check_status=builtin_job_status.validate_job_status,
        warn=builtin_pod_warnings.template_warnings("spec.template", is_named_after=True),
    ),
    BuiltinKind(
        Kind("batch", "v1", "CronJob", "cronjobs"), ("cj",), ("all",), subresources=(STATUS,), has_generation=True,
        default=builtin_jobs.default_cron_job, check=builtin_cron.validate_cron_job,
        check_update=builtin_cron.validate_cron_job_update,
        warn=builtin_pod_warnings.template_warnings("spec.jobTemplate.spec.template", is_named_after=True),
    ),
)  # fmt: skip


def _app(
    kind: str, plural: str, short: str, fill: Change, *,
    prepare_update_from: ChangeFromOld | None = None,
    check: Check = builtin_apps.validate_workload,
    check_update: CheckUpdate = builtin_apps.validate_workload_update, is_scaled: bool = True,
    warn: builtin_pod_warnings.Warn | None = None,
) -> BuiltinKind:  # fmt: skip
    return BuiltinKind(
        Kind("apps", "v1", kind, plural), (short,), ("all",),
        subresources=(SCALE, STATUS) if is_scaled else (STATUS,), has_generation=True, default=fill,
        counts_annotations=kind == "Deployment",
        name_rule=name_is_label if kind == "StatefulSet" else name_is_subdomain,
        prepare_update_from=prepare_update_from,
        check=check, check_update=check_update,
        warn=warn or builtin_pod_warnings.template_warnings(
            "spec.template", is_named_after=kind in ("Deployment", "ReplicaSet")
        ),
    )  # fmt: skip


APPS: Final = (
    _app("Deployment", "deployments", "deploy", builtin_apps.default_deployment,
         check=builtin_apps.validate_deployment, check_update=builtin_apps.validate_deployment_update),
    _app("StatefulSet", "statefulsets", "sts", builtin_apps.default_stateful_set,
         check=builtin_apps.validate_stateful_set, check_update=builtin_apps.validate_stateful_set_update,
         warn=builtin_apps.stateful_set_warnings),
    _app("ReplicaSet", "replicasets", "rs", builtin_apps.default_replica_set),
    _app("DaemonSet", "daemonsets", "ds", builtin_apps.default_daemon_set, is_scaled=False,
         prepare_update_from=builtin_apps.prepare_daemon_set_update),
    BuiltinKind(
        Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
        check=builtin_apps.validate_controller_revision,
        check_update=builtin_apps.validate_controller_revision_update,
    ),
)  # fmt: skip


def _rbac(kind: str, plural: str, *, namespaced: bool) -> BuiltinKind:
    is_binding = kind.endswith("Binding")
    check = builtin_core.validate_binding if namespaced else builtin_core.validate_cluster_binding
    return BuiltinKind(
        Kind(builtin_core.RBAC_GROUP, "v1", kind, plural, namespaced), creates_on_update=True,
        name_rule=name_is_path_segment, default=builtin_core.default_binding if is_binding else nothing,
        check=check if is_binding else builtin_core.validate_role if namespaced else builtin_core.validate_cluster_role,
        check_update=builtin_core.validate_binding_update if is_binding else None,
    )  # fmt: skip


RBAC: Final = (
    _rbac("Role", "roles", namespaced=True),
    _rbac("ClusterRole", "clusterroles", namespaced=False),
    _rbac("RoleBinding", "rolebindings", namespaced=True),
    _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False),
)


def _hooks(kind: str, plural: str) -> BuiltinKind:
    """Stored so that manifests that have one can be applied; every write says that nothing will come of it."""
    is_webhook = kind.endswith("WebhookConfiguration")
    return BuiltinKind(
        Kind("admissionregistration.k8s.io", "v1", kind, plural, False), categories=("api-extensions",),
        has_generation=True, default=builtin_core.default_webhooks if is_webhook else nothing, warning=HOOKS_WARNING,
    )  # fmt: skip


OTHERS: Final = (
    BuiltinKind(
        Kind("events.k8s.io", "v1", "Event", "events"), ("ev",), creates_on_update=True,
        field_labels=_labels(
            "reason", "type", "reportingController", "regarding.kind", "regarding.namespace", "regarding.name",
            "regarding.uid",
        ),
        check=builtin_events.validate_new_event, check_update=builtin_events.validate_new_event_update,
        stored_as="events", stored_version=builtin_events.STORED_VERSION, convert=builtin_events.convert,
    ),
    BuiltinKind(
        Kind("coordination.k8s.io", "v1", "Lease", "leases"), creates_on_update=True, allows_unconditional_update=False,
        default=builtin_core.default_lease, check=builtin_core.validate_lease,
    ),
    BuiltinKind(
        Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False), ("pc",), has_generation=True,
        default=builtin_core.default_priority_class, check=builtin_core.validate_priority_class,
        check_update=builtin_core.validate_priority_class_update,
    ),
    BuiltinKind(
        Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False), creates_on_update=True,
        allows_unconditional_update=False,
    ),
    BuiltinKind(
        Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"), ("pdb",), subresources=(STATUS,),
        allows_unconditional_update=False,
        has_generation=True, check=builtin_limits.validate_disruption_budget,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "Ingress", "ingresses"), ("ing",), subresources=(STATUS,), has_generation=True,
        check=builtin_network.validate_ingress, check_update=builtin_network.validate_ingress_update,
        check_status=builtin_network.validate_ingress_status, warn=builtin_network.ingress_warnings,
    ),
    BuiltinKind(
        Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"), ("netpol",), has_generation=True,
        default=builtin_network.default_network_policy, check=builtin_network.validate_network_policy,
    ),
    BuiltinKind(
        Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False), ("sc",), answers_deleted_object=True,
        default=builtin_core.default_storage_class,
    ),
    _hooks("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    _hooks("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    _hooks("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _hooks("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    BuiltinKind(
        crd.KIND, ("crd", "crds"), ("api-extensions",), subresources=(STATUS,), has_generation=True,
        allows_unconditional_update=False, default=crd.default_definition, create=crd.prepare_definition,
        check=crd_rules.validate_definition, prepare_update_from=crd.prepare_definition_update,
        check_update=crd_rules.validate_definition_update,
    ),
)  # fmt: skip

KINDS: Final = (*CORE, *APPS, *JOBS, *RBAC, *OTHERS)


def find(group: str, version: str, kind: str) -> BuiltinKind | None:
    return _BY_KIND.get((group, version, kind))


_BY_KIND: Final = {(row.kind.group, row.kind.version, row.kind.kind): row for row in KINDS}
