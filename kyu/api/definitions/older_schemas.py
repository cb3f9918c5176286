"""
The schemas of v1beta1 and v1alpha1, as changes of the schema of v1beta2.

Each function edits the schema of one kind in place. It renames, restores or removes the fields that ``api/convert.py``
moves. Bounds that v1beta2 introduced hold for the older versions too, so that every accepted object can be read as
v1beta2.

Kueue: apis/kueue/v1beta1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kyu.api.definitions.schema import QUANTITY
from kyu.api.fields import DNS_SUBDOMAIN
from kyu.api.meta import Json

_HISTORY: Json = {
    "type": "object",
    "description": "Past usage. No longer written.",
    "properties": {
        "consumedResources": {"type": "object", "additionalProperties": QUANTITY, "description": "Usage by resource."},
        "lastUpdate": {"type": "string", "format": "date-time", "description": "When it was computed."},
    },
}


def make_older(schema: Json, kind: str, version: str) -> None:
    """Turn the schema of v1beta2 into that of ``version``."""
    change = _CHANGES.get((kind, version))
    if change is not None:
        change(schema)


def _cluster_queue(schema: Json) -> None:
    spec, status = _properties(schema, "spec"), _properties(schema, "status")
    _rename(spec, "cohortName", "cohort")
    del spec["concurrentAdmissionPolicy"]
    spec["admissionChecks"] = {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 316},
        "x-kubernetes-list-type": "set",
        "description": "Checks for all flavors. Not together with admissionChecksStrategy.",
    }
    fungibility = spec["flavorFungibility"]["properties"]
    fungibility["whenCanBorrow"]["enum"].append("Borrow")
    fungibility["whenCanPreempt"]["enum"].append("Preempt")
    rules = schema["properties"]["spec"]["x-kubernetes-validations"]
    rules[:] = [{**rule, "rule": rule["rule"].replace("self.cohortName", "self.cohort")} for rule in rules]
    rules.append(
        {
            "rule": "!has(self.admissionChecks) || self.admissionChecks.size() == 0 || "
            "!has(self.admissionChecksStrategy)",
            "message": "admissionChecks and admissionChecksStrategy exclude each other",
        }
    )
    status["pendingWorkloadsStatus"] = _untyped("Pending workloads. No longer written.")
    status["fairSharing"]["properties"]["admissionFairSharingStatus"] = _HISTORY


def _cohort(schema: Json) -> None:
    _properties(schema, "status", "fairSharing")["admissionFairSharingStatus"] = _HISTORY


def _alpha_cohort(schema: Json) -> None:
    _cohort(schema)
    spec = schema["properties"]["spec"]
    _rename(spec["properties"], "parentName", "parent")
    for rule in spec["x-kubernetes-validations"]:
        rule["rule"] = rule["rule"].replace("self.parentName", "self.parent")


def _local_queue(schema: Json) -> None:
    status = _properties(schema, "status")
    _rename(status, "flavorsUsage", "flavorUsage")
    status["flavors"] = {
        "type": "array",
        "items": {**_untyped("A flavor."), "required": ["name"], "properties": {"name": {"type": "string"}}},
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "description": "Flavors that can be used through this queue. No longer written.",
    }


def _workload(schema: Json) -> None:
    spec, status = _properties(schema, "spec"), _properties(schema, "status")
    del spec["priorityClassRef"], spec["preemptionGates"], status["preemptionGates"]
    spec["priorityClassName"] = {
        "type": "string",
        "maxLength": 253,
        "pattern": DNS_SUBDOMAIN,
        "description": "Name of the class that the priority comes from.",
    }
    spec["priorityClassSource"] = {
        "type": "string",
        "enum": ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""],
        "default": "",
        "description": "Which kind of class it is.",
    }
    request = _properties(schema, "spec", "podSets", "topologyRequest")
    del request["podsetSliceRequiredTopologyConstraints"]
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    _plain_domains(_properties(schema, "status", "admission", "podSetAssignments")["topologyAssignment"])
    schema["properties"]["spec"]["x-kubernetes-validations"] = [
        {"rule": "!has(self.priorityClassName) || has(self.priority)", "message": "priorityClassName needs a priority"}
    ]
    schema["x-kubernetes-validations"] = [
        rule for rule in schema["x-kubernetes-validations"] if "priorityClassRef" not in rule["rule"]
    ]


def _plain_domains(assignment: Json) -> None:
    """Replace slices by a list of domains."""
    del assignment["properties"]["slices"], assignment["x-kubernetes-validations"]
    assignment["required"] = ["domains", "levels"]
    values = {
        "type": "array",
        "items": {"type": "string", "maxLength": 63},
        "minItems": 1,
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "description": "One value for each level.",
    }
    count = {"type": "integer", "format": "int32", "minimum": 1, "description": "Pods in the domain."}
    assignment["properties"]["domains"] = {
        "type": "array",
        "items": {"type": "object", "required": ["count", "values"], "properties": {"count": count, "values": values}},
        "maxItems": 100000,
        "x-kubernetes-list-type": "atomic",
        "description": "The domains, with their pods.",
    }


def _admission_check(schema: Json) -> None:
    _properties(schema, "spec")["retryDelayMinutes"] = {
        "type": "integer",
        "format": "int64",
        "description": "Not used.",
    }


def _multi_kueue_cluster(schema: Json) -> None:
    spec = schema["properties"]["spec"]
    source = spec["properties"].pop("clusterSource")
    spec["properties"].update(source["properties"])
    spec["x-kubernetes-validations"] = source["x-kubernetes-validations"]
    del spec["required"]


def _multi_kueue_config(schema: Json) -> None:
    del _properties(schema, "spec")["quotaManagement"]


def _topology(schema: Json) -> None:
    rules = _properties(schema, "spec")["levels"]["x-kubernetes-validations"]
    rules[:] = [rule for rule in rules if "oldSelf" not in rule["rule"]]
    rules.append({"rule": "self == oldSelf", "message": "field is immutable"})


_CHANGES: Mapping[tuple[str, str], Callable[[Json], None]] = {
    ("AdmissionCheck", "v1beta1"): _admission_check,
    ("ClusterQueue", "v1beta1"): _cluster_queue,
    ("Cohort", "v1beta1"): _cohort,
    ("Cohort", "v1alpha1"): _alpha_cohort,
    ("LocalQueue", "v1beta1"): _local_queue,
    ("MultiKueueCluster", "v1beta1"): _multi_kueue_cluster,
    ("MultiKueueConfig", "v1beta1"): _multi_kueue_config,
    ("Topology", "v1beta1"): _topology,
    ("Topology", "v1alpha1"): _topology,
    ("Workload", "v1beta1"): _workload,
}


def _properties(schema: Json, *path: str) -> dict[str, Any]:
    """Return the properties of a nested object. A list on the path stands for its items."""
    for name in path:
        schema = schema["properties"][name]
        schema = schema.get("items", schema)
    properties: dict[str, Any] = schema["properties"]
    return properties


def _rename(properties: dict[str, Any], old: str, new: str) -> None:
    properties[new] = properties.pop(old)


def _untyped(description: str) -> Json:
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}
