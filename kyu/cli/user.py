"""
Users of a Kyu server: each has a token, and a role in the namespaces that they may submit to.

    kyu user add ana --namespace team-a > ana.kubeconfig
    kyu user list
    kyu user rotate ana > ana.kubeconfig      the old token ends at once
    kyu user remove ana
"""

from __future__ import annotations

import argparse
import re

from kyu.api.core import SECRET, Namespace, Node
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import output, target
from kyu.cli.main import BadInput
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.runtime.node import ISOLATED, TRUSTED
from kyu.server import tokens

RBAC = "rbac.authorization.k8s.io"
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
ROLES = ("batch-user", "batch-admin", "admin", "view")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "list", "rotate", "remove"))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the user")
    parser.add_argument("-n", "--namespace", action="append", default=[], metavar="NS", help="where; may be repeated")
    parser.add_argument("--role", choices=ROLES, default="batch-user", help="what; default: batch-user")
    target.arguments(parser)


def run(args: argparse.Namespace) -> int:
    chosen = target.choose(args)
    client = BlockingClient(chosen.credentials)
    try:
        if args.action == "list":
            return _list(client)
        if not NAME.fullmatch(args.name):
            raise BadInput(f"kyu user {args.action}: a name is wanted: small letters, digits, '-' and '.'")
        chosen.announce()
        match args.action:
            case "add":
                return _add(client, args)
            case "rotate":
                return _rotate(client, args.name)
            case _:
                return _remove(client, args.name)
    finally:
        client.close()


def _add(client: BlockingClient, args: argparse.Namespace) -> int:
    name: str = args.name
    namespaces: list[str] = args.namespace or ["default"]
    if client.find(SECRET, _secret_key(name)) is not None:
        raise BadInput(f"user {name} exists; `kyu user rotate {name}` gives a new token")
    _refuse_strangers(client)
    for namespace in namespaces:
        if client.find(Namespace.KIND, Key("", namespace)) is None:
            raise BadInput(f"namespace {namespace} does not exist; `kubectl create namespace {namespace}` makes it")
    for namespace in namespaces:
        client.apply(ROLE_BINDING, _binding(name, namespace, args.role), force=True)
    token = tokens.new_token()
    client.create(SECRET, tokens.token_secret(name, (), token))
    print(_kubeconfig(client, name, token, namespaces[0]), end="")
    return 0


def _refuse_strangers(client: BlockingClient) -> None:
    """Pods of all users run as the same one, unless the node can keep them apart or its owner trusts them."""
    for node in client.list(Node.KIND):
        for condition in (node.get("status") or {}).get("conditions") or ():
            if condition["type"] == ISOLATED and condition["status"] == "False" and condition["reason"] != TRUSTED:
                raise BadInput(
                    f"node {node['metadata']['name']} keeps users not apart ({condition['message']}): each could do "
                    "what the others can. `kyu up --trust-users` accepts that; as root, `kyu up` keeps them apart"
                )


def _rotate(client: BlockingClient, name: str) -> int:
    known = _secret(client, name)
    groups = tuple(group for group in tokens.read_secret(known).get("groups", "").split(",") if group)
    token = tokens.new_token()
    client.apply(SECRET, tokens.token_secret(name, groups, token), force=True)
    bindings = client.list(ROLE_BINDING, labels=f"{tokens.USER_LABEL}={name}")
    namespaces = sorted(binding["metadata"]["namespace"] for binding in bindings)
    print(_kubeconfig(client, name, token, namespaces[0] if namespaces else "default"), end="")
    return 0


def _remove(client: BlockingClient, name: str) -> int:
    _secret(client, name)
    client.delete(SECRET, _secret_key(name))
    for binding in client.list(ROLE_BINDING, labels=f"{tokens.USER_LABEL}={name}"):
        client.delete(ROLE_BINDING, key_of(binding))
    print(f"removed {name}; their objects stay")
    return 0


def _list(client: BlockingClient) -> int:
    bindings = client.list(ROLE_BINDING, labels=tokens.USER_LABEL)
    rows = []
    for secret in client.list(SECRET, tokens.NAMESPACE, labels=tokens.USER_LABEL):
        name = tokens.read_secret(secret).get("user", "")
        roles = [
            f"{binding['roleRef']['name']} in {binding['metadata']['namespace']}"
            for binding in bindings
            if (binding["metadata"].get("labels") or {}).get(tokens.USER_LABEL) == name
        ]
        groups = tokens.read_secret(secret).get("groups", "")
        rows.append([name, ", ".join(sorted(roles)) or groups or "no rights"])
    print(output.table(["USER", "ROLES"], rows))
    return 0


def _secret(client: BlockingClient, name: str) -> Json:
    secret = client.find(SECRET, _secret_key(name))
    if secret is None:
        raise BadInput(f"there is no user {name}; `kyu user list` shows them")
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
