"""Workflows without a server: their rules, the names of their objects, their graphs and values."""

from __future__ import annotations

import pytest

from kyu.api import codec, documents
from kyu.api.meta import Json
from kyu.api.workflows import MAX_ENTRIES, Workflow
from kyu.kinds import metadata
from kyu.plans.workflows import graph, objects, validate
from kyu.plans.workflows.values import NoValue, Values
from tests.support.memory_view import MemoryView

POD = {"containers": [{"name": "main", "image": "busybox"}]}


def workflow(steps: str, **spec: object) -> Workflow:
    listed = documents.parse(steps)[0].value
    body = {
        "metadata": {"name": "dag", "namespace": "team", "uid": "u-1"},
        "spec": {"queue": "q", **spec, "steps": listed},
    }
    return codec.decode_as(Workflow, body)


def errors(steps: str, **spec: object) -> list[str]:
    return [str(one) for one in validate.find_errors(workflow(steps, **spec))]


WRONG = {
    "unknown step": (
        "[{name: prepare, command: [a]}, {name: b, after: [prepar], command: [b]}]",
        'spec.steps[1].after[0]: Not found: "prepar": there is no step of this name; did you mean prepare?',
    ),
    "circle": (
        "[{name: a, after: [c], command: [x]}, {name: b, after: [a], command: [x]},"
        " {name: c, after: [b], command: [x]}]",
        "the steps wait for each other in a circle: a → b → c → a; remove one of them from an after",
    ),
    "itself": ("[{name: a, after: [a], command: [x]}]", "in a circle: a → a"),
    "two of one name": (
        "[{name: a, command: [x]}, {name: a, command: [x]}]",
        'spec.steps[1].name: Duplicate value: "a"',
    ),
    "nothing to run": ("[{name: a}]", "spec.steps[0]: Invalid value: \"a\": a step has either a command or a template"),
    "a kind that never ends": (
        "[{name: a, template: {apiVersion: apps/v1, kind: Deployment, spec: {}}}]",
        'spec.steps[0].template.kind: Unsupported value: "Deployment": supported values: "Job"',
    ),
    "a kind that makes others": (
        "[{name: a, template: {apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, spec: {}}}]",
        "spec.steps[0].template.kind: Unsupported value",
    ),
    "an older version": (
        "[{name: a, template: {apiVersion: flux-framework.org/v1alpha1, kind: MiniCluster, spec: {}}}]",
        'supported values: "flux-framework.org/v1alpha2"',
    ),
    "a node": (
        "[{name: a, template: {apiVersion: batch/v1, kind: Job,"
        " spec: {template: {spec: {nodeName: n1, containers: []}}}}}]",
        "spec.steps[0].template.spec: Forbidden: remove nodeName n1: the queue decides where pods run",
    ),
    "an owner": (
        "[{name: a, template: {apiVersion: batch/v1, kind: Job, metadata: {ownerReferences: []}, spec: {}}}]",
        "spec.steps[0].template.metadata.ownerReferences: Forbidden",
    ),
    "the quota of others": (
        "[{name: a, template: {apiVersion: batch/v1, kind: Job,"
        " metadata: {labels: {kueue.x-k8s.io/prebuilt-workload-name: w}}, spec: {}}}]",
        "prebuilt-workload-name]: Forbidden: is not for steps",
    ),
    "a value of a later step": (
        "[{name: a, command: [x, $(steps.b.output)]}, {name: b, command: [x]}]",
        'spec.steps[0].command: Invalid value: "b": add b to after, so that it is over before',
    ),
    "a value of no step": ("[{name: a, command: [x, $(steps.b.output)]}]", "there is no step of this name"),
    "a value that is none": ("[{name: a, command: [x, $(steps.b.result)]}]", "is not known; write $(item)"),
    "an item without a list": ("[{name: a, command: [x, $(item)]}]", "add forEach to the step, or write $$("),
    "a list from a later step": (
        "[{name: a, forEach: {itemsFrom: b}, command: [x]}, {name: b, command: [x]}]",
        "spec.steps[0].forEach.itemsFrom: Invalid value",
    ),
    "no list": ("[{name: a, forEach: {width: 1}, command: [x]}]", "needs either items or itemsFrom"),
    "nothing to look at": ("[{name: a, runIf: AnyFailed, command: [x]}]", "runIf AnyFailed needs steps to look at"),
    "pods of a kind that counts itself": (
        "[{name: a, count: 2, template: {apiVersion: batch/v1, kind: Job, spec: {}}}]",
        "spec.steps[0].count: Forbidden",
    ),
    "a program of a template": (
        "[{name: a, cpu: 1, template: {apiVersion: batch/v1, kind: Job, spec: {}}}]",
        "spec.steps[0]: Forbidden: image, cpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_the_field_and_the_remedy(case: str) -> None:
    steps, wanted = WRONG[case]
    found = errors(steps)
    assert any(wanted in one for one in found), found


def test_steps_never_run_outside_a_queue() -> None:
    assert errors("[{name: a, command: [x]}]", queue="") == [
        "spec.steps[0].queue: Required value: name a LocalQueue here or in spec.queue; steps never run outside a queue"
    ]
    own = "{apiVersion: batch/v1, kind: Job, metadata: {labels: {kueue.x-k8s.io/queue-name: mine}}, spec: {}}"
    assert errors(f"[{{name: a, template: {own}}}]", queue="") == []
    assert "differs from queue other" in errors(f"[{{name: a, queue: other, template: {own}}}]")[0]


def test_commands_on_a_cluster_need_an_image() -> None:
    steps = workflow("[{name: a, command: [x]}]")
    assert [one.field for one in validate.find_errors(steps, needs_image=True)] == ["spec.steps[0].image"]


def test_items_of_all_lists_are_bounded() -> None:
    steps = ", ".join(
        f"{{name: s{number}, command: [x], forEach: {{items: [{', '.join(['a'] * 1000)}]}}}}" for number in range(3)
    )
    assert errors(f"[{steps}]") == [f"spec.steps: Too many: 3000: must have at most {MAX_ENTRIES} items"]


def test_steps_cannot_change_while_the_workflow_runs() -> None:
    old: Json = {"spec": {"steps": [{"name": "a"}]}, "status": {"state": "Running"}}
    new = {"spec": {"steps": [{"name": "b"}]}}
    assert [one.field for one in validate.change_errors(new, old)] == ["spec.steps"]
    assert validate.change_errors({"spec": {**old["spec"], "suspend": True}}, old) == []
    assert validate.change_errors(new, {**old, "status": {"state": "Failed"}}) == []


def test_names_differ_for_each_attempt_and_workflow_and_stay_short() -> None:
    names = {
        objects.object_name(workflow, uid, entry, attempt)
        for workflow in ("w", "w" * 200, "a.b")
        for uid in ("u-1", "u-2")
        for entry in ("s", "s[0]", "s[1]", "s" * 40)
        for attempt in (1, 2)
    }
    assert len(names) == 3 * 2 * 4 * 2
    # Pods of an MPIJob and jobs of a JobSet append to the name of their owner.
    assert all(len(name) <= 45 and name.replace("-", "").isalnum() for name in names)


def test_a_graph_of_a_thousand_steps_is_read_in_order() -> None:
    chain = ", ".join(f"{{name: s{n}, after: [s{n - 1}], command: [x, $(steps.s0.output)]}}" for n in range(1, 1000))
    found = workflow(f"[{{name: s0, command: [x]}}, {chain}]")
    assert validate.find_errors(found) == []
    assert [step.name for step in graph.in_order(found.spec.steps)] == [f"s{n}" for n in range(1000)]
    assert len(list(graph.levels(found.spec.steps))) == 1000


def test_values_stay_in_their_places() -> None:
    values = Values("dag", '{"x": 1, "y": "$(item)"}', 3, {"a": ['{"n": [1]}', "two"]})
    assert values.fill("$(workflow.name) $(index) $(item.x)") == "dag 3 1"
    # A value is not filled in again.
    assert values.fill("$(item.y)") == "$(item)"
    assert values.fill("$(steps.a.output.n) $(steps.a.outputs)") == '[1] [{"n": [1]}, "two"]'
    assert values.fill("$(date) $$(item) ${item}") == "$(date) $(item) ${item}"
    for text in ("$(item.z)", "$(steps.a.output.m)", "$(steps.b.output.k)"):
        with pytest.raises(NoValue):
            values.fill(text)
    deep = "[" * 5000
    assert Values("dag", deep).fill("$(item)") == deep
    with pytest.raises(NoValue):
        Values("dag", deep).fill("$(item.x)")


def test_a_value_cannot_choose_a_pool_or_a_queue() -> None:
    """A text that only a running step knows ends up in no field that admission decides."""
    toleration = {"key": "$(steps.a.output)", "operator": "Exists"}
    pod = {**POD, "tolerations": [toleration]}
    template = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
    listed = [{"name": "a", "command": ["x"]}, {"name": "b", "after": ["a"], "template": template}]
    raw: Json = {
        "metadata": {"name": "dag", "namespace": "team", "uid": "u-1"},
        "spec": {"queue": "q", "steps": listed},
    }
    found = codec.decode_as(Workflow, raw)
    assert validate.find_errors(found) == []
    run = objects.StepRun(raw, found.spec, found.spec.steps[1], "b", Values("dag", outputs={"a": ["pool.vk.io"]}))
    with pytest.raises(NoValue, match="only admission may do"):
        objects.make(run)
    harmless = objects.StepRun(raw, found.spec, found.spec.steps[1], "b", Values("dag", outputs={"a": ["gpu"]}))
    made = objects.make(harmless)[0]
    assert made["metadata"]["labels"][metadata.QUEUE_NAME] == "q"
    assert MemoryView([made]).list_json(objects.JOB) == [made]
