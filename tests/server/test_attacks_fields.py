"""Strange values in the fields of all kinds: no answer and no controller fails."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kyu import app
from kyu.api.kueue import FairSharing
from kyu.api.meta import Json
from kyu.engine.tree import weight_of
from kyu.server.exchange import Response
from tests.attack import fields, seeds
from tests.attack.answers import is_fault
from tests.support.answers import APPLY, send
from tests.support.servers import ask, serving

RAY = "/apis/ray.io/v1/namespaces/eve/rayclusters"
TRAINING = "/apis/kubeflow.org/v1/namespaces/eve/pytorchjobs"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CASES = 40


async def test_strange_values_in_all_kinds_cause_no_fault(tmp_path: Path) -> None:
    findings = await fields.run(tmp_path, seconds=60, seed=5, most=CASES)
    assert findings.all() == []
    assert findings.requests > CASES


async def test_kinds_with_open_schemas_are_listed_and_checked(tmp_path: Path) -> None:
    worker: Json = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    job = {"metadata": {"name": "a"}, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    head: Json = {"spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": ["x"]}}
    cluster = {
        "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": head}, "workerGroupSpecs": []},
    }
    async with app.embedded(app.Settings(tmp_path / "data", trust_users=True)) as running:
        await seeds.prepare(running.api)
        typed = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **job}
        made, _ = await send(running.api, f"POST {TRAINING}", typed)
        assert made.status == 201
        listed = await ask(running.api, "GET", TRAINING, accept=TABLE)
        assert listed.status == 200
        typed = {"apiVersion": "ray.io/v1", "kind": "RayCluster", **cluster}
        refused, status = await send(running.api, f"POST {RAY}", typed)
        assert (refused.status, "tolerations" in status["message"]) == (422, True)


async def test_an_apply_to_a_list_without_keys_is_a_bad_request(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    async with serving(tmp_path) as (api, _):
        assert (await send(api, f"POST {path}", {**account, "secrets": [{"uid": "x"}]}))[0].status == 201
        response, status = await send(api, f"PATCH {path}/a?fieldManager=x", account, kind=APPLY)
        assert response.status == 400
        assert "omits all key fields" in status["message"]


async def test_a_weight_that_no_number_holds_is_refused_and_a_long_one_is_cut(tmp_path: Path) -> None:
    path = "/apis/kueue.x-k8s.io/v1beta2/cohorts"
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "a"}}
    async with serving(tmp_path) as (api, _):
        refused, status = await send(api, f"POST {path}", {**cohort, "spec": {"fairSharing": {"weight": "1e99999"}}})
        assert (refused.status, "exponent is too large" in status["message"]) == (403, True)
    assert weight_of(FairSharing(weight="9" * 400)) == 2.0**63


@pytest.mark.parametrize(
    ("method", "code", "message", "is_one"),
    [
        ("GET", 500, "Internal error occurred: KeyError('a')", True),
        ("PATCH", 500, "failed to create typed patch object (a; v1, Kind=Pod): .spec.x: field not declared", False),
        ("POST", 500, "failed to create typed patch object (a; v1, Kind=Pod): .spec.x: field not declared", True),
        ("POST", 503, "the change could not be stored", False),
        ("POST", 422, "invalid", False),
    ],
)
def test_only_answers_of_kubernetes_are_no_faults(method: str, code: int, message: str, is_one: bool) -> None:
    body = msgspec.json.encode({"message": message})
    assert is_fault(method, Response(code, body).status, body.decode()) is is_one
