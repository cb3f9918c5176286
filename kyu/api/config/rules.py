"""
Validation of the settings of a Configuration.

One function for each section yields the errors of that section; ``validate`` calls all of them.

Kueue: pkg/config/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from ipaddress import ip_address

from kyu.api import names
from kyu.api.config import config, features
from kyu.api.config.config import BOTH_STRATEGIES, Configuration
from kyu.api.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from kyu.api.meta import selects
from kyu.api.quantity import QuantityError, parse

FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "trainer.kubeflow.org/trainjob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
# The name of an external framework: Kind.version.group.
_EXTERNAL = re.compile(rf"[A-Za-z][A-Za-z0-9]*\.v[0-9]+((alpha|beta)[0-9]+)?(\.{names.LABEL})+", re.ASCII)
_METRIC_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*", re.ASCII)
_TLS_VERSIONS = ("VersionTLS12", "VersionTLS13")
_MAX_CUSTOM_LABELS = 20
_MAX_CUSTOM_LABELS_BY_KIND = {"Workload": 2}
_MAX_TRACKED_VALUES = 16
_MAX_TRACKED_WORKLOAD_VALUES = 12
_MAX_MAPPINGS = 16
_MAX_CLASSES = 8


def validate(configuration: Configuration) -> Iterator[FieldError]:
    yield from _feature_gates(configuration)
    yield from _namespaces(configuration)
    yield from _wait_for_pods_ready(configuration.wait_for_pods_ready)
    yield from _integrations(configuration.integrations)
    yield from _multi_kueue(configuration.multi_kueue)
    yield from _fair_sharing(configuration)
    yield from _resources(configuration.resources)
    yield from _retention(configuration)
    yield from _servers(configuration)
    yield from _custom_labels(configuration.metrics.custom_labels)


def _feature_gates(configuration: Configuration) -> Iterator[FieldError]:
    for name, value in configuration.feature_gates.items():
        if reason := features.why_refused(name, value):
            yield invalid(f"featureGates[{name}]", value, reason)


def _namespaces(configuration: Configuration) -> Iterator[FieldError]:
    if reason := names.why_not_dns_label(configuration.namespace):
        yield invalid("namespace", configuration.namespace, reason)
    selector = configuration.managed_jobs_namespace_selector
    if selector is None:
        return
    for namespace in ("kube-system", configuration.namespace):
        if selects(selector, {config.NAMESPACE_NAME_LABEL: namespace}):
            detail = f"must not select the namespace {namespace}"
            yield forbidden("managedJobsNamespaceSelector", detail)


def _wait_for_pods_ready(wait: config.WaitForPodsReady | None) -> Iterator[FieldError]:
    if wait is None:
        return
    if wait.timeout <= timedelta():
        yield invalid("waitForPodsReady.timeout", str(wait.timeout), "must be greater than 0s")
    yield from _not_negative("waitForPodsReady.recoveryTimeout", wait.recovery_timeout)
    strategy, path = wait.requeuing_strategy, "waitForPodsReady.requeuingStrategy"
    yield from _not_negative(f"{path}.backoffLimitCount", strategy.backoff_limit_count)
    yield from _not_negative(f"{path}.backoffBaseSeconds", strategy.backoff_base_seconds)
    yield from _not_negative(f"{path}.backoffMaxSeconds", strategy.backoff_max_seconds)


def _integrations(integrations: config.Integrations) -> Iterator[FieldError]:
    for index, name in enumerate(integrations.frameworks):
        if name not in FRAMEWORKS:
            yield not_supported(f"integrations.frameworks[{index}]", name, FRAMEWORKS)
    yield from _external("integrations.externalFrameworks", integrations.external_frameworks)
    for index, key in enumerate(integrations.label_keys_to_copy):
        if reason := names.why_not_qualified_name(key):
            yield invalid(f"integrations.labelKeysToCopy[{index}]", key, reason)


def _external(path: str, frameworks: Iterable[str], name_field: str = "") -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(frameworks):
        field = f"{path}[{index}]{name_field}"
        if not _EXTERNAL.fullmatch(name):
            yield invalid(field, name, "must be Kind.version.group, for example Workflow.v1alpha1.argoproj.io")
        if name in seen:
            yield duplicate(field, name)
        seen.add(name)


def _multi_kueue(settings: config.MultiKueue) -> Iterator[FieldError]:
    yield from _not_negative("multiKueue.gcInterval", settings.gc_interval)
    yield from _not_negative("multiKueue.workerLostTimeout", settings.worker_lost_timeout)
    if reason := names.why_not_label_value(settings.origin):
        yield invalid("multiKueue.origin", settings.origin, reason)
    frameworks = [framework.name for framework in settings.external_frameworks]
    yield from _external("multiKueue.externalFrameworks", frameworks, name_field=".name")
    incremental, path = settings.incremental_dispatcher_config, "multiKueue.incrementalDispatcherConfig"
    if incremental is not None and settings.dispatcher_name != config.INCREMENTAL_DISPATCHER:
        yield forbidden(path, f"needs dispatcherName {config.INCREMENTAL_DISPATCHER}")
    if incremental is not None and incremental.step_size < 1:
        yield invalid(f"{path}.stepSize", incremental.step_size, "must be at least 1")
    profile, path = settings.cluster_profile, "multiKueue.clusterProfile"
    if profile is not None and profile.access_providers and profile.credentials_providers:
        yield forbidden(f"{path}.credentialsProviders", "does not go together with accessProviders")


def _fair_sharing(configuration: Configuration) -> Iterator[FieldError]:
    sharing = configuration.fair_sharing
    if sharing is not None:
        path, strategies = "fairSharing.preemptionStrategies", sharing.preemption_strategies
        if not strategies:
            yield required(path, f"must be one or both of {', '.join(BOTH_STRATEGIES)}")
        elif strategies not in (BOTH_STRATEGIES, BOTH_STRATEGIES[:1], BOTH_STRATEGIES[1:]):
            yield invalid(path, strategies, f"must be one or both of {', '.join(BOTH_STRATEGIES)}, in this order")
    admission = configuration.admission_fair_sharing
    if admission is not None:
        yield from _not_negative("admissionFairSharing.usageHalfLifeTime", admission.usage_half_life_time)
        if admission.usage_sampling_interval <= timedelta():
            value = str(admission.usage_sampling_interval)
            yield invalid("admissionFairSharing.usageSamplingInterval", value, "must be greater than 0s")
        for resource, weight in admission.resource_weights.items():
            if not weight >= 0:
                yield invalid(f"admissionFairSharing.resourceWeights[{resource}]", weight, "must not be negative")


def _resources(resources: config.ResourcesConfiguration) -> Iterator[FieldError]:
    if resources.quota_check_strategy == "IgnoreUndeclared" and resources.exclude_resource_prefixes:
        yield forbidden("resources.quotaCheckStrategy", "IgnoreUndeclared does not go with excludeResourcePrefixes")
    seen: set[str] = set()
    for index, transformation in enumerate(resources.transformations):
        path = f"resources.transformations[{index}]"
        if reason := names.why_not_qualified_name(transformation.input):
            yield invalid(f"{path}.input", transformation.input, reason)
        if transformation.input in seen:
            yield duplicate(f"{path}.input", transformation.input)
        seen.add(transformation.input)
        for name, value in transformation.outputs.items():
            try:
                parse(value)
            except QuantityError as error:
                yield invalid(f"{path}.outputs[{name}]", value, str(error))
    yield from _device_classes(resources.device_class_mappings)


def _device_classes(mappings: tuple[config.DeviceClassMapping, ...]) -> Iterator[FieldError]:
    path = "resources.deviceClassMappings"
    if len(mappings) > _MAX_MAPPINGS:
        yield too_many(path, len(mappings), _MAX_MAPPINGS)
    resource_by_class: dict[str, str] = {}
    for index, mapping in enumerate(mappings):
        here = f"{path}[{index}]"
        if reason := names.why_not_qualified_name(mapping.name):
            yield invalid(f"{here}.name", mapping.name, reason)
        if not mapping.device_class_names:
            yield required(f"{here}.deviceClassNames", "names the device classes that are counted")
        if len(mapping.device_class_names) > _MAX_CLASSES:
            yield too_many(f"{here}.deviceClassNames", len(mapping.device_class_names), _MAX_CLASSES)
        for position, name in enumerate(mapping.device_class_names):
            if not mapping.sources and resource_by_class.setdefault(name, mapping.name) != mapping.name:
                yield duplicate(f"{here}.deviceClassNames[{position}]", name)
        kinds = {source.counter is not None for source in mapping.sources}
        for position, source in enumerate(mapping.sources):
            if (source.counter is None) == (source.capacity is None):
                value = "both" if source.counter else "none"
                yield invalid(f"{here}.sources[{position}]", value, "needs exactly one of counter and capacity")
        if len(kinds) > 1:
            yield forbidden(f"{here}.sources", "counter and capacity do not mix in one mapping")


def _retention(configuration: Configuration) -> Iterator[FieldError]:
    policies = configuration.object_retention_policies
    if policies is None or policies.workloads is None:
        return
    path = "objectRetentionPolicies.workloads"
    yield from _not_negative(f"{path}.afterFinished", policies.workloads.after_finished)
    yield from _not_negative(f"{path}.afterDeactivatedByKueue", policies.workloads.after_deactivated_by_kueue)


def _servers(configuration: Configuration) -> Iterator[FieldError]:
    server = configuration.visibility_server
    try:
        ip_address(server.bind_address)
    except ValueError:
        yield invalid("visibilityServer.bindAddress", server.bind_address, "must be an IP address")
    ports = {"visibilityServer.bindPort": server.bind_port, "webhook.port": configuration.webhook.port}
    for path, port in ports.items():
        if not 1 <= port <= 65535:
            yield invalid(path, port, "must be between 1 and 65535")
    for kind, workers in configuration.controller.group_kind_concurrency.items():
        if workers < 1:
            yield invalid(f"controller.groupKindConcurrency[{kind}]", workers, "must be at least 1")
    tls = configuration.tls
    if tls is not None and tls.min_version not in ("", *_TLS_VERSIONS):
        yield not_supported("tls.minVersion", tls.min_version, _TLS_VERSIONS)
    if tls is not None and tls.cipher_suites and tls.min_version == "VersionTLS13":
        yield forbidden("tls.cipherSuites", "cannot be chosen with VersionTLS13")
    certificates = configuration.internal_cert_management
    for field, name in (
        ("webhookServiceName", certificates.webhook_service_name),
        ("webhookSecretName", certificates.webhook_secret_name),
    ):
        if reason := names.why_not_dns_subdomain(name):
            yield invalid(f"internalCertManagement.{field}", name, reason)


def _custom_labels(labels: tuple[config.ControllerMetricsCustomLabel, ...]) -> Iterator[FieldError]:
    path = "metrics.customLabels"
    if len(labels) > _MAX_CUSTOM_LABELS:
        yield too_many(path, len(labels), _MAX_CUSTOM_LABELS)
    count_by_kind: dict[str, int] = {}
    for index, label in enumerate(labels):
        here = f"{path}[{index}]"
        limit = _MAX_CUSTOM_LABELS_BY_KIND.get(label.source_kind, 6)
        count_by_kind[label.source_kind] = count_by_kind.get(label.source_kind, 0) + 1
        if count_by_kind[label.source_kind] > limit:
            yield forbidden(f"{here}.sourceKind", f"at most {limit} labels may come from {label.source_kind}")
        if not _METRIC_LABEL.fullmatch(label.name):
            yield invalid(f"{here}.name", label.name, "must start with a letter; letters, digits and '_' may follow")
        if label.source_label_key and label.source_annotation_key:
            yield forbidden(f"{here}.sourceAnnotationKey", "does not go together with sourceLabelKey")
        tracked = len(label.tracked_values)
        if label.source_kind == "Workload" and not 1 <= tracked <= _MAX_TRACKED_WORKLOAD_VALUES:
            detail = f"needs 1 to {_MAX_TRACKED_WORKLOAD_VALUES} values when the source is a Workload"
            yield invalid(f"{here}.trackedValues", label.tracked_values, detail)
        elif tracked > _MAX_TRACKED_VALUES:
            yield too_many(f"{here}.trackedValues", tracked, _MAX_TRACKED_VALUES)


def _not_negative(field: str, value: timedelta | int | None) -> Iterator[FieldError]:
    if isinstance(value, timedelta) and value < timedelta():
        yield invalid(field, str(value), "must not be negative")
    if isinstance(value, int) and value < 0:
        yield invalid(field, value, "must not be negative")
