"""
Requests by chance, but not at random: a seed gives the same conversation about one object every time.

The words are few, so that writers meet: three managers apply, patch and replace the same handful of fields, lists with
keys, sets, maps and scalars, now and then with something that is not allowed.

Called by: test_random_answers.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.cluster.client import Manifest
from tests.cluster.twins import Step

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANAGERS = ("ana", "bob", "kubectl")
GROUP = "random.example.com"

# What a body may say, apart from metadata, for one kind.
Content = Callable[[random.Random], Manifest]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind to talk about."""

    api_version: str
    kind: str
    plural: str
    content: Content
    strategic: bool = True
    scalable: bool = False
    status: Content | None = None

    @property
    def collection(self) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/namespaces/default/{self.plural}"


def conversation(subject: Subject, seed: int, length: int) -> Iterator[Step]:
    """A create or an apply, then whatever comes."""
    chance = random.Random(f"{subject.plural} {seed}")
    name = f"random-{seed}"
    yield apply(subject, chance, name) if chance.random() < 0.5 else post(subject, chance, name)
    for _ in range(length - 2):
        yield chance.choice(verbs(subject))(subject, chance, name)
    yield Step("GET", f"{subject.collection}/{name}", JSON, None, "")


Verb = Callable[[Subject, random.Random, str], Step]


def verbs(subject: Subject) -> list[Verb]:
    """Each as often as it is wanted."""
    chosen: list[Verb] = [*[apply] * 8, *[merge] * 3, *[replace] * 2, json_patch, post, get, delete]
    if subject.strategic:
        chosen += [strategic] * 3
    if subject.scalable:
        chosen += [scale] * 2
    if subject.status is not None:
        chosen += [status] * 3
    return chosen


def body(subject: Subject, chance: random.Random, name: str) -> Manifest:
    metadata: Manifest = {"name": name}
    if chance.random() < 0.4:
        metadata["labels"] = some(chance, {"app": chance.choice("xy"), "tier": "t"})
    if chance.random() < 0.3:
        metadata["annotations"] = some(chance, {"note": chance.choice("xy"), "other": "o"})
    return {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "metadata": metadata,
        **subject.content(chance),
    }


def post(subject: Subject, chance: random.Random, name: str) -> Step:
    dry = "&dryRun=All" if chance.random() < 0.2 else ""
    path = f"{subject.collection}?fieldManager={chance.choice(MANAGERS)}{dry}"
    return Step("POST", path, JSON, body(subject, chance, name), "")


def apply(subject: Subject, chance: random.Random, name: str) -> Step:
    force = "&force=true" if chance.random() < 0.5 else ""
    path = f"{subject.collection}/{name}?fieldManager={chance.choice(MANAGERS)}{force}"
    return Step("PATCH", path, APPLY, body(subject, chance, name), "")


def merge(subject: Subject, chance: random.Random, name: str) -> Step:
    path = f"{subject.collection}/{name}?fieldManager={chance.choice(MANAGERS)}"
    change = body(subject, chance, name)
    if chance.random() < 0.3:
        change["metadata"]["labels"] = None
    return Step("PATCH", path, MERGE, change, "")


def strategic(subject: Subject, chance: random.Random, name: str) -> Step:
    return Step("PATCH", merge(subject, chance, name).path, STRATEGIC, body(subject, chance, name), "")


def replace(subject: Subject, chance: random.Random, name: str) -> Step:
    path = f"{subject.collection}/{name}?fieldManager={chance.choice(MANAGERS)}"
    return Step("PUT", path, JSON, body(subject, chance, name), "")


def json_patch(subject: Subject, chance: random.Random, name: str) -> Step:
    operations: list[Manifest] = [
        {"op": "add", "path": "/metadata/labels", "value": {"app": "z"}},
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "replace", "path": "/metadata/annotations", "value": {"note": "z"}},
        {"op": "test", "path": "/metadata/name", "value": chance.choice((name, "other"))},
    ]
    path = f"{subject.collection}/{name}?fieldManager={chance.choice(MANAGERS)}"
    return Step("PATCH", path, JSON_PATCH, chance.sample(operations, chance.randint(1, 2)), "")


def scale(subject: Subject, chance: random.Random, name: str) -> Step:
    """To a number that it hardly has already: see docs/reference/api-differences.md for a scale that stays as it is."""
    path = f"{subject.collection}/{name}/scale?fieldManager={chance.choice(MANAGERS)}"
    return Step("PATCH", path, MERGE, {"spec": {"replicas": chance.choice((-1, chance.randint(5, 999)))}}, "")


def status(subject: Subject, chance: random.Random, name: str) -> Step:
    assert subject.status is not None
    content = subject.status(chance)
    path = f"{subject.collection}/{name}/status?fieldManager={chance.choice(MANAGERS)}"
    if chance.random() < 0.5:
        return Step("PATCH", path, MERGE, content, "")
    typed = {"apiVersion": subject.api_version, "kind": subject.kind, "metadata": {"name": name}}
    return Step("PATCH", f"{path}&force=true", APPLY, {**typed, **content}, "")


def get(subject: Subject, chance: random.Random, name: str) -> Step:
    return Step("GET", f"{subject.collection}/{name}", JSON, None, "")


def delete(subject: Subject, chance: random.Random, name: str) -> Step:
    policy = chance.choice(("Background", "Foreground", "Orphan"))
    return Step("DELETE", f"{subject.collection}/{name}", JSON, {"propagationPolicy": policy}, "")


def some(chance: random.Random, fields: Manifest) -> Manifest:
    """A part of them, perhaps all or none."""
    return {key: value for key, value in fields.items() if chance.random() < 0.6}


def items(chance: random.Random, choices: list[Any]) -> list[Any]:
    return chance.sample(choices, chance.randint(0, len(choices)))


def config_map(chance: random.Random) -> Manifest:
    data = some(chance, {"a": chance.choice("12"), "b": chance.choice("12"), "c/d": "not a key"})
    if chance.random() < 0.8:
        data.pop("c/d", None)
    return some(chance, {"data": data, "immutable": False})


def pod_template(chance: random.Random) -> Manifest:
    def container(name: str) -> Manifest:
        return {
            "name": name,
            "image": chance.choice(("busybox", "busybox:1")),
            **some(
                chance,
                {
                    "args": items(chance, ["x", "y"]),
                    "env": items(chance, [{"name": "A", "value": chance.choice("12")}, {"name": "B", "value": "3"}]),
                    "ports": items(chance, [{"containerPort": 80}, {"containerPort": 81, "name": "web"}]),
                    "resources": {"requests": some(chance, {"cpu": chance.choice(("1", "1000m")), "memory": "1Gi"})},
                },
            ),
        }

    spec = {
        "containers": [container("main"), *items(chance, [container("side")])],
        **some(chance, {"nodeSelector": {"pool": chance.choice("xy")}, "terminationGracePeriodSeconds": 5}),
    }
    return {"metadata": {"labels": {"app": "random", **some(chance, {"v": chance.choice("12")})}}, "spec": spec}


def deployment(chance: random.Random) -> Manifest:
    spec = {"selector": {"matchLabels": {"app": "random"}}, "template": pod_template(chance)}
    return {"spec": {**spec, **some(chance, {"replicas": chance.randint(0, 3), "minReadySeconds": 2, "paused": True})}}


def job(chance: random.Random) -> Manifest:
    template = pod_template(chance)
    template["spec"]["restartPolicy"] = "Never"
    options = {"parallelism": chance.randint(0, 3), "backoffLimit": 2, "ttlSecondsAfterFinished": 9}
    return {"spec": {"suspend": True, "template": template, **some(chance, options)}}


def local_queue(chance: random.Random) -> Manifest:
    return {"spec": {"clusterQueue": "lab", **some(chance, {"stopPolicy": chance.choice(("Hold", "None", "Never"))})}}


def local_queue_status(chance: random.Random) -> Manifest:
    def condition(kind: str) -> Manifest:
        status = chance.choice(("True", "False"))
        fixed = {"reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return {"type": kind, "status": status, **fixed}

    counts = some(chance, {"pendingWorkloads": chance.randint(0, 2), "admittedWorkloads": 1})
    return {"status": {**counts, "conditions": items(chance, [condition("Active"), condition("Other")])}}


def toy(chance: random.Random) -> Manifest:
    spec: Manifest = {
        "size": chance.choice((1, 2, 3, "big")) if chance.random() < 0.2 else chance.randint(1, 3),
        "tags": items(chance, ["a", "b", "c"]),
        "parts": [
            {"name": name, **some(chance, {"count": chance.randint(0, 2)})} for name in items(chance, ["p", "q"])
        ],
        "whole": some(chance, {"x": chance.choice("12"), "y": "1"}),
        "nested": {"deep": some(chance, {"one": chance.choice("12"), "two": {"three": "3"}})},
        "free": some(chance, {"any": chance.choice([1, "1", [1, 2], {"k": "v"}])}),
    }
    return {"spec": some(chance, spec)}


def toy_status(chance: random.Random) -> Manifest:
    return {"status": some(chance, {"phase": chance.choice(("Up", "Down")), "count": chance.randint(0, 2)})}


def text() -> Manifest:
    return {"type": "string"}


TOY_SPEC: Manifest = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 2, "default": 1},
        "tags": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": text(), "count": {"type": "integer", "default": 1}},
            },
        },
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text()},
        "nested": {
            "type": "object",
            "properties": {
                "deep": {
                    "type": "object",
                    "properties": {
                        "one": text(),
                        "two": {"type": "object", "properties": {"three": text()}},
                    },
                }
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
TOY_STATUS: Manifest = {"type": "object", "properties": {"phase": text(), "count": {"type": "integer"}}}
TOYS: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"toys.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "toys", "kind": "Toy"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"},
                },
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": TOY_SPEC, "status": TOY_STATUS}}
                },
            }
        ],
    },
}

SUBJECTS = (
    Subject("v1", "ConfigMap", "configmaps", config_map),
    Subject("apps/v1", "Deployment", "deployments", deployment, scalable=True),
    Subject("batch/v1", "Job", "jobs", job),
    Subject("kueue.x-k8s.io/v1beta2", "LocalQueue", "localqueues", local_queue, False, status=local_queue_status),
    Subject(f"{GROUP}/v1", "Toy", "toys", toy, False, scalable=True, status=toy_status),
)
