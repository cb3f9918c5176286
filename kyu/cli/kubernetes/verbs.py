"""The verbs of kubectl for machines without it: get, describe, apply, delete. They accept the same names."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

from kyu.api import documents
from kyu.api.codec import Manifest
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import output
from kyu.cli.batch.jobs import EVENT
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.cli.sources import read_manifests
from kyu.kube.requests import collection_path, object_path

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind from the server's discovery, with the names that users may type."""

    kind: Kind
    names: frozenset[str]


def discover(server: ServerConnection) -> list[ServedKind]:
    """Return every kind of the server, preferred versions first."""
    found = []
    for path in group_paths(server):
        listed = json.loads(server.client.raw(path))
        group, _, version = listed["groupVersion"].rpartition("/")
        for item in listed["resources"]:
            if "/" in item["name"]:
                continue
            kind = Kind(group, version, item["kind"], item["name"], item["namespaced"])
            words = {
                item["name"],
                item.get("singularName") or "",
                item["kind"].lower(),
                *(item.get("shortNames") or ()),
            }
            qualified = {f"{word}.{group}" for word in words if group and word}
            found.append(ServedKind(kind, frozenset(words - {""} | qualified)))
    return found


def group_paths(server: ServerConnection) -> list[str]:
    groups = json.loads(server.client.raw("/apis"))["groups"]
    preferred = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
    others = [f"/apis/{v['groupVersion']}" for group in groups for v in group["versions"]]
    return list(dict.fromkeys(["/api/v1", *preferred, *others]))


def find_kind(server: ServerConnection, word: str) -> Kind:
    served = discover(server)
    for item in served:
        if word.lower() in item.names:
            return item.kind
    close = sorted({item.kind.plural for item in served if word.lower()[:4] in item.kind.plural})
    hint = f"; did you mean {', '.join(close[:5])}?" if close else ""
    raise BadInput(f"the server has no kind {word!r}{hint}")


def find_manifest_kind(served: list[ServedKind], obj: Json, source: str) -> Kind:
    for item in served:
        if (item.kind.api_version, item.kind.kind) == (obj.get("apiVersion"), obj.get("kind")):
            return item.kind
    raise BadInput(f"{source}: the server does not serve {obj.get('kind')} of {obj.get('apiVersion')}")


def place(server: ServerConnection, kind: Kind, name: str) -> Key:
    return Key(server.namespace if kind.namespaced else "", name)


def get_one(server: ServerConnection, kind: Kind, name: str) -> Json:
    with server.explain_forbidden(kind, server.namespace):
        return server.client.get(kind, place(server, kind, name))


def split(arguments: list[str]) -> tuple[str, list[str]]:
    """Split `job a b` or `job/a job/b` into the kind and the names."""
    if "/" not in arguments[0]:
        return arguments[0], arguments[1:]
    kinds = {argument.partition("/")[0] for argument in arguments}
    if len(kinds) > 1:
        raise BadInput("name objects of one kind at a time")
    return kinds.pop(), [argument.partition("/")[2] for argument in arguments]


def get(server: ServerConnection, args: argparse.Namespace) -> int:
    word, names = split(args.what)
    kind = find_kind(server, word)
    namespace = None if args.all_namespaces else server.namespace
    if args.output in ("json", "yaml", "name"):
        items = (
            [get_one(server, kind, name) for name in names]
            if names
            else list(server.listed(kind, namespace, args.selector))
        )
        typed = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
        print(output.objects(typed, args.output, is_list=len(names) != 1))
        return 0
    paths = [object_path(kind, place(server, kind, name)) for name in names] or [collection_path(kind, namespace)]
    with server.explain_forbidden(kind, namespace):
        tables = [server.client.table(path, TABLE, args.selector) for path in paths]
    rows = [row for table in tables for row in table["rows"]]
    if not rows:
        output.note(f"no {kind.plural} found" + (f" in namespace {server.namespace}" if namespace else ""))
        return 0
    columns = tables[0]["columnDefinitions"]
    shown = [i for i, column in enumerate(columns) if args.output == "wide" or column.get("priority", 0) == 0]
    header = [columns[i]["name"].upper() for i in shown]
    cells = [["" if row["cells"][i] is None else row["cells"][i] for i in shown] for row in rows]
    if args.all_namespaces and kind.namespaced:
        header.insert(0, "NAMESPACE")
        for row, line in zip(rows, cells, strict=True):
            line.insert(0, row["object"]["metadata"].get("namespace", ""))
    print(output.table(header, cells))
    return 0


def describe(server: ServerConnection, args: argparse.Namespace) -> int:
    word, names = split(args.what)
    kind = find_kind(server, word)
    if not names:
        names = [item["metadata"]["name"] for item in server.listed(kind, server.namespace)]
    for name in names:
        obj = get_one(server, kind, name)
        obj["metadata"].pop("managedFields", None)
        print(documents.render([{"apiVersion": kind.api_version, "kind": kind.kind, **obj}]).rstrip())
        print(events_of(server, kind, obj))
    return 0


def events_of(server: ServerConnection, kind: Kind, obj: Json) -> str:
    meta = obj["metadata"]
    selector = f"involvedObject.name={meta['name']},involvedObject.kind={kind.kind}"
    events = server.client.list(EVENT, meta.get("namespace") or "default", fields=selector)
    if not events:
        return "Events: none"
    ordered = sorted(events, key=lambda event: str(event.get("lastTimestamp")))
    rows = [
        [e.get("type"), e.get("reason"), output.age(e.get("lastTimestamp")), e.get("count", 1), e.get("message")]
        for e in ordered
    ]
    return "Events:\n" + output.table(["TYPE", "REASON", "AGE", "COUNT", "MESSAGE"], rows)


def apply(server: ServerConnection, args: argparse.Namespace) -> int:
    planned = listed(server, args.filename)
    output.note(f"on {server.description}")
    for kind, manifest in planned:
        obj = manifest.object
        obj["metadata"] = obj.get("metadata") or {}
        if kind.namespaced:
            obj["metadata"].setdefault("namespace", server.namespace)
        if "name" not in obj["metadata"]:
            created = server.client.create(kind, obj)
            print(f"{kind.plural}/{created['metadata']['name']} created")
            continue
        before = server.client.find(kind, key_of(obj))
        after = server.client.apply(kind, obj, force=args.force)
        unchanged = before and before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        done = "created" if before is None else ("unchanged" if unchanged else "configured")
        print(f"{kind.plural}/{obj['metadata']['name']} {done}")
    return 0


def delete(server: ServerConnection, args: argparse.Namespace) -> int:
    targets = delete_listed(server, args.filename) if args.filename else delete_named(server, args.what, args.all)
    output.note(f"on {server.description}")
    for kind, key in targets:
        server.client.delete(kind, key)
        print(f"{kind.plural}/{key.name} deleted")
    if not targets:
        output.note("nothing to delete")
    return 0


def delete_listed(server: ServerConnection, filenames: list[str]) -> list[tuple[Kind, Key]]:
    targets = []
    for kind, manifest in listed(server, filenames):
        name, namespace = manifest.key.name, manifest.key.namespace or server.namespace
        if not name:
            raise BadInput(str(manifest.fault("must be set, to know what to delete", "metadata.name")))
        targets.append((kind, Key(namespace if kind.namespaced else "", name)))
    return targets


def delete_named(server: ServerConnection, words: list[str], everything: bool) -> list[tuple[Kind, Key]]:
    word, names = split(words) if words else ("", [])
    if not names and not (word and everything):
        raise BadInput("kyu delete: name what to delete, for example `kyu delete job train`; all of a kind: --all")
    kind = find_kind(server, word)
    if everything:
        names = [item["metadata"]["name"] for item in server.client.list(kind, server.namespace)]
    return [(kind, place(server, kind, name)) for name in names]


def listed(server: ServerConnection, filenames: list[str]) -> list[tuple[Kind, Manifest]]:
    """Read all manifests with their kinds, before anything is changed."""
    manifests = [manifest for name in filenames for manifest in read_manifests(name)]
    if not manifests:
        raise BadInput(f"{', '.join(filenames)}: it contains no object")
    served = discover(server)
    return [(find_manifest_kind(served, m.object, m.source), m) for m in manifests]
