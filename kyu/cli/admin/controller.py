"""
Run the controllers on a Kubernetes cluster.

    kyu manifests | kubectl apply --server-side -f -     once: the CRDs and roles
    kyu controller                                       run until Ctrl-C
    kyu controller --shadow                              write nothing; compare with the scheduler that decides
    kyu controller --engine kueue                        all that an installed Kueue lacks; Kueue admits
    kyu controller --only pools                          MasterQueues only, beside an installed Kueue
    kyu controller --only workflows                      Workflows only, beside an installed Kueue

Of several controllers one is the leader, and another takes over when it ends. All of them wait while an installed Kueue
is the leader. Probes are on port 8081 (/healthz, /readyz), metrics on port 8443 (/metrics, with HTTPS and a token).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kyu.cli import target
from kyu.cli.main import BadInput, Failed

if TYPE_CHECKING:
    from kyu.on_cluster import Mode


def arguments(parser: argparse.ArgumentParser) -> None:
    target.arguments(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="Kueue Configuration; a ConfigMap overrides it")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--only", choices=("pools", "workflows"), help="leave queues and jobs to an installed Kueue")
    modes.add_argument(
        "--engine",
        choices=("kyu", "kueue"),
        default="kyu",
        help="the scheduler; with kueue, run pools, clusters, Workflows and dependencies on its decisions",
    )
    modes.add_argument(
        "--shadow", action="store_true", help="decide beside the scheduler in charge, write nothing, and compare"
    )
    parser.add_argument(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="time that a shadow gives the other scheduler for a decision (default: 30)",
    )
    parser.add_argument(
        "--health-probe-bind-address",
        metavar="ADDRESS",
        help="instead of health.healthProbeBindAddress, :8081 by default; 0 for none",
    )
    parser.add_argument(
        "--metrics-bind-address", metavar="ADDRESS", help="instead of metrics.bindAddress, :8443 by default; 0 for none"
    )
    parser.add_argument(
        "--webhook-bind-address",
        metavar="ADDRESS",
        default="0",
        help="answer admission and conversion webhooks here, such as :9443; without it none are answered",
    )


def run(args: argparse.Namespace) -> int:
    from kyu import log, on_cluster
    from kyu.endpoints import NOWHERE, CannotListen
    from kyu.kube.lease import LeaseLost
    from kyu.shadow.comparison import PATIENCE_SECONDS

    mode = read_mode(args, answers_webhooks=args.webhook_bind_address not in NOWHERE)
    chosen = target.choose(args)
    log.start()
    chosen.announce()
    try:
        settings = on_cluster.read_settings(args.config, args.health_probe_bind_address, args.metrics_bind_address)
    except ValueError as error:
        raise BadInput(f"{args.config}: {error}") from error
    patience = PATIENCE_SECONDS if args.patience is None else args.patience
    try:
        on_cluster.control(chosen.credentials, settings, mode, args.webhook_bind_address, patience)
    except (CannotListen, LeaseLost) as error:
        raise Failed(str(error)) from error
    return 0


def read_mode(args: argparse.Namespace, *, answers_webhooks: bool) -> Mode:
    """Return the mode that the options ask for. Raise BadInput if they cannot work together."""
    mode: Mode = "shadow" if args.shadow else args.only or ("all" if args.engine == "kyu" else "kueue")
    if mode != "all" and answers_webhooks:
        option = "--shadow" if args.shadow else f"--only {args.only}" if args.only else "--engine kueue"
        raise BadInput(
            f"--webhook-bind-address: with {option} the installed Kueue answers the webhooks of queues and jobs; "
            "leave the option out"
        )
    if args.patience is not None and mode != "shadow":
        raise BadInput("--patience: only a shadow waits for another scheduler; add --shadow")
    if args.patience is not None and args.patience <= 0:
        raise BadInput("--patience must be above 0")
    return mode
