"""
Give groups of this machine's accounts a namespace and a queue.

    kyu team add physics --group physics              a queue of its own in the quota of all
    kyu team add physics --group physics --cpu 16 --memory 64Gi
                                                      the same with a quota of its own
    kyu team list

A team is a small Tenant: `kyu tenant` has parents, weights, borrowing and more.
"""

from __future__ import annotations

import argparse

from kyu.api import names, quantity
from kyu.api.accounting import UNIX_PREFIX
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key
from kyu.cli import connection, output
from kyu.cli.admin.tenant import MANAGER, find_roles
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.tenants import objects
from kyu.tenants.tenant import FlavorQuota, People, Tenant, TenantSpec

SHARED_QUEUE = "local"
SHARED_FLAVOR = "local"
RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "list"))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the team, and its namespace")
    parser.add_argument("--group", action="append", default=[], help="a group of Unix accounts; repeatable")
    parser.add_argument("--user", action="append", default=[], help="a single Unix account; repeatable")
    parser.add_argument("--queue", default="default", metavar="NAME", help="name of the queue (default: default)")
    for option in RESOURCES:
        parser.add_argument(f"--{option}", default="", metavar="N", help=f"a quota of its own: {option}")
    connection.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.action == "add" and (why := names.why_not_dns_label(args.name)):
        raise BadInput(f"kyu team add: the name {args.name!r}: {why}")
    server = connection.connect(args)
    return show(server) if args.action == "list" else add(server, args)


def add(server: ServerConnection, args: argparse.Namespace) -> int:
    team = make_tenant(args)
    if not team.spec.members.groups and not team.spec.members.users:
        raise BadInput("kyu team add: name the accounts with --group or --user")
    if not team.spec.quotas and server.client.find(ClusterQueue.KIND, Key("", SHARED_QUEUE)) is None:
        raise BadInput(f"kyu team add: there is no ClusterQueue {SHARED_QUEUE} to share; give a quota with --cpu")
    output.note(f"on {server.description}")
    for obj in objects.make_objects([team], roles=find_roles(server)):
        kind = next(kind for kind in objects.KINDS if kind.kind == obj["kind"])
        # The queue that all teams share belongs to no team.
        if kind != ClusterQueue.KIND or team.spec.quotas:
            server.client.apply(kind, obj, force=True, manager=MANAGER)
    members = [*(f"group {group}" for group in args.group), *(f"user {user}" for user in args.user)]
    print(f"{', '.join(members)} may submit to queue {args.queue} of namespace {args.name}")
    return 0


def make_tenant(args: argparse.Namespace) -> Tenant:
    """Return the team as a Tenant. Without a quota of its own it uses the queue of all."""
    amounts = {resource: getattr(args, option) for option, resource in RESOURCES.items() if getattr(args, option)}
    for resource, amount in amounts.items():
        try:
            quantity.amount(resource, amount)
        except quantity.QuantityError as error:
            raise BadInput(f"kyu team add: {resource} {amount}: {error}") from None
    members = People(
        tuple(f"{UNIX_PREFIX}{user}" for user in args.user), tuple(f"{UNIX_PREFIX}{group}" for group in args.group)
    )
    quotas = (FlavorQuota(SHARED_FLAVOR, amounts),) if amounts else ()
    cluster_queue = args.name if amounts else SHARED_QUEUE
    spec = TenantSpec(members=members, quotas=quotas, cluster_queue=cluster_queue, queue_name=args.queue)
    return Tenant(args.name, spec)


def show(server: ServerConnection) -> int:
    rows = []
    for binding in server.listed(objects.ROLE_BINDING, None, labels=objects.TENANT_LABEL):
        team, namespace = binding["metadata"]["labels"][objects.TENANT_LABEL], binding["metadata"]["namespace"]
        subjects = [subject["name"] for subject in binding.get("subjects") or ()]
        rows.append([team, namespace, ", ".join(subjects), queues_of(server, namespace)])
    print(output.table(["TEAM", "NAMESPACE", "MEMBERS", "QUEUES"], sorted(rows)))
    return 0


def queues_of(server: ServerConnection, namespace: str) -> str:
    found: list[Json] = list(server.listed(LocalQueue.KIND, namespace))
    return ", ".join(sorted(queue["metadata"]["name"] for queue in found))
