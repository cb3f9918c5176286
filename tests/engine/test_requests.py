"""What a pod requests: init containers, sidecars, overhead, LimitRanges, exclusions and transformations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kyu.api.core import LimitRange, PodSpec
from kyu.api.quantity import parse
from kyu.engine import requests
from kyu.engine.requests import Transformation


def pod(**spec: Any) -> requests.PodParts:
    return requests.complete(msgspec.convert(spec, PodSpec), {}, {})


def container(cpu: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields}


def cpu(found: requests.PodParts) -> int:
    return requests.amounts(requests.raw_requests(found))["cpu"]


def test_init_containers_count_only_where_they_need_more() -> None:
    assert cpu(pod(containers=[container(1), container(2)], initContainers=[container(2)])) == 3000
    assert cpu(pod(containers=[container(1)], initContainers=[container(5), container(2)])) == 5000


def test_sidecars_run_beside_everything_after_them() -> None:
    sidecar = container(1, restartPolicy="Always")
    assert cpu(pod(containers=[container(2)], initContainers=[sidecar])) == 3000
    assert cpu(pod(containers=[container(1)], initContainers=[container(4), sidecar])) == 4000
    assert cpu(pod(containers=[container(1)], initContainers=[sidecar, container(4)])) == 5000


def test_pod_level_requests_replace_and_overhead_is_added() -> None:
    found = pod(containers=[container(1)], resources={"requests": {"cpu": 3}}, overhead={"cpu": "250m"})
    assert cpu(found) == 3250


def test_a_limit_stands_in_for_a_missing_request() -> None:
    found = pod(containers=[{"name": "c", "resources": {"limits": {"cpu": 2}}}])
    assert cpu(found) == 2000


def test_limit_range_defaults_fill_what_is_missing_and_bounds_are_checked() -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": 2}, "max": {"cpu": 3}}
    limits = requests.fold_limit_ranges([msgspec.convert({"spec": {"limits": [item]}}, LimitRange)])
    spec = msgspec.convert({"containers": [{"name": "c"}]}, PodSpec)
    assert cpu(requests.complete(spec, limits, {})) == 2000
    greedy = requests.complete(msgspec.convert({"containers": [container(4)]}, PodSpec), limits, {})
    (violation,) = requests.find_violations([greedy], limits)
    assert violation == requests.Violation("spec.podSets[0].template.spec.containers[0]", ("cpu",), "max")


def test_of_several_limit_ranges_the_narrowest_bounds_count_and_the_first_default() -> None:
    def limit_range(low: int, high: int, default: int) -> LimitRange:
        item = {"type": "Container", "min": {"cpu": low}, "max": {"cpu": high}, "defaultRequest": {"cpu": default}}
        return msgspec.convert({"spec": {"limits": [item]}}, LimitRange)

    limits = requests.fold_limit_ranges([limit_range(1, 9, 3), limit_range(2, 4, 5)])
    for cores, rules in ((1, ["min"]), (2, []), (4, []), (5, ["max"])):
        asks = requests.complete(msgspec.convert({"containers": [container(cores)]}, PodSpec), limits, {})
        assert [violation.rule for violation in requests.find_violations([asks], limits)] == rules
    silent = msgspec.convert({"containers": [{"name": "c"}]}, PodSpec)
    assert cpu(requests.complete(silent, limits, {})) == 3000


def test_a_request_above_its_own_limit_is_found() -> None:
    resources = {"requests": {"cpu": 2}, "limits": {"cpu": 1}}
    greedy = pod(containers=[{"name": "c", "resources": resources}])
    (violation,) = requests.find_violations([pod(containers=[container(1)]), greedy], {})
    assert violation == requests.Violation("spec.podSets[1].template.spec.containers[0]", ("cpu",), "limit")


def test_excluded_prefixes_are_dropped() -> None:
    raw = requests.nanos({"cpu": 1, "networking.example.com/vpc": 1})
    assert requests.quota_requests(raw, ("networking.",), {}).keys() == {"cpu"}


def outputs(**amounts: Any) -> dict[str, Any]:
    return {name: parse(value) for name, value in amounts.items()}


@pytest.mark.parametrize(("strategy", "keeps"), [("Retain", True), ("Replace", False)])
def test_transformations_keep_or_replace_their_input(strategy: Any, keeps: bool) -> None:
    rule = Transformation(strategy, outputs=outputs(credits="2"))
    found = requests.amounts(requests.quota_requests(requests.nanos({"gpu": 3}), (), {"gpu": rule}))
    assert found == ({"gpu": 3, "credits": 6} if keeps else {"credits": 6})


def test_multiply_by_another_resource_and_sum_over_inputs() -> None:
    rules = {
        "memory": Transformation("Replace", multiply_by="gpu", outputs=outputs(credits="1")),
        "cpu": Transformation("Replace", outputs=outputs(credits="10")),
    }
    raw = requests.nanos({"memory": 4, "gpu": 2, "cpu": "500m"})
    assert requests.amounts(requests.quota_requests(raw, (), rules)) == {"gpu": 2, "credits": 13}


def test_an_allowance_cancels_other_outputs_but_never_a_direct_request() -> None:
    rules = {
        "a": Transformation("Replace", outputs=outputs(credits="-5")),
        "b": Transformation("Replace", outputs=outputs(credits="3")),
    }
    raw = requests.nanos({"a": 1, "b": 1, "credits": 7})
    assert requests.amounts(requests.quota_requests(raw, (), rules)) == {"credits": 7}
