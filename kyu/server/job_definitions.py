"""
The definitions of job kinds that a server is born with, until a user brings their own.

They are applied under the name that `kubectl apply --server-side` goes by, so that a user's definition of the same kind
takes the place of ours whole, without a conflict. From then on it is theirs, and later starts leave it alone.
"""

from __future__ import annotations

from kyu.api.meta import Json
from kyu.kinds import crds
from kyu.server.api import INTERNAL, Api
from kyu.server.bootstrap import FINGERPRINT, fingerprint_of, has_fingerprint
from kyu.server.options import WriteOptions
from kyu.server.paths import Target
from kyu.server.representations import decode

MANAGER = "kubectl"
BUILT_IN = "kyu.dev/built-in"


async def ensure(api: Api) -> None:
    """Create the definitions that are missing, and bring those up to date that have no other writer."""
    resource = api.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert resource is not None
    for definition in crds.definitions():
        name = definition["metadata"]["name"]
        fingerprint = fingerprint_of(definition)
        record = api.store.latest(resource.storage, "", name)
        if record is not None and (has_fingerprint(record, fingerprint) or not is_ours(decode(record.value))):
            continue
        target, body = Target(resource, None, name), marked(definition, fingerprint)
        api.writes.apply_object(target, body, WriteOptions(MANAGER, force=True), INTERNAL)
    await api.store.flush()


def marked(definition: Json, fingerprint: str) -> Json:
    metadata = definition["metadata"]
    annotations = {**metadata.get("annotations", {}), BUILT_IN: "true", FINGERPRINT: fingerprint}
    return {**definition, "metadata": {**metadata, "annotations": annotations}}


def is_ours(stored: Json) -> bool:
    """Return whether a definition has the mark of the server, and no other writer."""
    metadata = stored["metadata"]
    writers = {
        (entry.get("manager"), entry.get("operation"))
        for entry in metadata.get("managedFields") or ()
        if not entry.get("subresource")
    }
    return BUILT_IN in (metadata.get("annotations") or {}) and writers == {(MANAGER, "Apply")}
