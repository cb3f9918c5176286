"""
Turn a file of Tenants into queues, namespaces and rights, and keep them as the file says.

    kyu tenant plan -f tenants.yaml      show what would be created or changed, and what was changed by hand
    kyu tenant apply -f tenants.yaml     create and change it; fields that others own are not overwritten
    kyu tenant export -f tenants.yaml --to manifests|yunikorn|skypilot|helm

`plan` ends with 0 if the server is as the file says, and with 1 if not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kyu.api import documents
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import connection, output, sources
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kube.errors import Conflict
from kyu.tenants import exports, objects
from kyu.tenants.tenant import Tenant, TenantError, read

MANAGER = "kyu-tenant"
# The ClusterRoles of members and administrators: of `kyu up`, and of an installation on a cluster.
ROLES = (("batch-user", "batch-admin"), ("kueue-batch-user-role", "kueue-batch-admin-role"))
CLUSTER_ROLE = Kind(objects.RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
# Fields that the server fills in, or that are no business of the file.
IGNORED = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
State = Literal["created", "changed", "changed by hand", "as it should be", "left over"]


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (("plan", "show what would change"), ("apply", "make it so"), ("export", "print settings")):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("-f", "--filename", action="append", required=True, metavar="FILE", help="file, folder or -")
        if verb == "export":
            choices = ["manifests", "yunikorn", "skypilot", "helm"]
            sub.add_argument("--to", choices=choices, default="manifests", help="what to print (default: manifests)")
            sub.add_argument("--tenant", default="", help="with skypilot and helm: the Tenant")
            sub.add_argument("--labels", action="store_true", help="with skypilot and helm: name the queue by a label")
            sub.add_argument("--cluster", action="store_true", help="with manifests: roles as on a cluster")
        else:
            connection.arguments(sub)
        if verb == "apply":
            sub.add_argument("--force", action="store_true", help="overwrite what was changed by hand")


def run(args: argparse.Namespace) -> int:
    try:
        tenants = read(manifest for name in args.filename for manifest in sources.read_manifests(name))
    except TenantError as error:
        raise BadInput(str(error)) from None
    if args.verb == "export":
        print(documents.render(list(exported(args, tenants))), end="")
        return 0
    server = connection.connect(args)
    output.note(f"on {server.description}")
    wanted = objects.make_objects(tenants, roles=find_roles(server))
    steps = [*(look(server, obj) for obj in wanted), *left_over(server, tenants, wanted)]
    if args.verb == "plan":
        return show(steps)
    return apply(server, steps, force=args.force)


def exported(args: argparse.Namespace, tenants: list[Tenant]) -> Iterator[Json]:
    if args.to == "manifests":
        yield from objects.make_objects(tenants, roles=ROLES[1 if args.cluster else 0])
        return
    if args.to == "yunikorn":
        yield exports.yunikorn(tenants)
        return
    make: Callable[[Tenant, exports.Style], Json] = exports.skypilot if args.to == "skypilot" else exports.helm_values
    with_queue = {tenant.name: tenant for tenant in tenants if tenant.namespaces}
    if args.tenant not in with_queue:
        raise BadInput(f"kyu tenant export --to {args.to}: choose one with --tenant: {', '.join(with_queue)}")
    yield make(with_queue[args.tenant], "labels" if args.labels else "queue")


def find_roles(server: ServerConnection) -> tuple[str, str]:
    """Return the ClusterRoles that this server has."""
    for roles in ROLES:
        if server.client.find(CLUSTER_ROLE, Key("", roles[0])) is not None:
            return roles
    return ROLES[0]


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object of the file, or one that is left over, and how it differs from the server."""

    obj: Json
    state: State
    differences: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return next(kind for kind in objects.KINDS if kind.kind == self.obj["kind"])

    def __str__(self) -> str:
        return f"{self.kind.plural}/{str(key_of(self.obj)).lstrip('/')}"


def look(server: ServerConnection, obj: Json) -> PlannedObject:
    """Ask the server, without changing it, what the object of the file would change."""
    kind = next(kind for kind in objects.KINDS if kind.kind == obj["kind"])
    live = server.client.find(kind, key_of(obj))
    if live is None:
        return PlannedObject(obj, "created")
    wanted = server.client.apply(kind, obj, force=True, dry_run=True, manager=MANAGER)
    differences = tuple(compare(cleaned(live), cleaned(wanted)))
    if not differences:
        return PlannedObject(obj, "as it should be")
    try:
        server.client.apply(kind, obj, dry_run=True, manager=MANAGER)
    except Conflict:
        return PlannedObject(obj, "changed by hand", differences)
    return PlannedObject(obj, "changed", differences)


def cleaned(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in IGNORED}
    return {
        **{name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "status")},
        "metadata": metadata,
    }


def compare(live: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Yield the fields that differ, as `spec.x: 4 -> 8`."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        for name in sorted(live.keys() | wanted.keys()):
            yield from compare(live.get(name), wanted.get(name), f"{path}.{name}" if path else name)
    elif isinstance(live, list) and isinstance(wanted, list) and len(live) == len(wanted):
        for index, (one, other) in enumerate(zip(live, wanted, strict=True)):
            yield from compare(one, other, f"{path}[{index}]")
    elif live != wanted:
        yield f"{path}: {live} -> {wanted}"


def left_over(server: ServerConnection, tenants: Iterable[Tenant], wanted: list[Json]) -> Iterator[PlannedObject]:
    """Yield the objects of these Tenants on the server that the file does not name any more."""
    known = {(obj["kind"], key_of(obj)) for obj in wanted}
    names = ",".join(sorted(tenant.name for tenant in tenants))
    for kind in objects.KINDS:
        for item in server.client.list(kind, labels=f"{objects.TENANT_LABEL} in ({names})"):
            if (kind.kind, key_of(item)) not in known:
                yield PlannedObject({**item, "kind": kind.kind}, "left over")


def show(steps: list[PlannedObject]) -> int:
    differing = [step for step in steps if step.state != "as it should be"]
    words = {"created": "create", "changed": "change", "changed by hand": "changed by hand", "left over": "left over"}
    for step in differing:
        print(f"{words[step.state]}: {step}")
        for line in step.differences:
            print(f"  {line}")
    same = len(steps) - len(differing)
    output.note(f"{same} of {len(steps)} objects are as the file says")
    return 1 if differing else 0


def apply(server: ServerConnection, steps: list[PlannedObject], *, force: bool) -> int:
    """Apply the objects. Those that were changed by hand are left alone unless forced, and named."""
    kept = 0
    for step in steps:
        if step.state == "left over":
            output.note(f"{step} is left over: the file does not name it any more; delete it if nothing uses it")
        elif step.state == "changed by hand" and not force:
            kept += 1
            print(f"{step} was changed by hand and is kept:")
            for line in step.differences:
                print(f"  {line}")
        else:
            server.client.apply(step.kind, step.obj, force=force, manager=MANAGER)
            print(f"{step} {'unchanged' if step.state == 'as it should be' else step.state}")
    if kept:
        output.note(f"{kept} object(s) differ from the file; --force overwrites them")
    return 1 if kept else 0
