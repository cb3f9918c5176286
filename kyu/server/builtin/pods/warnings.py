"""
Warnings about pod specs: deprecated labels, annotations and volumes, duplicates, ambiguous ports.

Kubernetes: pkg/api/pod/warnings.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.api.names import label

# (object, old object or None) -> warnings
Warn: TypeAlias = Callable[[Json, Json | None], Iterable[str]]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
# Deprecated label of nodes -> (version of the deprecation, new label)
OLD_LABELS: Final = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
# Prefix of a deprecated annotation -> (its state, the field that replaces it)
OLD_ANNOTATIONS: Final = {
    "seccomp.security.alpha.kubernetes.io/pod": ("non-functional in v1.27+", "seccompProfile"),
    "container.seccomp.security.alpha.kubernetes.io/": ("non-functional in v1.27+", "seccompProfile"),
    "scheduler.alpha.kubernetes.io/critical-pod": ("non-functional in v1.16+", "priorityClassName"),
    "security.alpha.kubernetes.io/sysctls": ("non-functional in v1.11+", "sysctls"),
    "security.alpha.kubernetes.io/unsafe-sysctls": ("non-functional in v1.11+", "sysctls"),
}
OLD_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
# Volumes with another name in the warning.
SHOWN_VOLUMES: Final = {"storageos": "storageOS"}
NO_SELECTOR: Final = "a null labelSelector results in matching no pod"
# Each port is compared with so many others.
COMPARED_PORTS: Final = 100
HIDDEN: Final = "which may be dropped when using apply"


def pod_warnings(pod: Json, old: Json | None) -> Iterator[str]:
    if old is None:
        yield from _name(pod, "the Pod's hostname")
    yield from _spec(pod, "spec")


def template_warnings(path: str, *, is_named_after: bool = False) -> Warn:
    """Return the warnings of a kind with a pod template. ``is_named_after``: its name is a prefix of pod names."""

    def warn(obj: Json, old: Json | None) -> Iterator[str]:
        if old is None and is_named_after:
            yield from _name(obj, "Pod names and hostnames")
        if old is None or old["metadata"].get("generation") != obj["metadata"].get("generation"):
            template = obj
            for name in path.split("."):
                template = template.get(name) or {}
            yield from _spec(template, f"{path}.spec")

    return warn


def _name(obj: Json, use: str) -> Iterator[str]:
    """Warn about a name that is no host name."""
    if objections := label(obj["metadata"].get("name", "")):
        advice = "which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: this is used in {use}, {advice}: [{' '.join(objections)}]"


def _spec(pod: Json, path: str) -> Iterator[str]:
    """Yield the warnings of a Pod or pod template; the path is that of its spec."""
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    yield from _old_labels(spec, affinity.get("nodeAffinity") or {}, path)
    yield from _spread(spec, f"{path}.topologySpreadConstraints")
    above = path.removesuffix("spec")
    for name in (pod.get("metadata") or {}).get("annotations") or ():
        yield from _annotation(name, f"{above}metadata.annotations[{name}]")
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, f"{path}.volumes[{index}]")
    if "hostAliases" in spec or "imagePullSecrets" in spec:
        yield from _duplicates(spec, path)
    yield from _fractions(spec.get("overhead") or {}, f"{path}.overhead")
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield from _container(container, f"{path}.{group}[{index}]")
    yield from _ports(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {detail}"
    for name in ("podAffinity", "podAntiAffinity"):
        if name in affinity:
            yield from _pod_affinity(affinity[name] or {}, f"{path}.affinity.{name}")


def _old_label(name: str) -> str:
    if name not in OLD_LABELS:
        return ""
    since, new = OLD_LABELS[name]
    return f'deprecated since {since}; use "{new}" instead'


def _old_labels(spec: Json, affinity: Json, path: str) -> Iterator[str]:
    for name in spec.get("nodeSelector") or ():
        if advice := _old_label(name):
            yield f"{path}.nodeSelector[{name}]: {advice}"
    path = f"{path}.affinity.nodeAffinity"
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from _term(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED) or ()):
        yield from _term(preferred.get("preference") or {}, f"{path}.{PREFERRED}[{index}].preference")


def _term(term: Json, path: str) -> Iterator[str]:
    for index, rule in enumerate(term.get("matchExpressions") or ()):
        if advice := _old_label(rule.get("key", "")):
            yield f"{path}.matchExpressions[{index}].key: {rule['key']} is {advice}"


def _spread(spec: Json, path: str) -> Iterator[str]:
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        if advice := _old_label(constraint.get("topologyKey", "")):
            yield f"{path}[{index}].topologyKey: {constraint['topologyKey']} is {advice}"
        if constraint.get("labelSelector") is None:
            yield f"{path}[{index}].labelSelector: {NO_SELECTOR}"


def _pod_affinity(affinity: Json, path: str) -> Iterator[str]:
    for index, term in enumerate(affinity.get(REQUIRED) or ()):
        if term.get("labelSelector") is None:
            yield f"{path}.{REQUIRED}[{index}].labelSelector: {NO_SELECTOR}"
    for index, preferred in enumerate(affinity.get(PREFERRED) or ()):
        if (preferred.get("podAffinityTerm") or {}).get("labelSelector") is None:
            yield f"{path}.{PREFERRED}[{index}].podAffinityTerm.labelSelector: {NO_SELECTOR}"


def _annotation(name: str, path: str) -> Iterator[str]:
    for start, (state, field) in OLD_ANNOTATIONS.items():
        if name == start or (start.endswith("/") and name.startswith(start)):
            yield f'{path}: {state}; use the "{field}" field instead'


def _volume(volume: Json, path: str) -> Iterator[str]:
    for kind, state in OLD_VOLUMES.items():
        if volume.get(kind) is not None:
            yield f"{path}.{SHOWN_VOLUMES.get(kind, kind)}: {state}"
    claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
    for group in ("requests", "limits"):
        amounts = (claim.get("resources") or {}).get(group) or {}
        yield from _fractions(amounts, f"{path}.ephemeral.volumeClaimTemplate.spec.resources.{group}")
    if {} in ((volume.get("projected") or {}).get("sources") or ()):
        yield f'volume "{volume.get("name", "")}" (Projected) has no sources provided'


def _duplicates(spec: Json, path: str) -> Iterator[str]:
    addresses = [alias.get("ip", "") for alias in spec.get("hostAliases") or ()]
    seen: set[str] = set()
    for index, address in enumerate(addresses):
        if address in seen:
            yield f'{path}.hostAliases[{index}].ip: duplicate ip "{address}"'
        seen.add(address)
    names = [secret.get("name", "") for secret in spec.get("imagePullSecrets") or ()]
    seen.clear()
    for index, name in enumerate(names):
        if name in seen:
            yield f'{path}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        seen.add(name)
    for index, name in enumerate(names):
        if not name:
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _fractions(amounts: Json, path: str) -> Iterator[str]:
    """Warn about fractions of bytes."""
    for name in ("memory", "ephemeral-storage", "storage"):
        if name in amounts and (amount := quantity.parse(amounts[name])).nanos % quantity.NANO:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


def _container(container: Json, path: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for group in ("limits", "requests"):
        yield from _fractions(resources.get(group) or {}, f"{path}.resources.{group}")
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name", "")
        # A value that refers to the previous one is intended.
        if name in seen and f"$({name})" not in (variable.get("value") or ""):
            yield f'{path}.env[{index}]: hides previous definition of "{name}", {HIDDEN}'
        seen.add(name)


def _ports(spec: Json, path: str) -> Iterator[str]:
    earlier: list[tuple[str, str, Json]] = []
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or ()):
            here = f"{path}.{group}[{number}]"
            for index, port in enumerate(container.get("ports") or ()):
                place = f"{here}.ports[{index}]"
                if port.get("hostIP") and not port.get("hostPort"):
                    yield f"{place}: hostIP set without hostPort: {_go_port(port)}"
                for other, owner, before in earlier:
                    if clash := _clash(port, before):
                        yield f"{place}: {clash} port definition with {other}"
                    elif port.get("name") and port["name"] == before.get("name") and owner != here:
                        use = f"services and probes that select ports by name will use {other}"
                        yield f'{place}: duplicate port name "{port["name"]}" with {other}, {use}'
                if len(earlier) < COMPARED_PORTS:
                    earlier.append((place, here, port))


def _clash(port: Json, other: Json) -> str:
    if any(port.get(name) != other.get(name) for name in ("containerPort", "protocol")):
        return ""
    ours, theirs = (
        (port.get("hostPort", 0), port.get("hostIP", "")),
        (other.get("hostPort", 0), other.get("hostIP", "")),
    )
    if ours == theirs:
        return "duplicate"
    if ours[0] != theirs[0]:
        return ""
    # The same port on one address and on all addresses.
    return ("dangerously ambiguous" if ours[0] else "overlapping") if not (ours[1] and theirs[1]) else ""


def _go_port(port: Json) -> str:
    shown = {"Name": port.get("name", ""), "HostPort": port.get("hostPort", 0), "ContainerPort": port["containerPort"]}
    shown |= {"Protocol": port.get("protocol", ""), "HostIP": port.get("hostIP", "")}
    return "{" + " ".join(f"{name}:{value}" for name, value in shown.items()) + "}"
