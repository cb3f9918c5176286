"""
The pods of a SparkApplication: what Spark makes of the fields of a driver or an executor.

A role has fields of its own beside an optional pod template. The tables below say how each field is laid over the
template: mappings are merged, lists are appended to, other values replace. Cores, memory and devices become the
requests of the container that runs Spark. Memory is the heap and what is needed beside it.

Spark: "Running Spark on Kubernetes", memory overhead.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from kyu.api.meta import Json
from kyu.kinds import fields, templates

DRIVER, EXECUTOR = "driver", "executor"
CONTAINER = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}

# Fields that admission may add to, as they are called in a role and in a pod template alike: there, below this part.
ADMITTED = {"labels": "metadata", "annotations": "metadata", "nodeSelector": "spec", "tolerations": "spec"}
# Lists of a role, and the list of the pod that they are added to.
APPENDED = {"tolerations": "tolerations", "initContainers": "initContainers", "sidecars": "containers"}
REPLACED = ("affinity", "priorityClassName", "schedulerName")

LEAST_OVERHEAD_MEBIBYTES = 384
# The part of the heap that is needed beside it: by a JVM, and by an interpreter beside the JVM.
JVM_OVERHEAD, INTERPRETER_OVERHEAD = Fraction(1, 10), Fraction(4, 10)
JVM_LANGUAGES = ("", "Java", "Scala")
DEFAULT_MEMORY = "1g"
MEBIBYTE = 2**20
BYTES_OF_UNIT = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)i?b?", re.ASCII)


def is_dynamic(obj: Json) -> bool:
    return fields.value_at(obj, ("spec", "dynamicAllocation", "enabled")) is True


def executors(obj: Json) -> int:
    """Return the number of executors at the start. With dynamic allocation, Spark takes the largest number given."""
    fixed = fields.int_at(obj, ("spec", EXECUTOR, "instances"))
    if not is_dynamic(obj):
        return fixed
    named = fields.json_at(obj, ("spec", "dynamicAllocation"))
    return max(fixed, fields.int_at(named, ("initialExecutors",)), fields.int_at(named, ("minExecutors",)))


def pod_template(obj: Json, name: str) -> Json:
    """Return the pod template of a role, with the fields of the role laid over it."""
    role = fields.json_at(obj, ("spec", name))
    template = fields.json_at(role, ("template",))
    pod: Json = {part: dict(fields.json_at(template, (part,))) for part in ("metadata", "spec")}
    spec = pod["spec"]
    spec["containers"] = with_resources(fields.list_at(spec, ("containers",)), obj, name)
    for key, part in ADMITTED.items():
        if part == "metadata" and (added := fields.json_at(role, (key,))):
            pod[part][key] = {**fields.json_at(pod[part], (key,)), **added}
    if selector := {**fields.json_at(spec, ("nodeSelector",)), **node_selector(obj, role)}:
        spec["nodeSelector"] = selector
    for key, target in APPENDED.items():
        templates.append_missing(spec, target, fields.list_at(role, (key,)))
    spec.update({key: role[key] for key in REPLACED if role.get(key)})
    return pod


def node_selector(obj: Json, role: Json) -> Json:
    """Return the node selector of the role, with that of the application."""
    return {**fields.json_at(obj, ("spec", "nodeSelector")), **fields.json_at(role, ("nodeSelector",))}


def with_resources(containers: list[Json], obj: Json, name: str) -> list[Json]:
    """Return the containers of a template, or the one of Spark. The Spark container gets the requests of the role."""
    role = fields.json_at(obj, ("spec", name))
    made = containers or [{"name": CONTAINER[name]}]
    position = next((i for i, container in enumerate(made) if container.get("name") == CONTAINER[name]), 0)
    main = made[position]
    requests = {
        "cpu": str(role.get("coreRequest") or role.get("cores") or 1),
        **fields.json_at(main, ("resources", "requests")),
        "memory": memory_request(obj, role),
    }
    limits = dict(fields.json_at(main, ("resources", "limits")))
    if role.get("coreLimit"):
        limits["cpu"] = str(role["coreLimit"])
    gpu = fields.json_at(role, ("gpu",))
    if gpu.get("name") and gpu.get("quantity"):
        requests[str(gpu["name"])] = limits[str(gpu["name"])] = str(gpu["quantity"])
    main = {**main, "resources": {"requests": requests, "limits": limits} if limits else {"requests": requests}}
    image = main.get("image") or role.get("image") or fields.text_at(obj, ("spec", "image"))
    if image:
        main["image"] = image
    return [*made[:position], main, *made[position + 1 :]]


# Memory


def memory_request(obj: Json, role: Json) -> str:
    spec = fields.json_at(obj, ("spec",))
    factor = fields.text_at(spec, ("memoryOverheadFactor",)) or str(
        fields.json_at(spec, ("sparkConf",)).get("spark.kubernetes.memoryOverheadFactor", "")
    )
    heap, beside = str(role.get("memory") or DEFAULT_MEMORY), str(role.get("memoryOverhead") or "")
    return f"{total_mebibytes(heap, beside, factor, fields.text_at(spec, ('type',)))}Mi"


@lru_cache(maxsize=1024)
def total_mebibytes(memory: str, overhead: str, factor: str, language: str) -> int:
    """Return the heap and its overhead. An invalid amount, refused by validation, counts as the default."""
    heap = mebibytes(memory) or mebibytes(DEFAULT_MEMORY) or 0
    beside = mebibytes(overhead)
    if beside is None:
        beside = max(LEAST_OVERHEAD_MEBIBYTES, math.ceil(heap * overhead_factor(factor, language)))
    return heap + beside


def overhead_factor(text: str, language: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return JVM_OVERHEAD if language in JVM_LANGUAGES else INTERPRETER_OVERHEAD


def mebibytes(text: str) -> int | None:
    """Parse Java's notation (512m, 4g, 1024k) or Kubernetes' (4Gi), rounded up."""
    match = _AMOUNT.fullmatch(text.strip().lower())
    return math.ceil(Fraction(match[1]) * BYTES_OF_UNIT[match[2]] / MEBIBYTE) if match else None


# Additions of admission


def as_template(obj: Json, role: Json) -> Json:
    """Return the fields of a role that admission may change, as a pod template."""
    found = {**{key: role[key] for key in ADMITTED if role.get(key)}, "nodeSelector": node_selector(obj, role)}
    return {
        part: {key: found[key] for key in ADMITTED if ADMITTED[key] == part and key in found}
        for part in ("metadata", "spec")
    }


def from_template(role: Json, template: Json) -> Json:
    """Return the role with these fields from the template."""
    kept = {key: value for key, value in role.items() if key not in ADMITTED}
    held = {key: fields.value_at(template, (part, key)) for key, part in ADMITTED.items()}
    return {**kept, **{key: value for key, value in held.items() if value}}


def with_gates(role: Json, name: str, gates: tuple[str, ...]) -> Json:
    """Return the role with these scheduling gates in its template, the only place for them."""
    if not gates and "template" not in role:
        return role
    template = fields.json_at(role, ("template",))
    spec = {key: value for key, value in fields.json_at(template, ("spec",)).items() if key != "schedulingGates"}
    spec.setdefault("containers", [{"name": CONTAINER[name]}])
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {**role, "template": {**template, "spec": spec}}
