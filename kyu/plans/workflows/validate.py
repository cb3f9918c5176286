"""
The rules of a Workflow beyond its schema. Each error names the field and the remedy.

The embedded server, `kyu workflow run` and the controller apply the same rules, so a Workflow that slips past one of
them still makes no objects.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence, Set

from kyu.api.errors import FieldError, forbidden, invalid, not_supported, required, too_many
from kyu.api.meta import Json
from kyu.api.workflows import MAX_ENTRIES, Workflow, WorkflowSpec, WorkflowStep
from kyu.kinds import fields, metadata, table, templates
from kyu.kinds.pod import POD
from kyu.plans.workflows import graph, objects, values

TEMPLATE_FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec"})
TEMPLATE_METADATA = frozenset({"name", "generateName", "namespace", "labels", "annotations"})
# Labels that would tie a step to quota of others, or to none.
RESERVED_LABELS = (metadata.PREBUILT_WORKLOAD, metadata.MANAGED, metadata.POD_GROUP_NAME)
COMMAND_FIELDS = ("image", "cpu", "memory", "requests", "env", "working_dir")
SHOWN_KINDS = ", ".join(kind.kind.kind for kind in table.STEP_KINDS)


def find_errors(workflow: Workflow, *, needs_image: bool = False) -> list[FieldError]:
    """Return all errors of a Workflow. ``needs_image``: commands do not run on the machine of the server."""
    steps = workflow.spec.steps
    if not steps:
        return [required("spec.steps", "add at least one step")]
    found = [*graph_errors(steps), *size_errors(steps)]
    earlier = graph.EarlierSteps(steps)
    names = {step.name for step in steps}
    for position, step in enumerate(steps):
        path = f"spec.steps[{position}]"
        found += shape_errors(workflow.spec, step, path, needs_image=needs_image)
        if step.template is not None:
            found += template_errors(workflow, step, path)
        found += reference_errors(step, names, earlier, path)
    return found


def graph_errors(steps: Sequence[WorkflowStep]) -> Iterator[FieldError]:
    names = [step.name for step in steps]
    known: set[str] = set()
    for position, name in enumerate(names):
        if name in known:
            yield FieldError("Duplicate", f"spec.steps[{position}].name", name, "give each step a name of its own")
        known.add(name)
    unknown = False
    for position, step in enumerate(steps):
        for number, name in enumerate(step.after):
            if name not in known:
                unknown = True
                yield FieldError("NotFound", f"spec.steps[{position}].after[{number}]", name, no_step(name, names))
    if not unknown and (circle := graph.find_circle(steps)):
        shown = " → ".join(circle)
        detail = f"the steps wait for each other in a circle: {shown}; remove one of them from an after"
        yield invalid("spec.steps", circle[0], detail)


def no_step(name: str, names: Iterable[str]) -> str:
    """Return that a step does not exist, with the name that was probably meant."""
    near = difflib.get_close_matches(name, names, n=1)
    return "there is no step of this name" + (f"; did you mean {near[0]}?" if near else "")


def size_errors(steps: Sequence[WorkflowStep]) -> Iterator[FieldError]:
    total = sum(len(step.for_each.items) if step.for_each else 1 for step in steps)
    if total > MAX_ENTRIES:
        yield too_many("spec.steps", total, MAX_ENTRIES)


def shape_errors(spec: WorkflowSpec, step: WorkflowStep, path: str, *, needs_image: bool) -> Iterator[FieldError]:
    if bool(step.command) == (step.template is not None):
        yield invalid(path, step.name, "a step has either a command or a template")
    if step.template is not None and any(getattr(step, name) for name in COMMAND_FIELDS):
        yield forbidden(
            path, "image, cpu, memory, requests, env and workingDir go with a command; a template has its own"
        )
    if step.command and not step.command[0]:
        yield required(f"{path}.command[0]", "name the program to run")
    if needs_image and step.command and not step.image and not spec.image:
        yield required(f"{path}.image", "a command on a cluster needs an image; set it here or in spec.image")
    if not objects.queue_of(spec, step):
        yield required(f"{path}.queue", "name a LocalQueue here or in spec.queue; steps never run outside a queue")
    if step.count is not None and step.template is not None and objects.kind_of(step).kind != POD:
        yield forbidden(f"{path}.count", "goes with a command or a template of kind Pod; other kinds say it themselves")
    if step.run_if in ("AnySucceeded", "AnyFailed") and not step.after:
        yield required(f"{path}.after", f"runIf {step.run_if} needs steps to look at")
    each = step.for_each
    if each is not None and bool(each.items) == bool(each.items_from):
        yield invalid(f"{path}.forEach", step.name, "needs either items or itemsFrom")


def template_errors(workflow: Workflow, step: WorkflowStep, path: str) -> Iterator[FieldError]:
    assert step.template is not None
    template, path = step.template, f"{path}.template"
    kind = table.find(template)
    if kind is None or kind not in table.STEP_KINDS:
        yield not_supported(f"{path}.kind", template.get("kind"), [k.kind.kind for k in table.STEP_KINDS])
        return
    if template.get("apiVersion") != kind.kind.api_version:
        yield not_supported(f"{path}.apiVersion", template.get("apiVersion"), [kind.kind.api_version])
    for name in sorted(template.keys() - TEMPLATE_FIELDS):
        yield forbidden(f"{path}.{name}", "a template has apiVersion, kind, metadata and spec")
    if not isinstance(template.get("spec"), dict):
        yield required(f"{path}.spec", f"write the spec of the {kind.kind.kind}")
        return
    yield from metadata_errors(workflow, step, path)
    for node in templates.nodes_within(template["spec"]):
        yield forbidden(f"{path}.spec", f"remove nodeName {node}: the queue decides where pods run")


def metadata_errors(workflow: Workflow, step: WorkflowStep, path: str) -> Iterator[FieldError]:
    template = step.template or {}
    given = template.get("metadata") or {}
    if not isinstance(given, dict):
        yield invalid(f"{path}.metadata", given, "must be an object")
        return
    for name in sorted(given.keys() - TEMPLATE_METADATA):
        yield forbidden(f"{path}.metadata.{name}", "a template has labels and annotations; the Workflow makes the rest")
    if given.get("namespace") not in (None, "", workflow.metadata.namespace):
        yield invalid(f"{path}.metadata.namespace", given["namespace"], "must be the namespace of the Workflow")
    for part in ("labels", "annotations"):
        texts = given.get(part) or {}
        if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
            yield invalid(f"{path}.metadata.{part}", texts, "must have texts as values")
    for label in RESERVED_LABELS:
        if metadata.identifier(template, label):
            yield forbidden(f"{path}.metadata.labels[{label}]", "is not for steps: the Workflow makes it")
    own = objects.kind_of(step).queue_name(template)
    if own and step.queue and own != step.queue:
        yield invalid(f"{path}.metadata.labels[{metadata.QUEUE_NAME}]", own, f"differs from queue {step.queue}")
    if "$(" in own:
        yield invalid(f"{path}.metadata.labels[{metadata.QUEUE_NAME}]", own, "a queue cannot be made from values")


def reference_errors(
    step: WorkflowStep, names: Set[str], earlier: graph.EarlierSteps, path: str
) -> Iterator[FieldError]:
    """Yield references to steps that are not over when this one starts, and to items that it does not have."""
    wanted: list[tuple[str, str]] = [(f"{path}.when[{n}].step", one.step) for n, one in enumerate(step.when)]
    if step.for_each is not None and step.for_each.items_from:
        wanted.append((f"{path}.forEach.itemsFrom", step.for_each.items_from))
    for name, value in values.texts(step):
        try:
            for reference in values.references(value):
                if reference.source == "steps":
                    wanted.append((f"{path}.{name}", reference.step))
                elif reference.source in ("item", "index") and step.for_each is None:
                    yield invalid(f"{path}.{name}", f"$({reference.source})", "add forEach to the step, or write $$(")
        except values.NoValue as error:
            yield invalid(f"{path}.{name}", step.name, str(error))
    for field, name in dict.fromkeys(wanted):
        if name not in names:
            yield FieldError("NotFound", field, name, no_step(name, names))
        elif not earlier.has(step.name, name):
            yield invalid(field, name, f"add {name} to after, so that it is over before")


def change_errors(new: Json, old: Json) -> list[FieldError]:
    """Return the changes of a Workflow that are not allowed while it runs."""
    before, after = (fields.value_at(one, ("spec", "steps")) for one in (old, new))
    if before == after or fields.text_at(old, ("status", "state")) in ("Succeeded", "Failed", "Cancelled"):
        return []
    return [forbidden("spec.steps", "cannot change while the Workflow runs; cancel it first, change it, then retry it")]
