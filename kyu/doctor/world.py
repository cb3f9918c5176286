"""
The objects that the doctor looks at, and its findings.

Objects stay JSON, so that a finding about one object does not need the others to be valid. A reference is only followed
to a kind of which at least one object is there: files may describe a part of a cluster.

Called by: doctor/examine.py, and every check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kyu.api import quantity
from kyu.api.meta import Json

Severity = Literal["error", "warning"]
UNLIMITED_FROM = 10**6
"""A quota of so many cores or devices stands for 'no limit' in practice."""


class DoctorFinding(NamedTuple):
    """A fault of the configuration: what it is, where it is, why it matters, and how to mend it."""

    code: str
    severity: Severity
    object: str
    where: str
    what: str
    why: str
    remedy: str


class FoundObject(NamedTuple):
    """An object and the place that it was read from."""

    object: Json
    where: str

    @property
    def name(self) -> str:
        """The name, or the prefix of the name."""
        metadata = section(self.object, "metadata")
        return str(metadata.get("name") or metadata.get("generateName") or "")

    @property
    def namespace(self) -> str:
        """The namespace; `default` if the object does not say."""
        return str(section(self.object, "metadata").get("namespace") or "default")

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec; empty if it is no object."""
        return section(self.object, "spec")

    @property
    def labels(self) -> Mapping[str, Any]:
        """The labels."""
        return section(section(self.object, "metadata"), "labels")

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The annotations."""
        return section(section(self.object, "metadata"), "annotations")

    @property
    def title(self) -> str:
        """The kind and name."""
        kind = str(self.object.get("kind") or "document")
        scope = f"{self.namespace}/" if kind not in CLUSTER_KINDS and kind != "document" else ""
        return f"{kind} {scope}{self.name}".strip()

    def error(self, code: str, what: str, why: str, remedy: str) -> DoctorFinding:
        """Return a finding that keeps something from working."""
        return DoctorFinding(code, "error", self.title, self.where, what, why, remedy)

    def warning(self, code: str, what: str, why: str, remedy: str) -> DoctorFinding:
        """Return a finding about something that works, but not as it looks."""
        return DoctorFinding(code, "warning", self.title, self.where, what, why, remedy)


CLUSTER_KINDS = frozenset(
    {
        "AdmissionCheck", "ClusterQueue", "Cohort", "Configuration", "MasterQueue", "Namespace", "Node",
        "PriorityClass", "ProvisioningRequestConfig", "ResourceFlavor", "Topology", "WorkloadPriorityClass",
    }
)  # fmt: skip


def section(body: Any, name: str) -> Mapping[str, Any]:
    """Return an object within an object; empty if there is none."""
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def items(body: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list within an object."""
    found = body.get(name) if isinstance(body, dict | Mapping) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def texts(body: Any, name: str) -> list[str]:
    """Return the texts of a list within an object."""
    found = body.get(name) if isinstance(body, dict | Mapping) else None
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def amount_of(resource: str, value: Any) -> int | None:
    """Return an amount as the engine counts it; None if the value is no quantity."""
    try:
        return quantity.quota_amount(resource, value)
    except (quantity.QuantityError, TypeError):
        return None


class ListedQuota(NamedTuple):
    """One resource of one flavor of a ClusterQueue or Cohort."""

    flavor: str
    resource: str
    body: Mapping[str, Any]

    @property
    def nominal(self) -> int:
        """The nominal quota; 0 if it is not readable."""
        return amount_of(self.resource, self.body.get("nominalQuota", 0)) or 0

    @property
    def is_unlimited(self) -> bool:
        """The quota is so large that nothing ever reaches it."""
        unit = 1000 if self.resource == "cpu" else 2**30 if quantity.is_byte_like(self.resource) else 1
        return self.nominal >= UNLIMITED_FROM * unit


def quotas_of(placed: FoundObject) -> Iterator[ListedQuota]:
    """Yield the quotas of a ClusterQueue or Cohort."""
    for group in items(placed.spec, "resourceGroups"):
        for flavor in items(group, "flavors"):
            for resource in items(flavor, "resources"):
                yield ListedQuota(str(flavor.get("name", "")), str(resource.get("name", "")), resource)


def cohort_of(placed: FoundObject) -> str:
    """Return the cohort of a ClusterQueue, or the parent of a Cohort, in any version of the API."""
    spec = placed.spec
    return str(spec.get("cohortName") or spec.get("cohort") or spec.get("parentName") or spec.get("parent") or "")


def checks_of(placed: FoundObject) -> list[Mapping[str, Any]]:
    """Return the admission checks of a ClusterQueue, each with the flavors it is for."""
    plain: list[Mapping[str, Any]] = [{"name": name} for name in texts(placed.spec, "admissionChecks")]
    return plain + items(section(placed.spec, "admissionChecksStrategy"), "admissionChecks")


@dataclass(slots=True)
class World:
    """All objects, by kind."""

    objects: list[FoundObject]
    live: bool = False
    """The objects are those of a server, so that all of them are known."""
    _by_kind: dict[str, list[FoundObject]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for placed in self.objects:
            self._by_kind.setdefault(str(placed.object.get("kind") or ""), []).append(placed)

    def all(self, kind: str) -> list[FoundObject]:
        """Return the objects of a kind."""
        return self._by_kind.get(kind, [])

    def names(self, kind: str) -> set[str]:
        """Return the names of the objects of a kind, without namespaces."""
        return {placed.name for placed in self.all(kind)}

    def knows(self, kind: str) -> bool:
        """Return whether references to a kind can be followed."""
        return self.live or bool(self.all(kind))

    def cluster_queues(self) -> set[str]:
        """Return the ClusterQueues that exist, or that a MasterQueue makes."""
        made = {placed.name for placed in self.all("MasterQueue")}
        for placed in self.all("MasterQueue"):
            for flavor in items(placed.spec, "flavors"):
                made |= {str(lent.get("queue")) for lent in items(flavor, "canLendTo")}
        return self.names("ClusterQueue") | made

    def find_cluster_queue(self, namespace: str, local_queue: str) -> FoundObject | None:
        """Return the ClusterQueue behind a LocalQueue."""
        for door in self.all("LocalQueue"):
            if (door.namespace, door.name) == (namespace, local_queue):
                wanted = door.spec.get("clusterQueue")
                return next((queue for queue in self.all("ClusterQueue") if queue.name == wanted), None)
        return None

    def follows_clusters(self, cluster_queue: str) -> bool:
        """Return whether a CapacityQuota sets the quota of the ClusterQueue."""
        return any(placed.spec.get("clusterQueue") == cluster_queue for placed in self.all("CapacityQuota"))

    def members(self, cohort: str) -> list[FoundObject]:
        """Return the ClusterQueues and Cohorts directly in a cohort."""
        found: Iterable[FoundObject] = (*self.all("ClusterQueue"), *self.all("Cohort"))
        return [placed for placed in found if cohort and cohort_of(placed) == cohort]
