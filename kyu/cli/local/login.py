"""
Write a kubeconfig for the server that all accounts of this machine share, for kubectl and other clients.

    kyu login > ~/.kube/config

The file has no token: clients run `kyu login --credential`, which asks the server at its socket.
"""

from __future__ import annotations

import argparse

import msgspec

from kyu.cli import target
from kyu.cli.main import BadInput, Failed
from kyu.kube import kubeconfig

API_VERSION = "client.authentication.k8s.io/v1"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--credential", action="store_true", help="print a token, as kubectl asks for it")
    parser.add_argument("-n", "--namespace", default="", help="namespace of the file (default: the first of yours)")


def run(args: argparse.Namespace) -> int:
    path = target.socket_path()
    if not path.is_socket():
        raise BadInput(f"there is no server at {path}; `kyu service install` sets one up, as root")
    try:
        found = kubeconfig.log_in(path)
    except kubeconfig.BadKubeconfig as error:
        raise Failed(str(error)) from error
    if args.credential:
        assert found.expires is not None, "the server says when a token ends"
        status = {"token": found.token, "expirationTimestamp": found.expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
        print(msgspec.json.encode({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status}).decode())
        return 0
    words = [*target.KYU, "login", "--credential"]
    plugin = {"apiVersion": API_VERSION, "command": words[0], "args": words[1:], "interactiveMode": "Never"}
    namespace = args.namespace or found.namespace
    print(kubeconfig.render(found.server, found.authority, found.user, {"exec": plugin}, namespace), end="")
    return 0
