"""The Configuration: defaults, both versions of the file, strictness, judgement; feature gates and durations."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kyu
from kyu.api import documents, duration
from kyu.api.config import config, features, file
from kyu.api.config.config import Configuration, Section
from kyu.api.config.file import InvalidConfiguration, Loaded
from kyu.api.config.unused import GATES_NOT_FOLLOWED, NOT_FOLLOWED, embedded_warnings
from kyu.api.meta import Json, selects
from kyu.engine.options import Options, snake_case

CASES = Path(__file__).parent.parent / "cases" / "api" / "config" / "refused.yaml"
REFUSED: list[Json] = [document.value for document in documents.parse(CASES.read_text())]


def load(version: str = "v1beta2", **settings: Any) -> Loaded:
    header = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
    return file.load({**header, **settings})


def test_an_empty_file_is_the_default_configuration() -> None:
    loaded = load()
    assert loaded == Loaded(Configuration())
    wait = loaded.configuration.wait_for_pods_ready
    assert wait is not None
    assert (wait.timeout, wait.effective_recovery_timeout, wait.block_admission) == (
        timedelta(minutes=30), timedelta(minutes=30), False
    )  # fmt: skip
    assert loaded.configuration.fair_sharing is None
    assert loaded.configuration.integrations.frameworks == ("batch/job",)


def test_values_replace_defaults() -> None:
    configuration = load(
        namespace="queues",
        waitForPodsReady={"timeout": "5m", "recoveryTimeout": "0s", "requeuingStrategy": {"timestamp": "Creation"}},
        fairSharing={"preemptionStrategies": ["LessThanInitialShare"]},
        admissionFairSharing={"usageHalfLifeTime": "168h", "resourceWeights": {"cpu": 2}},
        resources={
            "transformations": [{"input": "example.com/mig", "strategy": "Replace", "outputs": {"gpu": "150m"}}]
        },
        metrics=None,
    ).configuration
    assert configuration.wait_for_pods_ready is not None
    assert configuration.wait_for_pods_ready.effective_recovery_timeout == timedelta()
    assert configuration.fair_sharing is not None
    assert configuration.fair_sharing.effective_strategies == ("LessThanInitialShare",)
    assert configuration.admission_fair_sharing is not None
    assert configuration.admission_fair_sharing.usage_half_life_time == timedelta(days=7)
    assert configuration.resources.transformations[0].outputs == {"gpu": "150m"}


def test_system_namespaces_are_not_managed_by_default() -> None:
    selector = load(namespace="queues").configuration.managed_namespaces
    managed = [
        name for name in ("kube-system", "queues", "team") if selects(selector, {config.NAMESPACE_NAME_LABEL: name})
    ]
    assert managed == ["team"]


def test_waiting_for_pods_can_be_switched_off() -> None:
    assert load(featureGates={"DisableWaitForPodsReady": True}).configuration.wait_for_pods_ready is None


# v1beta1


def test_in_v1beta1_blocks_have_switches() -> None:
    assert load("v1beta1").configuration.wait_for_pods_ready is None
    assert load("v1beta1", waitForPodsReady={"timeout": "5m"}).configuration.wait_for_pods_ready is None
    wait = load("v1beta1", waitForPodsReady={"enable": True, "timeout": "5m"}).configuration.wait_for_pods_ready
    assert wait is not None
    assert (wait.timeout, wait.block_admission) == (timedelta(minutes=5), True)
    assert load("v1beta1", fairSharing={"enable": False}).configuration.fair_sharing is None
    sharing = load("v1beta1", fairSharing={"enable": True}).configuration.fair_sharing
    assert sharing == config.FairSharingConfiguration(config.BOTH_STRATEGIES)


def test_what_v1beta1_had_and_nobody_uses_is_accepted_with_a_word() -> None:
    loaded = load(
        "v1beta1",
        queueVisibility={"clusterQueues": {"maxCount": 3}},
        integrations={"frameworks": ["pod"], "podOptions": {"podSelector": {}}},
    )
    assert loaded.configuration.integrations.frameworks == ("pod",)
    assert [warning.partition(" ")[0] for warning in loaded.warnings] == ["queueVisibility", "integrations.podOptions"]


def test_a_framework_that_is_listed_twice_is_listed_once_with_a_word() -> None:
    loaded = load(integrations={"frameworks": ["batch/job", "pod", "pod"]})
    assert loaded.configuration.integrations.frameworks == ("batch/job", "pod")
    assert loaded.warnings == ("integrations.frameworks: 'pod' is listed more than once",)


# Refusals


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({}, "apiVersion: Required value: must be one of"),
        ({"apiVersion": "v1", "kind": "Configuration"}, 'apiVersion: Unsupported value: "v1"'),
        ({"apiVersion": "config.kueue.x-k8s.io/v1beta2"}, 'kind: Invalid value: null: must be "Configuration"'),
    ],
)
def test_other_documents_are_refused(document: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        file.load(document)
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["title"])
def test_settings_that_make_no_sense_are_refused_by_path(case: Json) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load(**case["settings"])
    said = [str(error) for error in caught.value.errors]
    assert len(said) == len(case["refused"]), said
    for message, beginning in zip(said, case["refused"], strict=True):
        assert message.startswith(beginning)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([field.encode_name for field in msgspec.structs.fields(Configuration)][2:])


@given(st.sampled_from(["v1beta1", "v1beta2"]), st.dictionaries(names | st.text(max_size=5), json_values, max_size=3))
def test_no_file_breaks_the_reader(version: str, settings: dict[str, Any]) -> None:
    settings = {name: value for name, value in settings.items() if name not in ("apiVersion", "kind")}
    try:
        loaded = file.load(
            {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **settings}
        )
    except InvalidConfiguration:
        return
    assert loaded.configuration.kind == "Configuration"


# Feature gates


def test_gates_have_the_defaults_of_their_stage() -> None:
    by_stage: dict[str, list[bool]] = {}
    for gate in features.GATES:
        by_stage.setdefault(gate.stage, []).append(features.DEFAULT_GATES.enabled(gate.name))
    assert {stage: (len(on), sum(on)) for stage, on in by_stage.items()} == {
        "Beta": (55, 53),
        "Alpha": (25, 1),
        "Stable": (7, 7),
        "Deprecated": (2, 0),
    }
    assert len(features.GATE_BY_NAME) == len(features.GATES)


def test_a_gate_of_its_own_goes_before_its_stage() -> None:
    gates = features.feature_gates({"AllAlpha": True, "AllBeta": False, "PriorityBoost": False, "MultiKueue": True})
    assert gates.enabled("ConcurrentAdmission")
    assert not gates.enabled("PriorityBoost")
    assert not gates.enabled("PartialAdmission")
    assert gates.enabled("MultiKueue")
    assert gates.enabled("HierarchicalCohorts")


def test_asking_for_a_gate_that_does_not_exist_is_an_error_of_ours() -> None:
    with pytest.raises(AssertionError, match="no feature gate Nonsense"):
        features.DEFAULT_GATES.enabled("Nonsense")


# Durations


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("30m", 1800, "30m0s"), ("1h30m", 5400, "1h30m0s"), ("90s", 90, "1m30s"), ("1.5s", 1.5, "1.5s"), ("0", 0, "0s"),
        ("300ms", 0.3, "300ms"), ("-2m", -120, "-2m0s"), ("+1h", 3600, "1h0m0s"), ("15us", 15e-6, "15µs"),
        (".5h", 1800, "30m0s"), ("1h0.25s", 3600.25, "1h0m0.25s"),
    ],
)  # fmt: skip
def test_durations_are_read_and_written_in_the_notation_of_go(text: str, seconds: float, canonical: str) -> None:
    parsed = duration.parse(text)
    assert parsed == timedelta(seconds=seconds)
    assert str(parsed) == canonical


@pytest.mark.parametrize("text", ["", "5", "5x", "m", "1h 30m", "--5s", "1e3s", "9999999999h", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is too long"):
        duration.parse(text)


@given(st.timedeltas(timedelta(days=-90000), timedelta(days=90000)))
def test_durations_are_read_back(value: timedelta) -> None:
    assert duration.parse(duration.render(value)) == value


# Settings without an effect.


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"multiKueue": {"externalFrameworks": [{"name": "Task.v1.example.com"}]}}, "multiKueue.externalFrameworks"),
        ({"controller": {"groupKindConcurrency": {"Job.batch": 5}}}, "controller"),
        ({"clientConnection": {"qps": 20}}, "clientConnection"),
        ({"tls": {"minVersion": "VersionTLS13"}}, "tls"),
        (
            {"featureGates": {"MultiKueueOrchestratedPreemption": True, "PartialAdmission": True}},
            "featureGates.MultiKueueOrchestratedPreemption",
        ),
    ],
)
def test_a_setting_that_has_no_effect_is_named(settings: Json, named: str) -> None:
    (warning,) = load(**settings).warnings
    assert warning.startswith(f"{named} has no effect: ")


def test_a_setting_that_says_what_holds_anyway_is_not_worth_a_word() -> None:
    assert load(clientConnection={"qps": 300, "burst": 500}, health={"healthProbeBindAddress": ":8081"}).warnings == ()


def test_addresses_have_an_effect_on_a_cluster_and_none_for_embedded_controllers() -> None:
    loaded = load(metrics={"bindAddress": ":9090"})
    assert loaded.warnings == ()
    (warning,) = embedded_warnings(loaded.configuration)
    assert warning.startswith("metrics.bindAddress has no effect: ")


def test_the_gates_without_an_effect_are_gates() -> None:
    assert set(GATES_NOT_FOLLOWED) <= {gate.name for gate in features.GATES}


def test_every_setting_is_read_somewhere_or_named_as_one_without_an_effect() -> None:
    root = Path(kyu.__file__).parent
    readers = [path for path in root.rglob("*.py") if path.parent.name != "config"]
    sources = "\n".join(path.read_text() for path in readers)

    def unread(section: type[msgspec.Struct], path: str) -> list[str]:
        found = []
        for field in msgspec.structs.fields(section):
            here = f"{path}{field.encode_name}"
            nested = [t for t in (field.type, *get_args(field.type)) if isinstance(t, type) and issubclass(t, Section)]
            if here not in NOT_FOLLOWED and nested:
                found += unread(nested[0], f"{here}.")
            elif here not in NOT_FOLLOWED and f".{field.name}" not in sources:
                found.append(here)
        return found

    # These are read by way of the properties of the Configuration.
    by_property = {"managedJobsNamespaceSelector", "featureGates"}
    by_property |= {"waitForPodsReady.recoveryTimeout", "fairSharing.preemptionStrategies"}
    by_property |= {"metrics.customLabels.sourceKind", "metrics.customLabels.sourceLabelKey"}
    assert set(unread(Configuration, "")) == by_property


def test_every_feature_gate_is_read_or_named_as_having_no_effect() -> None:
    """A stable gate is locked, so it need not be read."""
    code = "".join(path.read_text() for path in Path(kyu.__file__).parent.rglob("*.py") if path.parent.name != "config")
    options = {field.name for field in dataclasses.fields(Options)}
    read = {gate.name for gate in features.GATES if f'"{gate.name}"' in code or snake_case(gate.name) in options}
    locked = {gate.name for gate in features.GATES if gate.stage == features.STABLE}
    in_settings = {"CustomMetricLabels", "DisableWaitForPodsReady"}
    unread = {gate.name for gate in features.GATES} - read - locked - in_settings
    assert unread - set(GATES_NOT_FOLLOWED) == set()
