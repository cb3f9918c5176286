"""The drawings of `kyu workflow graph`."""

from __future__ import annotations

from xml.etree import ElementTree

from kyu.api import codec
from kyu.api.meta import Json
from kyu.api.workflows import Workflow, WorkflowStep
from kyu.cli.workflows import drawing

SVG = "{http://www.w3.org/2000/svg}"


def steps(*listed: Json) -> tuple[WorkflowStep, ...]:
    return codec.decode_as(Workflow, {"metadata": {"name": "dag"}, "spec": {"steps": list(listed)}}).spec.steps


DIAMOND = steps(
    {"name": "prepare"},
    {"name": "left", "after": ["prepare"]},
    {"name": "right", "after": ["prepare"]},
    {"name": "join", "after": ["left", "right"]},
    {"name": "last", "after": ["join"]},
)
STATUS: Json = {
    "state": "Running",
    "progress": "2/6",
    "steps": [
        {"name": "prepare", "state": "Succeeded", "output": "<b> & more"},
        {"name": "left[0]", "state": "Succeeded"},
        {"name": "left[1]", "state": "Running"},
        {"name": "right", "state": "Queued", "attempt": 2, "message": "no quota"},
        {"name": "join", "state": "Waiting", "message": "waits for left, right"},
    ],
}


def test_a_tree_names_all_steps_that_one_waits_for() -> None:
    assert list(drawing.tree_lines(DIAMOND, STATUS)) == [
        "✓ prepare  succeeded: <b> & more",
        "├─ ● left  1 running, 1 succeeded",
        "│  ○ join  waiting: waits for left, right  (after left, right)",
        "│  ○ last  waiting",
        "└─ ◔ right  queued, attempt 2: no quota",
    ]


def test_a_picture_has_a_box_for_each_step_and_a_line_for_each_dependency() -> None:
    picture = ElementTree.fromstring(drawing.svg("dag", DIAMOND, STATUS))
    assert len(picture.findall(f"{SVG}g")) == 5
    assert len(picture.findall(f"{SVG}path")) == 5
    assert picture.findtext(f"{SVG}title") == "dag: Running, 2/6"
    assert picture.findtext(f"{SVG}g/{SVG}title") == "prepare: succeeded: <b> & more"


def test_a_chain_of_a_thousand_steps_is_drawn() -> None:
    chain = steps({"name": "s0"}, *({"name": f"s{n}", "after": [f"s{n - 1}"]} for n in range(1, 1000)))
    lines = list(drawing.tree_lines(chain, {}))
    assert lines[0] == "○ s0  waiting"
    assert lines[-1] == "○ s999  waiting"
    assert len(lines) == 1000
    assert len(ElementTree.fromstring(drawing.svg("dag", chain, {})).findall(f"{SVG}g")) == 1000
