"""Built-in kinds refuse what contradicts itself, with the fields that Kubernetes blames."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.builtin_cron import BadSchedule, check_schedule
from kyu.server.builtin_data import load
from kyu.server.builtin_limits import validate_disruption_budget, validate_limit_range
from kyu.server.exchange import Response
from kyu.server.strategic import strategic_patch
from tests.servers import ask, serving

JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}


@pytest.mark.parametrize(
    "text", ["* * * * *", "*/5 1-3,7 1 JAN ?", "0 0 * * sun-tue", "@hourly", "@every 1h30m", "5/2 * * * *"]
)
def test_schedules_have_five_fields_or_a_word(text: str) -> None:
    check_schedule(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "exactly 5 fields"),
        ("60 * * * *", "above maximum"),
        ("* * 0 * *", "below minimum"),
        ("5-1 * * * *", "beyond end"),
        ("*/0 * * * *", "positive"),
        ("a * * * *", "failed to parse int"),
        ("1/2/3 * * * *", "too many slashes"),
        ("1-2-3 * * * *", "too many hyphens"),
        ("@often", "unrecognized descriptor"),
        ("@every often", "duration"),
        ("TZ=Moon/Base * * * * *", "bad location"),
    ],
)
def test_texts_that_are_no_schedules(text: str, reason: str) -> None:
    with pytest.raises(BadSchedule, match=reason):
        check_schedule(text)


@pytest.mark.parametrize(
    ("item", "blamed"),
    [
        ({"type": "Container", "min": {"cpu": "500m"}, "max": {"cpu": "1"}}, []),
        ({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}, ["min[cpu]"]),
        ({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}, ["defaultRequest[cpu]"]),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}, ["maxLimitRequestRatio[cpu]"]),
        ({"type": "Pod", "default": {"cpu": "1"}}, ["default"]),
        ({"type": "PersistentVolumeClaim"}, [""]),
    ],
)
def test_bounds_of_a_limit_range_do_not_contradict_each_other(item: Json, blamed: list[str]) -> None:
    found = validate_limit_range({"spec": {"limits": [item]}})
    assert [error.field for error in found] == [f"spec.limits[0].{name}".rstrip(".") for name in blamed]


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"minAvailable": "50%"}, []),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec"]),
        ({"minAvailable": -1}, ["spec.minAvailable"]),
        ({"maxUnavailable": "101%"}, ["spec.maxUnavailable"]),
        ({"maxUnavailable": "10"}, ["spec.maxUnavailable"]),
    ],
)
def test_a_disruption_budget_has_one_bound_that_makes_sense(spec: Json, blamed: list[str]) -> None:
    assert [error.field for error in validate_disruption_budget({"spec": spec})] == blamed


def test_a_merged_list_holds_one_sort_of_values() -> None:
    schema = load("", "v1").schema("", "v1", "ConfigMap")
    with pytest.raises(errors.ApiError, match="not identical"):
        strategic_patch(schema, {"metadata": {"finalizers": ["x.io/a"]}}, {"metadata": {"finalizers": [{"a": "b"}]}})


async def test_who_scales_owns_the_number(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):

        async def send(path: str, body: Json, content_type: str) -> Response:
            return await ask(api, "PATCH", DEPLOYMENTS + path, msgspec.json.encode(body), content_type=content_type)

        assert (await send("/d?fieldManager=one", DEPLOYMENT, APPLY)).status == 201
        assert (await send("/d/scale?fieldManager=hpa", {"spec": {"replicas": 5}}, MERGE)).status == 200
        refused = await send("/d?fieldManager=one", DEPLOYMENT, APPLY)
        assert refused.status == 409
        assert isinstance(refused.body, bytes)
        message = msgspec.json.decode(refused.body)["message"]
        assert 'conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas' in message
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2}}
        assert (await send("/d/scale?fieldManager=one&force=true", scale, APPLY)).status == 200
        assert (await send("/d?fieldManager=one", DEPLOYMENT, APPLY)).status == 200
