"""
Manage the users of a local server. A user has a token, and a role in each namespace that they may use.

    kyu user add ana --namespace team-a > ana.kubeconfig
    kyu user list
    kyu user add bob --expires 90d > bob.kubeconfig
    kyu user rotate ana > ana.kubeconfig      the old token becomes invalid at once
    kyu user rotate ana --keep-old 1h > ana.kubeconfig
                                              the old token stays valid for an hour
    kyu user remove ana
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

from kyu.api.core import SECRET, Namespace, Node
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import output, target
from kyu.cli.main import BadInput
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.runtime.nodes.node import ISOLATED, TRUSTED
from kyu.server.auth import tokens

RBAC = "rbac.authorization.k8s.io"
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
ROLES = ("batch-user", "batch-admin", "admin", "view")
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
TIME = re.compile(r"(\d{1,5})([mhd])")
MOST_UNITS = 10_000
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "list", "rotate", "remove"))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the user")
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NS",
        help="a namespace of the user; repeatable (default: default)",
    )
    parser.add_argument(
        "--role", choices=ROLES, default="batch-user", help="role in these namespaces (default: batch-user)"
    )
    parser.add_argument("--expires", default="", metavar="TIME", help="lifetime of the token, such as 12h or 90d")
    parser.add_argument("--keep-old", default="", metavar="TIME", help="rotate: how long the old token stays valid")
    target.arguments(parser)


def run(args: argparse.Namespace) -> int:
    chosen = target.choose(args)
    client = BlockingClient(chosen.credentials)
    try:
        if args.action == "list":
            return _list(client)
        if not NAME.fullmatch(args.name):
            raise BadInput(f"kyu user {args.action}: give a name of lower-case letters, digits, '-' and '.'")
        chosen.announce()
        match args.action:
            case "add":
                return _add(client, args)
            case "rotate":
                return _rotate(client, args)
            case _:
                return _remove(client, args.name)
    finally:
        client.close()


def _add(client: BlockingClient, args: argparse.Namespace) -> int:
    name: str = args.name
    namespaces: list[str] = args.namespace or ["default"]
    if client.find(SECRET, _secret_key(name)) is not None:
        raise BadInput(f"user {name} exists; `kyu user rotate {name}` creates a new token")
    _require_isolation(client)
    for namespace in namespaces:
        if client.find(Namespace.KIND, Key("", namespace)) is None:
            raise BadInput(f"namespace {namespace} does not exist; `kubectl create namespace {namespace}` creates it")
    for namespace in namespaces:
        client.apply(ROLE_BINDING, _binding(name, namespace, args.role), force=True)
    token = tokens.new_token()
    client.create(SECRET, tokens.token_secret(name, (), token, expires=_end("--expires", args.expires)))
    print(_kubeconfig(client, name, token, namespaces[0]), end="")
    return 0


def _require_isolation(client: BlockingClient) -> None:
    """Reject a second user if a node runs all pods as one Unix user and its owner has not accepted that."""
    for node in client.list(Node.KIND):
        for condition in (node.get("status") or {}).get("conditions") or ():
            if condition["type"] == ISOLATED and condition["status"] == "False" and condition["reason"] != TRUSTED:
                raise BadInput(
                    f"node {node['metadata']['name']} does not isolate users from each other ({condition['message']}). "
                    "Run `kyu up` as root to isolate them, or accept it with `kyu up --trust-users`"
                )


def _rotate(client: BlockingClient, args: argparse.Namespace) -> int:
    name: str = args.name
    expires, keep_until = _end("--expires", args.expires), _end("--keep-old", args.keep_old)
    known = tokens.read_secret(_secret(client, name))
    old = None
    if keep_until is not None and known.tokens:
        old = tokens.Token(known.tokens[0].sha256, min(known.tokens[0].expires, keep_until.timestamp()))
    token = tokens.new_token()
    client.apply(SECRET, tokens.token_secret(name, known.groups, token, expires=expires, old=old), force=True)
    bindings = client.list(ROLE_BINDING, labels=f"{tokens.USER_LABEL}={name}")
    namespaces = sorted(binding["metadata"]["namespace"] for binding in bindings)
    print(_kubeconfig(client, name, token, namespaces[0] if namespaces else "default"), end="")
    return 0


def _remove(client: BlockingClient, name: str) -> int:
    _secret(client, name)
    client.delete(SECRET, _secret_key(name))
    for binding in client.list(ROLE_BINDING, labels=f"{tokens.USER_LABEL}={name}"):
        client.delete(ROLE_BINDING, key_of(binding))
    print(f"removed {name}; their objects are kept")
    return 0


def _list(client: BlockingClient) -> int:
    bindings = client.list(ROLE_BINDING, labels=tokens.USER_LABEL)
    rows = []
    for secret in client.list(SECRET, tokens.NAMESPACE, labels=tokens.USER_LABEL):
        known = tokens.read_secret(secret)
        name = known.user
        roles = [
            f"{binding['roleRef']['name']} in {binding['metadata']['namespace']}"
            for binding in bindings
            if (binding["metadata"].get("labels") or {}).get(tokens.USER_LABEL) == name
        ]
        ends = _end_shown(known.tokens[0].expires if known.tokens else 0.0)
        rows.append([name, ", ".join(sorted(roles)) or ", ".join(known.groups) or "no rights", ends])
    print(output.table(["USER", "ROLES", "TOKEN ENDS"], rows))
    return 0


def _end(option: str, text: str) -> datetime | None:
    """Return the time at which a token ends, from now."""
    if not text:
        return None
    match = TIME.fullmatch(text)
    if match is None or not 0 < int(match[1]) <= MOST_UNITS:
        raise BadInput(f"kyu user: {option} {text}: a time is wanted, such as 30m, 12h or 90d")
    return datetime.now(UTC) + int(match[1]) * UNITS[match[2]]


def _end_shown(seconds: float) -> str:
    if seconds == tokens.NEVER:
        return "never"
    ends = datetime.fromtimestamp(seconds, UTC)
    return f"{ends:%Y-%m-%d %H:%M} UTC" if ends > datetime.now(UTC) else "ended"


def _secret(client: BlockingClient, name: str) -> Json:
    secret = client.find(SECRET, _secret_key(name))
    if secret is None:
        raise BadInput(f"there is no user {name}; `kyu user list` shows all users")
    return secret


def _secret_key(name: str) -> Key:
    return Key(tokens.NAMESPACE, tokens.secret_name(name))


def _binding(user: str, namespace: str, role: str) -> Json:
    return {
        "metadata": {"name": f"user-{user}", "namespace": namespace, "labels": {tokens.USER_LABEL: user}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


def _kubeconfig(client: BlockingClient, name: str, token: str, namespace: str) -> str:
    credentials = client.credentials
    return kubeconfig.render(credentials.server, credentials.authority, name, token, namespace)
