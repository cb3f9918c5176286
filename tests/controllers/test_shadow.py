"""`kyu controller --shadow`: it follows, compares, reports, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.controllers.shadow import ReadOnly
from kyu.kube import errors, http, kubeconfig
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from tests.support.builders import codec_json, holding, workload
from tests.support.controller_process import controller, fetch
from tests.support.local_kyu import LocalKyu, local_kyu


def pending(name: str, cpu: int) -> Json:
    made = codec_json(workload(name, queue="team", cpu=cpu))
    return {"metadata": {"name": name, "namespace": "default"}, "spec": made["spec"]}


def admit(running: LocalKyu, name: str, cpu: int) -> None:
    """Reserve quota as another scheduler does."""
    status = codec_json(holding(workload(name, queue="team", cpu=cpu), "team", {"cpu": "team"}))["status"]
    for condition in status["conditions"]:
        condition["message"] = "as another scheduler decided"
    running.client.patch(Workload.KIND, Key("default", name), {"status": status}, subresource="status")


def test_a_shadow_reports_the_decisions_of_another_scheduler(tmp_path: Path) -> None:
    with local_kyu(tmp_path / "data", "--server-only") as running, controller(running, "--shadow") as shadow:
        running.make_queue("team", "4")
        running.wait("it follows", lambda: fetch(f"{shadow.health}/readyz") == (200, "ok"))
        for name, cpu in (("fits", 3), ("too-large", 9)):
            running.client.create(Workload.KIND, pending(name, cpu))
            admit(running, name, cpu)
        token = kubeconfig.load(running.data / "kubeconfig").token

        def report() -> dict[str, Any] | None:
            found = json.loads(fetch(f"{shadow.secure}/shadow", token)[1])
            return found if found["same"] and found["otherwise"] else None

        found = running.wait("both decisions are compared", report)
        assert (found["same"], found["otherwise"]) == ({"admission": 1}, {"WouldWait": 1})
        shown = running.kyu("shadow", "report", "--server", shadow.secure).stdout
        assert "1 decisions were the same, 1 were not" in shown
        assert "WouldWait: default/too-large in team" in shown
        assert "maximum capacity (4)" in shown
        sample = 'kyu_shadow_disagreements_total{type="WouldWait"} 1.0'
        assert sample in fetch(shadow.metrics, token)[1]
        (tmp_path / "ann").write_text(running.kyu("user", "add", "ann", "--namespace", "default").stdout)
        assert fetch(f"{shadow.secure}/shadow", kubeconfig.load(tmp_path / "ann").token)[0] == 403
        elsewhere = running.kyu("shadow", "report", "--server", "https://example.com", check=False)
        assert "kubectl port-forward" in elsewhere.stderr


async def test_a_shadow_cannot_write() -> None:
    """Each verb that writes is refused before a connection is made: nothing listens there."""
    client = Client(ReadOnly(await http.connect(Credentials(server="http://127.0.0.1:1"))))
    body = {"metadata": {"name": "one", "namespace": "default"}}
    kind, key = Workload.KIND, Key("default", "one")
    for write in (
        lambda: client.create(kind, body),
        lambda: client.add(kind, body),
        lambda: client.update(kind, body),
        lambda: client.patch(kind, key, {}),
        lambda: client.merge(kind, key, {}),
        lambda: client.apply(kind, body),
        lambda: client.delete(kind, key),
    ):
        with pytest.raises(errors.Forbidden, match="a shadow only reads"):
            await write()
    with pytest.raises(errors.NoAnswer):
        await client.get(kind, key)
