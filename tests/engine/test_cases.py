"""
The engine on cases that a Kubernetes user can read: manifests, then rounds of what happens and what is wanted.

A file is a story. Manifests are put in first; flavors, LocalQueues (named as their ClusterQueue) and the namespace
``default`` need not be written. A ``Round`` has what happens (``submit``, ``evicted``: pods of these are gone,
``finish``, ``delete``, ``put``: changed manifests) and what is ``want``ed of it. A round decides until there is nothing
more to decide. Wanted ``admitted`` and ``preempted`` must be all; of ``pending``, those that are named: a text is a
part of the message, a mapping is compared with the reason and its fields.

KYU_UPDATE_CASES=1 rewrites the wanted parts with what was decided.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kyu.api import codec
from kyu.api.config import file as config_file
from kyu.api.config.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Key
from kyu.api.quantity import parse
from kyu.engine import explain, options, reasons
from kyu.engine.decisions import Cycle
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from tests.support.builders import at, flavor, local_queue, namespace, workload
from tests.support.case_files import read_documents

CASES = Path(__file__).parent.parent / "cases"
AREAS = ("quota", "flavors", "preemption", "fairshare", "topology")
FILES = sorted(file for area in AREAS for file in (CASES / area).glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_case(path: Path) -> None:
    documents = read_documents(path)
    rounds = [document for document in documents if document["kind"] == "Round"]
    assert rounds, f"{path} has no rounds"
    state = set_up([document for document in documents if document["kind"] != "Round"])
    found = [play(state, number, one) for number, one in enumerate(rounds)]
    if os.environ.get("KYU_UPDATE_CASES"):
        rewrite(path, documents, found)
        return
    for number, (one, got) in enumerate(zip(rounds, found, strict=True)):
        compare(f"{path.stem}, round {number + 1}", one.get("want") or {}, got)


def set_up(manifests: list[dict[str, Any]]) -> State:
    configuration = Configuration()
    objects = []
    for manifest in manifests:
        if manifest["kind"] == "Configuration":
            configuration = config_file.load(manifest).configuration
        else:
            objects.append(codec.decode(manifest))
    state = State(options.from_configuration(configuration))
    state.put(namespace())
    named = {(type(obj).__name__, obj.metadata.name) for obj in objects}
    for obj in objects:
        groups = obj.spec.resource_groups if type(obj).__name__ in ("ClusterQueue", "Cohort") else ()
        for name in {f.name for group in groups for f in group.flavors}:
            if ("ResourceFlavor", name) not in named:
                state.put(flavor(name))
        if type(obj).__name__ == "ClusterQueue" and ("LocalQueue", obj.metadata.name) not in named:
            state.put(local_queue(obj.metadata.name))
        state.put(obj)
    return state


def play(state: State, number: int, one: dict[str, Any]) -> dict[str, Any]:
    seconds = int(str(one.get("at", "0s")).removesuffix("s"))
    for manifest in one.get("put") or []:
        state.put(codec.decode(manifest))
    for name in one.get("evicted") or []:
        state.release(Key("default", name))
    for name in (one.get("finish") or []) + (one.get("delete") or []):
        state.delete(Workload.KIND, Key("default", name))
    for name, fields in (one.get("submit") or {}).items():
        known = {"created": seconds, **fields}
        state.put(workload(name, **{word.replace("minCount", "min_count"): value for word, value in known.items()}))
    decided = schedule(state, at(seconds))
    state.check()
    return describe(state, decided)


def describe(state: State, decided: Cycle) -> dict[str, Any]:
    pending = {}
    for key, ask in sorted(state.pending.workloads.items()):
        pending[key.name] = explain.why_waiting(state, ask)
    return {
        "admitted": {a.key.name: described_flavors(a) for a in decided.admitted()},
        "preempted": {p.victim.name: p.reason for p in decided.preempted()},
        "pending": pending,
    }


def described_flavors(admit: Any) -> Any:
    """The flavor, if there is one for all; with the count if the workload shrank; with the domains if it was placed."""
    flavors = {name for pod_set in admit.pod_sets for name in pod_set.flavors.values()}
    text = "+".join(sorted(flavors))
    placed = [d for p in admit.pod_sets if p.placement for d in p.placement.domains]
    if placed:
        return f"{text}: " + ", ".join(f"{'/'.join(d.values)} x {d.count}" for d in placed)
    counts = sum(pod_set.count for pod_set in admit.pod_sets)
    return text if counts == 1 else f"{text} x {counts}"


def compare(where: str, want: dict[str, Any], got: dict[str, Any]) -> None:
    assert got["admitted"] == (want.get("admitted") or {}), f"{where}: admitted"
    assert got["preempted"] == (want.get("preempted") or {}), f"{where}: preempted"
    for name, wanted in (want.get("pending") or {}).items():
        assert name in got["pending"], f"{where}: {name} does not wait"
        reason = got["pending"][name]
        if isinstance(wanted, str):
            assert wanted in " ".join(reasons.render(reason)), f"{where}: {name}: {reasons.render(reason)}"
        else:
            assert any(matches(wanted, part) for part in parts(reason)), f"{where}: {name}: {reason}"


def parts(reason: Any) -> list[Any]:
    """The reason, and what it says about each flavor."""
    return [reason, *(r for pod_set in getattr(reason, "pod_sets", ()) for r in pod_set.reasons)]


def matches(wanted: dict[str, Any], reason: Any) -> bool:
    # Most reasons are dataclasses; one that is made very often is a tuple with names.
    names = getattr(reason, "_fields", None) or [field.name for field in dataclasses.fields(reason)]
    fields = {"reason": type(reason).__name__, **{name: getattr(reason, name) for name in names}}
    unit = 10**6 if fields.get("resource") == "cpu" else 10**9
    return all(
        fields.get(word) == value or (isinstance(fields.get(word), int) and parse(value).nanos == fields[word] * unit)
        for word, value in wanted.items()
    )


def rewrite(path: Path, documents: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    results = iter(found)
    for document in documents:
        if document["kind"] == "Round":
            got = next(results)
            got["pending"] = {name: reasons.render(reason)[0] for name, reason in got["pending"].items()}
            document["want"] = {word: value for word, value in got.items() if value}
    comment = "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith("#"))
    path.write_text(comment + yaml.safe_dump_all(documents, sort_keys=False))


def test_cases_exist_for_every_area() -> None:
    assert {path.parent.name for path in FILES} == set(AREAS)
