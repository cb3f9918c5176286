"""
Run the controllers on a Kubernetes cluster.

    kyu manifests | kubectl apply --server-side -f -     once: the CRDs and roles
    kyu controller                                       run until Ctrl-C
    kyu controller --only pools                          MasterQueues only, beside an installed Kueue
    kyu controller --only workflows                      Workflows only, beside an installed Kueue

Of several controllers one is the leader, and another takes over when it ends. All of them wait while an installed Kueue
is the leader. Probes are on port 8081 (/healthz, /readyz), metrics on port 8443 (/metrics, with HTTPS and a token).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu.cli import target


def arguments(parser: argparse.ArgumentParser) -> None:
    target.arguments(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="Kueue Configuration; a ConfigMap overrides it")
    parser.add_argument("--only", choices=("pools", "workflows"), help="leave queues and jobs to an installed Kueue")
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
    from kyu.cli.main import BadInput, Failed
    from kyu.endpoints import CannotListen
    from kyu.kube.lease import LeaseLost

    chosen = target.choose(args)
    log.start()
    chosen.announce()
    try:
        settings = on_cluster.read_settings(args.config, args.health_probe_bind_address, args.metrics_bind_address)
    except ValueError as error:
        raise BadInput(f"{args.config}: {error}") from error
    try:
        on_cluster.control(chosen.credentials, settings, args.only, args.webhook_bind_address)
    except (CannotListen, LeaseLost) as error:
        raise Failed(str(error)) from error
    return 0
