"""The objects of an installation: which webhooks call Kyu, and what happens without it."""

from __future__ import annotations

import pytest

from kyu.api.meta import Json
from kyu.install import admission, objects, shadow
from kyu.kinds.table import KINDS


def webhooks(kind: str, *, policies: bool = True) -> list[Json]:
    found = [
        each for each in objects.objects("kyu", policies=policies) if each["kind"] == f"{kind}WebhookConfiguration"
    ]
    return [webhook for configuration in found for webhook in configuration["webhooks"]]


@pytest.mark.parametrize("policies", [True, False])
def test_unlabelled_objects_never_wait_for_kyu(policies: bool) -> None:
    for webhook in (*webhooks("Mutating", policies=policies), *webhooks("Validating", policies=policies)):
        is_kueue = webhook["rules"][0]["apiGroups"] == ["kueue.x-k8s.io"]
        is_labelled = webhook.get("objectSelector") == admission.LABELLED
        assert webhook["failurePolicy"] == "Ignore" or is_kueue or is_labelled, webhook["name"]


def test_with_policies_no_job_waits_for_kyu() -> None:
    for webhook in (*webhooks("Mutating"), *webhooks("Validating")):
        assert webhook["failurePolicy"] == "Ignore" or webhook["rules"][0]["apiGroups"] == ["kueue.x-k8s.io"]


def test_without_policies_labelled_jobs_wait_for_kyu() -> None:
    labelled = [
        each for each in webhooks("Mutating", policies=False) if each.get("objectSelector") == admission.LABELLED
    ]
    assert {each["failurePolicy"] for each in labelled} == {"Fail"}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_job_webhooks_spare_the_namespaces_of_the_system(kind: str) -> None:
    for webhook in webhooks(kind):
        if webhook["rules"][0]["apiGroups"] != ["kueue.x-k8s.io"]:
            (expression,) = webhook["namespaceSelector"]["matchExpressions"]
            assert {"kube-system", objects.NAMESPACE} <= set(expression["values"])


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_names_are_unique(kind: str) -> None:
    names = [webhook["name"] for webhook in webhooks(kind)]
    assert len(names) == len(set(names))


def test_every_kind_is_defaulted_and_validated() -> None:
    expected = {(kind.group, kind.version, kind.plural) for job in KINDS if job.framework for kind in job.kinds}
    for step in ("Mutating", "Validating"):
        rules = [rule for webhook in webhooks(step) for rule in webhook["rules"]]
        found = {(rule["apiGroups"][0], rule["apiVersions"][0], rule["resources"][0]) for rule in rules}
        assert expected <= found


def test_every_kind_that_can_be_suspended_has_a_policy() -> None:
    names = {each["metadata"]["name"] for each in objects.objects("kyu") if each["kind"] == "MutatingAdmissionPolicy"}
    assert "kyu-gate-queued-pods" in names
    assert {"kyu-suspend-queued-jobs-v1", "kyu-suspend-queued-mpijobs-v2beta1"} <= names


def test_the_suspension_of_a_nested_field() -> None:
    mpi_job = next(job for job in KINDS if job.kind.kind == "MPIJob")
    expected = "Object{spec: Object.spec{runPolicy: Object.spec.runPolicy{suspend: true}}}"
    assert admission.suspend_expression(mpi_job) == expected


def test_the_right_to_write_bundles_is_for_kyu_alone() -> None:
    rules = [rule for rule in objects.cluster_rules() if "customresourcedefinitions" in rule["resources"]]
    writing = [rule for rule in rules if "patch" in rule["verbs"]]
    assert writing
    assert all(rule["resourceNames"] for rule in writing)


def test_a_shadow_may_only_read_and_takes_nothing_of_the_controllers() -> None:
    made = shadow.shadow_objects("kyu")
    verbs = {verb for one in made for rule in one.get("rules", ()) for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    ours = {(one["kind"], one["metadata"]["name"]) for one in objects.objects("kyu") if one["kind"] != "Namespace"}
    assert not ours & {(one["kind"], one["metadata"]["name"]) for one in made}
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    # The Services and the budget of the controllers do not select it.
    assert objects.LABELS.items() - selector.items()
