"""
The explanation of one pending workload of `kyu decide`: why it waits, and the smallest changes that would admit it.

Called by: cli/admin/decide.py. Calls: engine/explain.py, engine/what_if/counterfactuals.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from kyu.api import documents
from kyu.api.meta import Object
from kyu.api.workloads import Workload
from kyu.cli.batch import why
from kyu.cli.main import BadInput
from kyu.engine import explain, reasons
from kyu.engine.state import State
from kyu.engine.what_if.counterfactuals import WhatIf
from kyu.engine.what_if.trial import StateTrial


def explain_one(state: State, objects: Sequence[Object], name: str, now: datetime, form: str) -> str:
    """Return the explanation of a job or Workload, named with or without its namespace."""
    workload = find_workload(objects, name)
    before = explain.why(state, workload.key, now)
    with StateTrial(state, now.timestamp()) as decided:
        decided.run()
        found = explain.why(state, workload.key, now) or before
    if found is None:
        raise BadInput(f"--why: {workload.key} holds quota or has ended: it does not wait")
    prospects = WhatIf(state, objects, now.timestamp()).find(workload.key)
    word, message = reasons.render(found.reason)
    if form == "table":
        lines = [f"{workload.key} waits: {word}", f"  {message}", f"  {found.hint}"]
        return "\n".join([*lines, *why.describe_prospects(prospects, {})])
    body = {
        "workload": str(workload.key),
        "reason": word,
        "message": message,
        "hint": found.hint,
        "path": list(found.path),
        "position": found.position,
        "shortages": [why.shortage_json(shortage, {}) for shortage in found.shortages],
        **why.prospects_json(prospects, {}),
    }
    return documents.render([body]).rstrip() if form == "yaml" else json.dumps(body, indent=2)


def find_workload(objects: Sequence[Object], name: str) -> Workload:
    """Return the Workload of a job, or raise BadInput."""
    found = [obj for obj in objects if isinstance(obj, Workload) and name in names_of(obj)]
    if len(found) == 1:
        return found[0]
    problem = "several Workloads have this name; add the namespace" if found else "there is no such job or Workload"
    raise BadInput(f"--why {name}: {problem}")


def names_of(workload: Workload) -> set[str]:
    """Return the names by which a Workload is found: its own, and that of its job."""
    names = {workload.metadata.name, *(owner.name for owner in workload.metadata.owner_references)}
    return names | {f"{workload.metadata.namespace}/{name}" for name in names}
