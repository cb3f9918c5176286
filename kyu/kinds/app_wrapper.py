"""
AppWrapper: any objects, queued as one.

Each component is an object and the places of its pod templates, given or known from its kind. What admission adds is
written beside the component, and merged into the object when it is made. It is over when the jobs in it are.

Kueue: pkg/controller/jobs/appwrapper. AppWrapper: v1beta2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind, Ref
from kyu.kinds import conditions, fields, metadata, templates
from kyu.kinds.conditions import Mark
from kyu.kinds.kind import Finished, JobKind, Slot, child_ref
from kyu.kinds.pods import owner_reference
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, TemplateConflict

COMPONENTS: fields.Path = ("spec", "components")
LABEL = "workload.codeflare.dev/appwrapper"


class AppWrapper(JobKind):
    kinds = (Kind("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers"),)
    framework = "workload.codeflare.dev/appwrapper"
    own_manager = "workload.codeflare.dev/appwrapper-controller"

    def __init__(self, find: Callable[[Json], JobKind | None]) -> None:
        """Make the kind. ``find`` returns the kind of a wrapped object."""
        self.find = find

    def slots(self, obj: Json) -> list[Slot]:
        name = metadata.name_of(obj)
        places = [
            ((*COMPONENTS, position, "template", *path), count)
            for position, component in enumerate(fields.list_at(obj, COMPONENTS))
            for path, count in self.places(component)
        ]
        return [Slot(f"{name}-{i}", path, count) for i, (path, count) in enumerate(places)]

    def places(self, component: Json) -> list[tuple[fields.Path, int]]:
        """Return where the pod templates of a component lie in its object, and how many pods each has."""
        declared = fields.list_at(component, ("podSets",))
        if declared:
            return [(parse_path(str(d.get("path", ""))), fields.int_at(d, ("replicas",), 1)) for d in declared]
        return self.known_places(fields.json_at(component, ("template",))) or []

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        if not self.slots(obj):
            return [invalid("spec.components", fields.list_at(obj, COMPONENTS), "has no pods to be queued")]
        return [
            error
            for position, component in enumerate(fields.list_at(obj, COMPONENTS))
            for error in self.component_errors(component, f"spec.components[{position}].podSets")
        ]

    def component_errors(self, component: Json, field: str) -> Iterator[FieldError]:
        """Yield what is wrong with declared pod sets. Those of a known kind follow from the wrapped object."""
        declared = fields.list_at(component, ("podSets",))
        for position, one in enumerate(declared):
            path = str(one.get("path", ""))
            if not fields.list_at(component, ("template", *parse_path(path), "spec", "containers")):
                yield invalid(f"{field}[{position}].path", path, "leads to no pod template")
        wrapped = fields.json_at(component, ("template",))
        kind = self.find(wrapped)
        if kind is not None and kind.refers_to:
            why = f"the pods of a {kind.kind.kind} follow from another object; queue it without an AppWrapper"
            yield forbidden(field.removesuffix("podSets") + "template", why)
            return
        known = self.known_places(wrapped)
        if declared and known is not None and sorted(map(str, known)) != sorted(map(str, self.places(component))):
            counted = ", ".join(f"template.{fields.show(path)}: {count}" for path, count in known)
            yield invalid(field, [one.get("replicas", 1) for one in declared], f"the wrapped object has {counted}")

    def known_places(self, wrapped: Json) -> list[tuple[fields.Path, int]] | None:
        """Return where the pod templates of an object of a known kind lie, and how many pods each has."""
        if (wrapped.get("apiVersion"), wrapped.get("kind")) == ("apps/v1", "ReplicaSet"):
            return [(("spec", "template"), fields.int_at(wrapped, ("spec", "replicas"), 1))]
        kind = self.find(wrapped)
        return [(slot.template, slot.count) for slot in kind.slots(wrapped)] if kind is not None else None

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        result = templates.merged(fields.json_at(obj, slot.template), info)
        if isinstance(result, TemplateConflict):
            return result
        addition = templates.additions(info)
        flat = {**(addition.get("metadata") or {}), **(addition.get("spec") or {})}
        position = component_of(slot)
        path: fields.Path = (*COMPONENTS, position, "podSetInfos")
        infos = fields.list_at(obj, path)
        # Pod sets come in order, so those of a component that have no entry yet are the next ones.
        rank = [component_of(s) for s in self.slots(obj)][: int(slot.name.rpartition("-")[2])].count(position)
        return fields.with_value(obj, path, [*infos[:rank], flat])

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        component = fields.json_at(obj, (*COMPONENTS, component_of(slot)))
        kept = {key: value for key, value in component.items() if key != "podSetInfos"}
        return fields.with_value(obj, (*COMPONENTS, component_of(slot)), kept)

    def is_active(self, obj: Json) -> bool:
        return conditions.is_true(obj, "QuotaReserved")

    def pods_ready(self, obj: Json) -> bool:
        return conditions.is_true(obj, "PodsReady")

    def finished(self, obj: Json) -> Finished | None:
        match fields.text_at(obj, ("status", "phase")):
            case "Succeeded":
                return Finished(success=True, message="AppWrapper finished successfully")
            case "Failed" if not conditions.is_true(obj, "ResourcesDeployed"):
                return Finished(success=False, message="AppWrapper failed")
            case _:
                return None

    def children_of(self, obj: Json) -> list[Json]:
        if self.is_suspended(obj) or self.finished(obj) is not None:
            return []
        return [self.make_child(obj, component) for component in fields.list_at(obj, COMPONENTS)]

    def surplus_children(self, obj: Json, children: Sequence[Json]) -> list[Ref]:
        end = self.finished(obj)
        if end is None or end.success:
            return super().surplus_children(obj, children)
        running = [c for c in children if (kind := self.find(c)) is not None and kind.finished(c) is None]
        return [child_ref(child) for child in running]

    def make_child(self, obj: Json, component: Json) -> Json:
        child = fields.json_at(component, ("template",))
        infos = fields.list_at(component, ("podSetInfos",))
        for (path, _), info in zip(self.places(component), infos, strict=False):
            merged = templates.merged(fields.json_at(child, path), to_info(info))
            assert not isinstance(merged, TemplateConflict), "conflicts were found when the job was started"
            child = fields.with_value(child, path, merged)
        meta = {
            **fields.json_at(child, ("metadata",)),
            "labels": {**metadata.labels_of(child), LABEL: metadata.name_of(obj)},
            "ownerReferences": [owner_reference(obj)],
        }
        meta.setdefault("namespace", fields.text_at(obj, ("metadata", "namespace")))
        return {**child, "metadata": meta}

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        if self.is_suspended(obj):
            return {"phase": "Suspended", "conditions": self.marks(obj, now, deployed=bool(parts), ready=False)}
        if self.finished(obj) is not None:
            return {}
        jobs = [(kind, child) for child in parts if (kind := self.find(child)) is not None]
        ends = [kind.finished(child) for kind, child in jobs]
        deployed = len(parts) >= len(fields.list_at(obj, COMPONENTS))
        ready = bool(jobs) and deployed and all(kind.pods_ready(child) for kind, child in jobs)
        if any(end is not None and not end.success for end in ends):
            return {"phase": "Failed", "conditions": self.marks(obj, now, deployed=False, ready=False)}
        if jobs and deployed and all(end is not None for end in ends):
            return {"phase": "Succeeded", "conditions": self.marks(obj, now, deployed=False, ready=False)}
        phase = "Running" if deployed else "Resuming"
        return {"phase": phase, "conditions": self.marks(obj, now, deployed=True, ready=ready)}

    def marks(self, obj: Json, now: datetime, *, deployed: bool, ready: bool) -> list[Json]:
        """Return the conditions. Quota is held as long as a wrapped object exists."""
        facts = {"QuotaReserved": deployed, "ResourcesDeployed": deployed, "PodsReady": ready}
        marks = [
            Mark(type_, "True", type_, "") if holds else Mark(type_, "False", f"Not{type_}", "")
            for type_, holds in facts.items()
        ]
        return conditions.with_marks(fields.list_at(obj, ("status", "conditions")), marks, now)


def component_of(slot: Slot) -> int:
    position = slot.template[len(COMPONENTS)]
    assert isinstance(position, int), "the path of a pod set goes through the list of components"
    return position


def parse_path(text: str) -> fields.Path:
    """Parse ``template.spec.replicaSpecs[0].template``. The first word stands for the wrapped object."""
    steps: list[str | int] = []
    for part in text.split("."):
        name, *positions = part.replace("]", "").split("[")
        steps += [name, *(int(p) if p.isdigit() else p for p in positions)]
    return tuple(steps[1:])


def to_info(flat: Json) -> PodSetInfo:
    return PodSetInfo(
        name="",
        count=0,
        labels=fields.json_at(flat, ("labels",)),
        annotations=fields.json_at(flat, ("annotations",)),
        node_selector=fields.json_at(flat, ("nodeSelector",)),
        tolerations=tuple(fields.list_at(flat, ("tolerations",))),
        scheduling_gates=tuple(str(gate.get("name")) for gate in fields.list_at(flat, ("schedulingGates",))),
    )
