"""
The rules of the engine, a case each, one cycle at a time: ``tests/cases/engine/*.yaml``.

A file is a list of cases. ``queues``, ``cohorts``, ``flavors``, ``topologies``, ``nodes`` and ``checks`` are by name,
in short form; flavors and LocalQueues (named as their queue) that are not written are made. ``holding`` are workloads
that have quota, on one flavor; ``waiting`` those that want some; ``objects`` is what has no short form. Each entry of
``cycles`` may first ``release`` (an evicted workload has stopped), ``delete``, ``submit`` or ``put``; then one cycle
runs. What it ``admitted``, ``placed`` (in a second pass), ``preempted`` and ``evicted`` must be all; ``left`` in the
line, ``parked`` and ``reasons`` are compared where they are written. A reason is a part of its word and message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kyu.api import codec
from kyu.api.config import file
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Object
from kyu.engine import explain, options, reasons
from kyu.engine.decisions import Admit, Cycle
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.engine.workloads import AssignedPodSet
from tests.support.builders import (
    API,
    at,
    cluster_queue,
    codec_json,
    cohort,
    condition,
    local_queue,
    namespace,
    stamp,
    workload,
)

CASES = Path(__file__).parent.parent / "cases" / "engine"
CONFIGURATION = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


def read_cases() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.yaml")):
        for case in yaml.load(path.read_text(), yaml.CSafeLoader):
            yield pytest.param(case, id=f"{path.stem}: {case['rule']}")


@pytest.mark.parametrize("case", list(read_cases()))
def test_rule(case: Json) -> None:
    state = set_up(case)
    for number, step in enumerate(case["cycles"]):
        happens(state, step, number)
        decided = schedule(state, at(1000 + 60 * number), cycles=1)
        state.check()
        got = describe(state, decided)
        for word in ("admitted", "placed", "preempted", "evicted"):
            assert got[word] == step.get(word, {}), f"cycle {number + 1}: {word}"
        for word in ("left", "parked"):
            assert step.get(word, got[word]) == got[word], f"cycle {number + 1}: {word}"
        for name, wanted in step.get("reasons", {}).items():
            assert wanted in got["reasons"].get(name, "it does not wait"), f"cycle {number + 1}: {name}"


def set_up(case: Json) -> State:
    configuration = file.load({**CONFIGURATION, **case.get("config", {})}).configuration
    state = State(options.from_configuration(configuration))
    for obj in objects_of(case):
        state.put(obj)
    return state


def objects_of(case: Json) -> Iterator[Object]:
    """Workloads last, as ``kyu decide`` and a server that starts read them."""
    yield namespace()
    raw = [codec.decode(obj) for obj in case.get("objects", [])]
    yield from (obj for obj in raw if not isinstance(obj, Workload))
    for name, levels in case.get("topologies", {}).items():
        yield decode("Topology", name, spec={"levels": [{"nodeLabel": level} for level in levels]})
    for name, fields in case.get("nodes", {}).items():
        yield node(name, **fields)
    for name, controller in case.get("checks", {}).items():
        yield decode(
            "AdmissionCheck", name, spec={"controllerName": controller}, status={"conditions": [condition("Active", 0)]}
        )

    def without_quota(fields: Json) -> Json:
        return {word: value for word, value in fields.items() if word != "quota"}

    written = {"flavors": {}, "cohorts": {}, "queues": {}, **case}
    named = {name for queue in written["queues"].values() for name in queue["quota"]}
    for name in sorted(named | set(written["flavors"])):
        yield decode("ResourceFlavor", name, spec=written["flavors"].get(name, {}))
    for name, fields in written["cohorts"].items():
        yield cohort(name, **{"quotas": fields.get("quota"), **without_quota(fields)})
    for name, fields in written["queues"].items():
        yield cluster_queue(name, fields["quota"], **without_quota(fields))
        yield local_queue(name)
    yield from (obj for obj in raw if isinstance(obj, Workload))
    for number, (name, fields) in enumerate(case.get("holding", {}).items()):
        yield holder(name, **{"created": number, **fields})
    for number, (name, fields) in enumerate(case.get("waiting", {}).items()):
        yield pending(name, **{"created": 100 + number, **fields})


def decode(kind: str, name: str, **parts: Json) -> Object:
    return codec.decode({"apiVersion": API, "kind": kind, "metadata": {"name": name}, **parts})


def node(name: str, *, labels: Json | None = None, ready: bool = True, **allocatable: Any) -> Object:
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "allocatable": {"pods": 110, **allocatable},
            "conditions": [condition("Ready", 0, "True" if ready else "False")],
        },
    }
    return codec.decode({"apiVersion": "v1", "kind": "Node", **body})


def pending(
    name: str, *, created: float, topology: Json | None = None, status: Json | None = None, **fields: Any
) -> Any:
    made = workload(name, **{"created": created, "status": status, **fields})
    if topology is None:
        return made
    body = codec_json(made)
    body["spec"]["podSets"][0]["topologyRequest"] = topology
    return codec.decode(body)


def holder(
    name: str,
    *,
    created: float,
    flavor: str,
    cluster_queue: str = "",
    hosts: Json | None = None,
    failed: str = "",
    reserved: float | None = None,
    delayed: bool = False,
    admitted: bool = True,
    evicted: bool = False,
    ready: tuple[str, ...] = (),
    **fields: Any,
) -> Any:
    """A workload that has quota on the flavor, and room on ``hosts``; its host ``failed``."""
    body = codec_json(pending(name, created=created, **fields))
    (pod_set,) = body["spec"]["podSets"]
    requests = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
    count = pod_set.get("count", 1)
    assignment = {
        "name": "main",
        "count": count,
        "flavors": dict.fromkeys(requests, flavor),
        "resourceUsage": {resource: f"{float(value) * count:g}" for resource, value in requests.items()},
    }
    if hosts is not None:
        slices = [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": host}],
                "podCounts": {"universal": pods},
            }
            for host, pods in hosts.items()
        ]
        assignment["topologyAssignment"] = {"levels": ["kubernetes.io/hostname"], "slices": slices}
    if delayed:
        assignment["delayedTopologyRequest"] = "Pending"
    since = created if reserved is None else reserved
    true = {"QuotaReserved": True, "Admitted": admitted, "Evicted": evicted}
    body["status"] = {
        **body.get("status", {}),
        "conditions": [condition(word, since) for word, is_so in true.items() if is_so],
        "admission": {
            "clusterQueue": cluster_queue or fields.get("queue", "main"),
            "podSetAssignments": [assignment],
        },
        "admissionChecks": [
            {"name": check, "state": "Ready", "message": "", "lastTransitionTime": stamp(0)} for check in ready
        ],
        "unhealthyNodes": [{"name": failed}] if failed else [],
    }
    return codec.decode(body)


def happens(state: State, step: Json, number: int) -> None:
    for name in step.get("release", []):
        state.release(Key("default", name))
    for name in step.get("delete", []):
        state.delete(Workload.KIND, Key("default", name))
    for obj in step.get("put", []):
        state.put(codec.decode(obj))
    for name, fields in step.get("submit", {}).items():
        state.put(pending(name, **{"created": 1000 + 60 * number, **fields}))


def describe(state: State, decided: Cycle) -> Json:
    lines = [queue.pending for _, queue in sorted(state.queues.items())]
    return {
        "admitted": {a.key.name: admission(a) for a in decided.admitted() if not a.second_pass},
        "placed": {a.key.name: admission(a) for a in decided.admitted() if a.second_pass},
        "preempted": {p.victim.name: p.reason for p in decided.preempted()},
        "evicted": {e.key.name: e.reason for e in decided.evicted()},
        "left": [ask.key.name for line in lines for ask in line.left()],
        "parked": [ask.key.name for line in lines for ask in line.inadmissible()],
        "reasons": {
            key.name: ": ".join(reasons.render(explain.why_waiting(state, ask)))
            for key, ask in state.pending.workloads.items()
        },
    }


def admission(admit: Admit) -> str:
    """``f`` or, of several pods, ``f x 3``, and where they go: ``f x 3 on n1 x 1, n2 x 2``; all pod sets."""
    if len(admit.pod_sets) == 1:
        return assigned(admit.pod_sets[0])
    return "; ".join(f"{pod_set.name}: {assigned(pod_set)}" for pod_set in admit.pod_sets)


def assigned(pod_set: AssignedPodSet) -> str:
    text = "+".join(sorted(set(pod_set.flavors.values()))) or "none"
    text += f" x {pod_set.count}" if pod_set.count != 1 else ""
    if pod_set.placement is None:
        return text
    domains = (f"{'/'.join(d.values)} x {d.count}" for d in pod_set.placement.domains)
    return f"{text} on {', '.join(domains)}"
