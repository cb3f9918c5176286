"""
Resolves the environment of a container, and $(NAME) in its command and arguments.

Sources are read in Kubernetes' order: envFrom, then env; a later name wins, and a value may use the names before it.
A source that is missing and not optional keeps the pod waiting; a source that can never be is refused.

Called by: podplan.py, volumes.py. Kubernetes: the kubelet's makeEnvironmentVariables.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.runtime.identity.service_account import NO_ACCESS, ServerAccess
from kyu.runtime.status import ADDRESS

REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
ENVIRONMENT_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class SettingsSource(Protocol):
    """The objects that a pod may read its settings from."""

    def config_map(self, namespace: str, name: str) -> Json | None: ...

    def secret(self, namespace: str, name: str) -> Json | None: ...


class PodCannotRun(Exception):
    """The pod cannot run here, now or later. ``podplan`` makes it a value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Missing(Exception):
    """An object that the pod needs does not exist yet. ``podplan`` makes it a value."""


@dataclass(frozen=True, slots=True)
class PodRefused:
    """The pod fails, with this reason. The container is named if one is at fault."""

    reason: str
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The container waits for an object or an image, which the message names."""

    container: str
    message: str
    reason: str = "CreateContainerConfigError"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts about a pod and its node that the downward API gives."""

    pod: Json
    node_name: str
    allocatable: Mapping[str, str]
    access: ServerAccess = NO_ACCESS

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"].get("namespace", ""))


def references(pod: Json) -> list[tuple[Literal["ConfigMap", "Secret"], str]]:
    """Return the objects that the pod reads, each once."""
    spec = pod["spec"]
    found: dict[tuple[Literal["ConfigMap", "Secret"], str], None] = {}
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for source in (
            *(container.get("envFrom") or ()),
            *(e.get("valueFrom") or {} for e in container.get("env") or ()),
        ):
            note(found, source)
    for volume in spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            note(found, source)
    return list(found)


def note(found: dict[tuple[Literal["ConfigMap", "Secret"], str], None], source: Json) -> None:
    for key in ("configMapRef", "configMapKeyRef", "configMap"):
        if source.get(key):
            found["ConfigMap", source[key].get("name", "")] = None
    for key in ("secretRef", "secretKeyRef", "secret"):
        if source.get(key):
            found["Secret", source[key].get("name") or source[key].get("secretName", "")] = None


def resolve(container: Json, facts: PodFacts, objects: SettingsSource) -> dict[str, str]:
    """Return the variables that the container declares, without those that every container gets."""
    result: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        for key, text in sorted(source_data(source, facts, objects).items()):
            if ENVIRONMENT_NAME.fullmatch(prefix + key):
                result[prefix + key] = text
    for variable in container.get("env") or ():
        value = variable_value(variable, container, result, facts, objects)
        if value is not None:
            result[variable["name"]] = value
    return result


def source_data(source: Json, facts: PodFacts, objects: SettingsSource) -> dict[str, str]:
    if "configMapRef" in source:
        ref = source["configMapRef"]
        data = config_map_data(ref, facts.namespace, objects)
    else:
        ref = source.get("secretRef") or {}
        data = secret_data(ref, facts.namespace, objects)
    return {key: text.decode(errors="replace") for key, text in data.items()}


def config_map_data(ref: Json, namespace: str, objects: SettingsSource) -> dict[str, bytes]:
    name = ref.get("name", "")
    config_map = objects.config_map(namespace, name)
    if config_map is None:
        if ref.get("optional"):
            return {}
        raise Missing(f'configmap "{name}" not found')
    texts = {key: str(text).encode() for key, text in (config_map.get("data") or {}).items()}
    return texts | {key: base64.b64decode(text) for key, text in (config_map.get("binaryData") or {}).items()}


def secret_data(ref: Json, namespace: str, objects: SettingsSource) -> dict[str, bytes]:
    name = ref.get("name") or ref.get("secretName", "")
    secret = objects.secret(namespace, name)
    if secret is None:
        if ref.get("optional"):
            return {}
        raise Missing(f'secret "{name}" not found')
    return {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}


def variable_value(
    variable: Json, container: Json, known: Mapping[str, str], facts: PodFacts, objects: SettingsSource
) -> str | None:
    """Return the value of one entry of env; None if its source is optional and missing."""
    source = variable.get("valueFrom")
    if not source:
        return expand(variable.get("value") or "", known)
    if "fieldRef" in source:
        return field_text(source["fieldRef"].get("fieldPath", ""), facts)
    if "resourceFieldRef" in source:
        return resource_text(source["resourceFieldRef"], container, facts)
    for kind, data_of in (("configMapKeyRef", config_map_data), ("secretKeyRef", secret_data)):
        if kind in source:
            return key_text(source[kind], data_of(source[kind], facts.namespace, objects))
    raise PodCannotRun("InvalidPod", f"env {variable.get('name')}: valueFrom {', '.join(source)} is not supported")


def key_text(ref: Json, data: Mapping[str, bytes]) -> str | None:
    if ref.get("key") in data:
        return data[ref["key"]].decode(errors="replace")
    if ref.get("optional"):
        return None
    raise Missing(f"couldn't find key {ref.get('key')} in {ref.get('name')}")


def field_text(path: str, facts: PodFacts) -> str:
    """Return one field of the pod, as the downward API gives it."""
    meta, spec = facts.pod["metadata"], facts.pod.get("spec") or {}
    texts = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": facts.namespace,
        "metadata.uid": meta.get("uid"),
        "spec.nodeName": facts.node_name,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        **dict.fromkeys(("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"), ADDRESS),
    }
    if path in texts:
        return str(texts[path] or "")
    if path in ("metadata.labels", "metadata.annotations"):
        entries = meta.get(path.partition(".")[2]) or {}
        return "\n".join(f'{key}="{escape(value)}"' for key, value in sorted(entries.items()))
    if match := SUBSCRIPT.fullmatch(path):
        return str((meta.get(match[1]) or {}).get(match[2], ""))
    raise PodCannotRun("InvalidPod", f"fieldRef {path!r} is not supported")


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_text(ref: Json, container: Json, facts: PodFacts) -> str:
    """Return a request or limit in units of the divisor, rounded up. Without a limit, return that of the node."""
    which, _, resource = str(ref.get("resource", "")).partition(".")
    if which not in ("limits", "requests") or not resource:
        raise PodCannotRun("InvalidPod", f"resourceFieldRef {ref.get('resource')!r} is not supported")
    resources = container.get("resources") or {}
    text = (resources.get(which) or {}).get(resource)
    if text is None:
        text = facts.allocatable.get(resource, "0") if which == "limits" else "0"
    divisor = quantity.parse(ref.get("divisor") or "1").nanos or quantity.NANO
    return str(-(-quantity.parse(text).nanos // divisor))


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace $(NAME); $$ is a dollar; a name that is not known stays as it is."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else known.get(match[2], match[0])

    return REFERENCE.sub(replacement, text)


def ordered(spec: Json) -> list[tuple[Json, str]]:
    """Return all containers with their roles, in the order in which they start."""
    first = [(c, "sidecar" if c.get("restartPolicy") == "Always" else "init") for c in spec.get("initContainers") or ()]
    return first + [(container, "main") for container in spec["containers"]]
