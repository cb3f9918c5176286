"""
The admission check that asks a cluster autoscaler: one ProvisioningRequest per attempt, its answer as the check's
state.

The request says which pods must fit, with what admission will add to them. Provisioned makes the check Ready, Failed
makes it Retry (with a growing delay) until the attempts are used up and it is Rejected.

Kueue: pkg/controller/admissionchecks/provisioning
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kyu.api.actions import Action, Create, Delete, Event, View
from kyu.api.kueue import (
    PROVISIONING_CONTROLLER,
    AdmissionCheck,
    AdmissionCheckState,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
    Workload,
)
from kyu.api.meta import Json, Key, Kind, Ref, is_true, key_of
from kyu.kinds import crds, metadata
from kyu.kinds.templates import PodSetInfo, TemplateConflict, merged
from kyu.plans.job import injection
from kyu.plans.job.unit import owner_reference
from kyu.plans.status import StatusEdit
from kyu.plans.workload import checks

REQUEST = crds.PROVISIONING_REQUEST
POD_TEMPLATE = Kind("", "v1", "PodTemplate", "podtemplates")
PARAMETER_PREFIX = "provreq.kueue.x-k8s.io/"
CONSUMED_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
CONSUMED_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
# The check of a request, and its attempt. The name has both, but may be cut.
CHECK = "kueue.x-k8s.io/admission-check"
ATTEMPT = "kueue.x-k8s.io/provisioning-attempt"
LONGEST_NAME = 253
HASH_LENGTH = 5


@dataclass(frozen=True, slots=True)
class PodsOfRequest:
    """One entry of a request: pods of one shape, and the first pod set that has it."""

    name: str
    count: int
    template: Json


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    """Create the requests of a Workload, and report their state in its checks."""
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    if workload is None or raw is None:
        return []
    conditions = workload.status.conditions
    evicted = is_true(conditions, "Evicted")
    cleans_up = view.configuration.gates.enabled("CleanupProvisioningRequestsOnEviction")
    if is_true(conditions, "Finished") or (evicted and cleans_up):
        return [Delete(Ref(REQUEST, key_of(request))) for request in view.owned_by(REQUEST, workload.metadata.uid)]
    if evicted or not is_true(conditions, "QuotaReserved") or workload.status.admission is None:
        # The state of a request belongs to an earlier reservation: the checks start over with the next one.
        return []
    states = [state for state in workload.status.admission_checks if provisions(view, state.name)]
    edit = StatusEdit(raw, now)
    actions: list[Action] = []
    for state in states:
        actions += follow(view, workload, state, edit)
    patch = edit.patch(Workload.KIND)
    return [*actions, patch, *told(workload, states, edit)] if patch else actions


def told(workload: Workload, before: list[AdmissionCheckState], edit: StatusEdit) -> Iterator[Event]:
    """Yield an event for each check that has another state."""
    known = {check["name"]: check for check in edit.read("admissionChecks") or ()}
    ref = Ref(Workload.KIND, workload.key)
    for state in before:
        check = known[state.name]
        if check["state"] == state.state:
            continue
        message = f"Admission check {state.name} updated state from {state.state} to {check['state']}"
        if check.get("message"):
            message += f" with message: {check['message']}"
        yield Event(ref, "Normal", "AdmissionCheckUpdated", message, workload.metadata.uid)


def follow(view: View, workload: Workload, state: AdmissionCheckState, edit: StatusEdit) -> list[Action]:
    config = config_of(view, state.name)
    requests = [r for r in view.owned_by(REQUEST, workload.metadata.uid) if check_of(r) == state.name]
    if config is None:
        checks.set_state(edit, state, "Pending", "the check is not active")
        return delete_all(requests)
    entries = list(pods_to_provision(view, workload, config))
    if not entries:
        if state.state != "Ready":
            checks.set_state(edit, state, "Ready", "the provisioning request is not needed")
        return delete_all(requests)
    if stale := [r for r in requests if not in_sync(r, config)]:
        return delete_all(stale)
    newest = max(requests, key=attempt_of, default=None)
    next_attempt = (state.retry_count or 0) + 1
    if newest is None or (state.state == "Pending" and attempt_of(newest) < next_attempt):
        return create(workload, state, config, entries, next_attempt)
    read_answer(workload, state, config, entries, newest, edit)
    return []


def delete_all(requests: list[Json]) -> list[Action]:
    return [Delete(Ref(REQUEST, key_of(request))) for request in requests]


def create(
    workload: Workload,
    state: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec,
    entries: list[PodsOfRequest],
    attempt: int,
) -> list[Action]:
    name = limited(f"{workload.metadata.name}-{state.name}-{attempt}")
    namespace = workload.metadata.namespace
    asked = {
        key.removeprefix(PARAMETER_PREFIX): value
        for key, value in workload.metadata.annotations.items()
        if key.startswith(PARAMETER_PREFIX)
    }
    identity = {"metadata": {"name": workload.metadata.name, "uid": workload.metadata.uid}}
    owner = owner_reference(Workload.KIND, identity, controller=True)
    labels = {metadata.MANAGED: "true"}
    meta: Json = {"namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    templates = [
        Create(POD_TEMPLATE, {"metadata": {**meta, "name": template_name(name, entry)}, "template": entry.template})
        for entry in entries
    ]
    spec: Json = {
        "provisioningClassName": config.provisioning_class_name,
        "podSets": [
            {"count": entry.count, "podTemplateRef": {"name": template_name(name, entry)}} for entry in entries
        ],
    }
    if parameters := {**config.parameters, **asked}:
        spec["parameters"] = parameters
    request_meta: Json = {**meta, "name": name, "annotations": {CHECK: state.name, ATTEMPT: str(attempt)}}
    ref = Ref(Workload.KIND, workload.key)
    told = Event(ref, "Normal", "ProvisioningRequestCreated", f'Created ProvisioningRequest: "{name}"')
    return [*templates, Create(REQUEST, {"metadata": request_meta, "spec": spec}), told]


def read_answer(
    workload: Workload,
    state: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec,
    entries: list[PodsOfRequest],
    request: Json,
    edit: StatusEdit,
) -> None:
    """Set the state of the check by the first condition that applies."""
    said = {c["type"]: c for c in (request.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    admitted = is_true(workload.status.conditions, "Admitted")
    if "Failed" in said:
        retry_or_reject(state, config, attempt_of(request), said["Failed"].get("message", ""), edit)
    elif "CapacityRevoked" in said:
        checks.set_state(
            edit, state, "Rejected", said["CapacityRevoked"].get("message", "") or "The capacity was revoked"
        )
    elif "BookingExpired" in said and not admitted:
        message = said["BookingExpired"].get("message", "")
        retry_or_reject(state, config, attempt_of(request), message, edit, what="booking expired")
    elif "Provisioned" in said:
        checks.set_state(
            edit, state, "Ready", said["Provisioned"].get("message", ""), pod_set_updates(config, entries, request)
        )
    elif "Accepted" in said:
        expected: Json = next((c for c in request["status"]["conditions"] if c["type"] == "Provisioned"), {})
        checks.set_state(edit, state, "Pending", expected.get("message", ""))


def retry_or_reject(
    state: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec,
    attempt: int,
    message: str,
    edit: StatusEdit,
    what: str = "failure",
) -> None:
    strategy, retries = config.retry_strategy, state.retry_count or 0
    if attempt > strategy.backoff_limit_count:
        checks.set_state(edit, state, "Rejected", message or "The request failed too often")
    elif attempt > retries and state.state == "Pending":
        delay = min(strategy.backoff_base_seconds * 2**retries, strategy.backoff_max_seconds)
        checks.set_state(edit, state, "Retry", f"Retrying after {what}: {message}", requeue_after_seconds=delay)


def pod_set_updates(config: ProvisioningRequestConfigSpec, entries: list[PodsOfRequest], request: Json) -> list[Json]:
    details = (request.get("status") or {}).get("provisioningClassDetails") or {}
    wanted = config.pod_set_updates.node_selector if config.pod_set_updates else ()
    selector = {
        item.key: details[item.value_from_provisioning_class_detail]
        for item in wanted
        if item.value_from_provisioning_class_detail in details
    }
    annotations = {
        CONSUMED_REQUEST: request["metadata"]["name"],
        CONSUMED_CLASS: request["spec"]["provisioningClassName"],
    }
    extra: Json = {"nodeSelector": selector} if selector else {}
    return [{"name": entry.name, "annotations": annotations, **extra} for entry in entries]


def pods_to_provision(view: View, workload: Workload, config: ProvisioningRequestConfigSpec) -> Iterator[PodsOfRequest]:
    """Return the admitted pods of this check, with the labels of flavors in their templates; equal ones are merged."""
    raw = view.find_json(Workload.KIND, workload.key) or {}
    infos = {info.name: info for info in injection.pod_set_infos(view, workload, "")}
    found: list[PodsOfRequest] = []
    for pod_set in injection.originals(raw):
        info = infos.get(pod_set.name)
        if info is None or info.count <= 0 or not uses(pod_set.template, config.managed_resources):
            continue
        entry = PodsOfRequest(pod_set.name, info.count, with_flavor(pod_set.template, info))
        same = next((i for i, one in enumerate(found) if mergeable(one, entry, config.pod_set_merge_policy)), None)
        if same is None:
            found.append(entry)
        else:
            first = found[same]
            found[same] = PodsOfRequest(first.name, first.count + entry.count, first.template)
    yield from found


def with_flavor(template: Json, info: PodSetInfo) -> Json:
    """Return the template with the fields that decide on nodes. A contradiction shows when the job starts."""
    added = PodSetInfo(info.name, info.count, node_selector=info.node_selector, tolerations=info.tolerations)
    result = merged(template, added)
    body = copy.deepcopy(template if isinstance(result, TemplateConflict) else result)
    for container in containers(body):
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            container["resources"] = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return body


def mergeable(one: PodsOfRequest, other: PodsOfRequest, policy: str | None) -> bool:
    match policy:
        case "IdenticalPodTemplates":
            return one.template == other.template
        case "IdenticalWorkloadSchedulingRequirements":
            return requirements(one.template) == requirements(other.template)
        case _:
            return False


def requirements(template: Json) -> Json:
    spec = template.get("spec") or {}
    asked: Json = {
        field: [(container.get("resources") or {}).get("requests") for container in spec.get(field) or ()]
        for field in ("containers", "initContainers")
    }
    for field in ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"):
        asked[field] = spec.get(field)
    return asked


def uses(template: Json, managed: tuple[str, ...]) -> bool:
    if not managed:
        return True
    return any(
        name in ((container.get("resources") or {}).get(kind) or {})
        for container in containers(template)
        for kind in ("requests", "limits")
        for name in managed
    )


def containers(template: Json) -> Iterator[Json]:
    spec = template.get("spec") or {}
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def provisions(view: View, name: str) -> bool:
    check = view.get(AdmissionCheck, Key("", name))
    return check is not None and check.spec.controller_name == PROVISIONING_CONTROLLER


def config_of(view: View, check_name: str) -> ProvisioningRequestConfigSpec | None:
    check = view.get(AdmissionCheck, Key("", check_name))
    if check is None or check.spec.parameters is None:
        return None
    config = view.get(ProvisioningRequestConfig, Key("", check.spec.parameters.name))
    return config.spec if config else None


def plan_check(view: View, key: Key, now: datetime) -> list[Action]:
    """Set the condition Active of an AdmissionCheck of this controller."""
    check, raw = view.get(AdmissionCheck, key), view.find_json(AdmissionCheck.KIND, key)
    if check is None or raw is None or check.spec.controller_name != PROVISIONING_CONTROLLER:
        return []
    edit = StatusEdit(raw, now)
    if config_of(view, key.name) is not None:
        edit.set_condition("Active", "True", "Active", "The admission check is active")
    else:
        edit.set_condition("Active", "False", "BadParametersRef", "Its ProvisioningRequestConfig is not there")
    patch = edit.patch(AdmissionCheck.KIND)
    return [patch] if patch else []


def in_sync(request: Json, config: ProvisioningRequestConfigSpec) -> bool:
    spec = request["spec"]
    parameters = spec.get("parameters") or {}
    same = all(parameters.get(name) == value for name, value in config.parameters.items())
    return same and spec["provisioningClassName"] == config.provisioning_class_name


def check_of(request: Json) -> str:
    return str((request["metadata"].get("annotations") or {}).get(CHECK, ""))


def attempt_of(request: Json) -> int:
    return int((request["metadata"].get("annotations") or {}).get(ATTEMPT, "1"))


def template_name(request_name: str, entry: PodsOfRequest) -> str:
    return limited(f"ppt-{request_name}-{entry.name}")


def limited(name: str) -> str:
    """Cut a name that is too long, and append a hash of the whole."""
    keep = LONGEST_NAME - HASH_LENGTH - 1
    if len(name) <= keep:
        return name
    return f"{name[:keep]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:HASH_LENGTH]}"
