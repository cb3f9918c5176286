"""
Jobs and CronJobs: defaults, the generated selector, and validation.

The selector of a Job has its uid, so that two Jobs never select the same pod. It is generated unless ``manualSelector``
is set. Kueue writes node selectors into the template, which is allowed only while the Job is suspended and has not
started.

Kubernetes: pkg/apis/batch, pkg/registry/batch/job/strategy.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, subdomain
from kyu.server.builtin import job_policies
from kyu.server.builtin.pods.pods import default_template
from kyu.server.builtin.pods.rules import validate_template
from kyu.server.json_values import carry_over, clone
from kyu.server.validation.checks import IMMUTABLE, at_least_zero, immutable, objections, one_of
from kyu.server.validation.metadata import selector_matches

UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
NAME_LABEL: Final = "batch.kubernetes.io/job-name"
# The same labels without a domain, for old clients.
OLD_UID_LABEL: Final = "controller-uid"
OLD_NAME_LABEL: Final = "job-name"
NO_BACKOFF_LIMIT: Final = 2**31 - 1
MAX_MANAGER_BYTES: Final = 63
COMPLETION_MODES: Final = ("NonIndexed", "Indexed")
REPLACEMENT_POLICIES: Final = ("Failed", "TerminatingOrFailed")
COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
IMMUTABLE_FIELDS: Final = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
# The scheduling directives of the template, which may change before a Job starts.
SCHEDULING_FIELDS: Final = ("nodeSelector", "tolerations", "schedulingGates")


def default_job(job: Json) -> None:
    spec = job.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", NO_BACKOFF_LIMIT if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failure_policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "Failed" if failure_policy else "TerminatingOrFailed")
    for rule in (failure_policy or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def prepare_job(job: Json) -> None:
    """Generate the selector and the labels that it selects. A Job without labels gets them too."""
    job["status"] = {}
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    template = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    had_labels = metadata.get("labels") not in (None, {}, template)
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    # The validation rejects other values of these labels.
    for key, value in _generated_labels(job).items():
        template.setdefault(key, value)
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {UID_LABEL: uid, **(selector.get("matchLabels") or {})}
    # The validation of the template rejects a name that is too long for a label, and once is enough.
    if not had_labels and len(name) <= 63:
        metadata["labels"] = dict(template)


def validate_job(job: Json) -> Iterator[FieldError]:
    spec, name = job["spec"], job["metadata"].get("name", "")
    yield from _generated_selector_faults(job)
    yield from job_spec_faults(spec, "spec")
    yield from _selector_faults(spec)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions:
        hostname = f"{name}-{completions - 1}"
        if label(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            yield fields.invalid("metadata.name", name, detail)


def _generated_selector_faults(job: Json) -> Iterator[FieldError]:
    spec = job["spec"]
    if spec.get("manualSelector") or not spec.get("selector"):
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    generated = _generated_labels(job)
    for key, value in generated.items():
        path, detail = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
        if key not in labels:
            yield fields.required(path, detail)
        elif labels[key] != value:
            yield fields.invalid(path, dict(sorted(labels.items())), detail)
    wanted = spec["selector"].get("matchLabels") or {}
    if spec["selector"].get("matchExpressions") or not wanted.items() <= generated.items():
        selector = {**spec["selector"], "matchLabels": dict(sorted(wanted.items()))}
        yield fields.invalid("spec.selector", selector, "`selector` not auto-generated")


def _generated_labels(job: Json) -> dict[str, str]:
    uid, name = job["metadata"].get("uid", ""), job["metadata"].get("name", "")
    return {UID_LABEL: uid, NAME_LABEL: name, OLD_UID_LABEL: uid, OLD_NAME_LABEL: name}


def _selector_faults(spec: Json) -> Iterator[FieldError]:
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    detail = "`selector` does not match template `labels`"
    mismatch = fields.invalid("spec.template.metadata.labels", dict(sorted(labels.items())) or None, detail)
    if not spec.get("selector"):
        yield fields.required("spec.selector")
        yield mismatch
        return
    if not selector_matches(spec["selector"], labels):
        yield mismatch


def job_spec_faults(spec: Json, path: str) -> Iterator[FieldError]:
    yield from at_least_zero(f"{path}.", spec, *COUNTS)
    is_indexed = spec.get("completionMode") == "Indexed"
    yield from one_of(f"{path}.completionMode", spec.get("completionMode"), COMPLETION_MODES)
    yield from one_of(f"{path}.podReplacementPolicy", spec.get("podReplacementPolicy"), REPLACEMENT_POLICIES)
    if spec.get("managedBy") is not None:
        yield from _manager_faults(spec["managedBy"], f"{path}.managedBy")
    if is_indexed and spec.get("completions") is None:
        yield fields.required(f"{path}.completions", "when completion mode is Indexed")
    for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(name) is not None and not is_indexed:
            yield fields.invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield fields.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if is_indexed:
        yield from job_policies.index_faults(spec, path)
    yield from job_policies.failure_faults(spec, path)
    yield from job_policies.success_faults(spec, path)
    yield from validate_template(spec["template"], f"{path}.template")
    yield from _restart_policy_faults(spec, f"{path}.template.spec.restartPolicy")


def _manager_faults(name: str, path: str) -> Iterator[FieldError]:
    domain, slash, rest = name.partition("/")
    if not (domain and slash and rest):
        yield fields.invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from objections(path, domain, subdomain)
    if len(name) > MAX_MANAGER_BYTES:
        yield fields.too_long(path, "", MAX_MANAGER_BYTES)


def _restart_policy_faults(spec: Json, path: str) -> Iterator[FieldError]:
    policy = (spec["template"].get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        yield fields.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield fields.not_supported(path, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") and policy != "Never":
        yield fields.invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def validate_job_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update. Kubernetes validates the spec twice here, so errors are reported twice."""
    after, before = new["spec"], old["spec"]
    yield from _generated_selector_faults(new)
    yield from [*job_spec_faults(after, "spec"), *_selector_faults(after)] * 2
    if not _may_resize(after, before):
        yield from immutable("spec.", after, before, "completions")
    yield from immutable("spec.", after, before, "selector")
    yield from _template_update_faults(new, old)
    yield from immutable("spec.", after, before, *IMMUTABLE_FIELDS)


def _may_resize(after: Json, before: Json) -> bool:
    """Return whether this is an elastic Indexed Job: completions change together with parallelism."""
    return (
        after.get("completionMode") == "Indexed"
        and after.get("completions") is not None
        and before.get("completions") is not None
        and after["completions"] == after.get("parallelism")
        and before["completions"] == before.get("parallelism")
    )


def _template_update_faults(new: Json, old: Json) -> Iterator[FieldError]:
    after, before = new["spec"]["template"], clone(old["spec"]["template"])
    is_suspended = bool(old["spec"].get("suspend"))
    if is_suspended and not (old.get("status") or {}).get("startTime"):
        _adopt_scheduling(before, after)
    if is_suspended:
        _adopt_resources(before, after)
    if after != before:
        path = "spec.template.spec" if is_suspended else "spec.template"
        yield fields.invalid(path, after.get("spec") if is_suspended else after, IMMUTABLE)


def _adopt_scheduling(before: Json, after: Json) -> None:
    mine, theirs = before.setdefault("spec", {}), after.get("spec") or {}
    for name in SCHEDULING_FIELDS:
        carry_over(name, theirs, mine)
    affinity = {**(mine.get("affinity") or {})}
    carry_over("nodeAffinity", theirs.get("affinity") or {}, affinity)
    if affinity or "affinity" in theirs:
        mine["affinity"] = affinity
    else:
        mine.pop("affinity", None)
    metadata = before.setdefault("metadata", {})
    for name in ("labels", "annotations"):
        carry_over(name, after.get("metadata") or {}, metadata)


def _adopt_resources(before: Json, after: Json) -> None:
    for group in ("containers", "initContainers"):
        mine, theirs = (before.get("spec") or {}).get(group) or (), (after.get("spec") or {}).get(group) or ()
        if len(mine) == len(theirs):
            for container, other in zip(mine, theirs, strict=True):
                carry_over("resources", other, container)


def default_cron_job(cron_job: Json) -> None:
    spec = cron_job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    default_template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {}))
