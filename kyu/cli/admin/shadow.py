"""
Show where Kyu would decide otherwise than the scheduler in charge, as `kyu controller --shadow` has found out.

    kubectl -n kueue-system port-forward deployment/kyu-shadow 8443 &
    kyu shadow report --token "$(kubectl -n kueue-system create token kyu-shadow)"
    kyu shadow report -o json

The caller needs the right to `get` the path /shadow. The certificate of the endpoint names no host, so the address must
be one of this machine.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kyu.cli import output, target
from kyu.cli.main import BadInput, Failed

if TYPE_CHECKING:
    from kyu.kube.kubeconfig import Credentials

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PATIENCE_SECONDS = 30.0


def arguments(parser: argparse.ArgumentParser) -> None:
    target.arguments(parser)
    parser.add_argument("action", choices=("report",))
    parser.add_argument(
        "--server",
        default="https://127.0.0.1:8443",
        metavar="URL",
        help="the metrics endpoint of the shadow (default: https://127.0.0.1:8443)",
    )
    parser.add_argument("--token", default="", help="the token to show there (default: that of the kubeconfig)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    from kyu.kube.blocking import BlockingClient, Unreachable
    from kyu.kube.errors import ApiError
    from kyu.shadow.report import PATH

    client = BlockingClient(credentials(args), timeout_seconds=PATIENCE_SECONDS)
    try:
        answer = client.raw(PATH)
    except Unreachable as error:
        raise Failed(f"{error}; does `kyu controller --shadow` run there?") from error
    except ApiError as error:
        raise Failed(f"{args.server}: {error}") from error
    finally:
        client.close()
    if args.output == "json":
        print(answer.decode())
    else:
        print(render(json.loads(answer)))
    return 0


def credentials(args: argparse.Namespace) -> Credentials:
    """Return the address and token of the endpoint. Raise BadInput if the token would go to another machine."""
    from kyu.kube.kubeconfig import Credentials

    if urlsplit(args.server).hostname not in LOOPBACK:
        raise BadInput(
            f"--server {args.server}: its certificate cannot be verified, so the token must not leave this machine; "
            "use `kubectl port-forward`"
        )
    token = args.token
    if not token:
        theirs = target.choose(args).credentials
        token = theirs.token_file.read_text().strip() if theirs.token_file else theirs.token
    if not token:
        raise BadInput("the kubeconfig has no token: pass --token, such as that of `kubectl create token ACCOUNT`")
    return Credentials(server=args.server, token=token, verifies=False)


def render(report: dict[str, Any]) -> str:
    """Return the counts, and each disagreement with both sides of it."""
    same, otherwise = sum(report["same"].values()), sum(report["otherwise"].values())
    since = datetime.fromtimestamp(report["since"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"since {since}: {same} decisions were the same, {otherwise} were not"]
    for one in report["disagreements"]:
        at = datetime.fromtimestamp(one["at"], UTC).strftime("%H:%M:%S")
        goes_on = "" if one["endedAt"] is not None else ", goes on"
        lines += [
            "",
            f"{one['type']}: {one['namespace']}/{one['workload']} in {one['clusterQueue']}, {at}{goes_on}",
            f"  in charge: {one['theirs']}",
            f"  Kyu would: {one['ours']}",
        ]
    if report["otherwise"]:
        rows = sorted(report["otherwise"].items(), key=lambda item: -int(item[1]))
        lines += ["", output.table(("DISAGREEMENT", "COUNT"), rows)]
    return "\n".join(lines)
