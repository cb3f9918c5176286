"""
Start the control plane on this machine.

    kyu up                      run in the foreground until Ctrl-C
    kyu up -d                   run in the background; `kyu down` stops it
    kyu up --nodes FILE         add simulated nodes to this machine
    kyu up --server-only --bare serve the API without controllers and pods
    kyu up --clusters 3         start a hub and three worker clusters in the background, ready for jobs
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from kyu import lock
from kyu.cli import output, target
from kyu.cli.main import BadInput, Failed

START_SECONDS = 60.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")
    parser.add_argument("-d", "--detach", action="store_true", help="run in the background")
    parser.add_argument(
        "--listen", default="", metavar="HOST:PORT", help="address (default: 127.0.0.1 and the port of the last start)"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="Kueue Configuration; it replaces the ConfigMap in use"
    )
    parser.add_argument("--nodes", type=Path, metavar="FILE", help="manifests of simulated Nodes")
    parser.add_argument("--cpu", type=int, metavar="N", help="cores that this machine offers (default: all)")
    parser.add_argument(
        "--trust-users", action="store_true", help="allow several users although all pods run as one Unix user"
    )
    parser.add_argument("--host-paths", action="store_true", help="allow hostPath volumes")
    parser.add_argument(
        "--mount-over",
        action="append",
        default=[],
        metavar="PATH",
        help="a folder of the system that volumes may cover; may be repeated",
    )
    parser.add_argument(
        "--pod-network",
        choices=("host", "none"),
        default="host",
        help="the network of pods: this machine's (default), or a loopback interface for each pod",
    )
    parser.add_argument(
        "--runtime",
        choices=("process", "podman", "auto"),
        default="process",
        help="run pods as processes of this machine (default), from images with podman, or by the image that they name",
    )
    parser.add_argument(
        "--virtual-node",
        choices=("pools", "local", "simulate"),
        default="pools",
        help="runner of the pods of pools: the pools themselves (default), this machine, or a simulation",
    )
    parser.add_argument(
        "--log-days", type=float, default=14, metavar="DAYS", help="keep logs of deleted pods this long (default: 14)"
    )
    parser.add_argument(
        "--log-size", default="1Gi", metavar="SIZE", help="keep at most this much of them (default: 1Gi)"
    )
    parser.add_argument(
        "--history-days", type=float, default=400, metavar="DAYS", help="keep accounts of jobs this long (default: 400)"
    )
    parser.add_argument(
        "--history-size", default="64Mi", metavar="SIZE", help="keep at most this much of them (default: 64Mi)"
    )
    parser.add_argument("--socket", type=Path, metavar="PATH", help="let local accounts log in at this socket; as root")
    parser.add_argument("--bare", action="store_true", help="create no default queues in a new data folder")
    parser.add_argument("--server-only", action="store_true", help="serve the API without controllers and pods")
    parser.add_argument(
        "--clusters", type=int, metavar="N", help="start a hub with N worker clusters, in the background"
    )
    parser.add_argument("--hub", type=Path, metavar="FILE", help="report the nodes to the hub of this kubeconfig")
    parser.add_argument("--cluster-name", default="", metavar="NAME", help="name of this cluster in the hub")
    parser.add_argument("--ready-descriptor", type=int, default=-1, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    data: Path = (args.data or target.default_data()).absolute()
    parse_listen(args.listen)
    if args.cpu is not None and args.cpu < 1:
        raise BadInput(f"kyu up: --cpu {args.cpu}: the machine must offer at least one core")
    if args.log_days < 0:
        raise BadInput(f"kyu up: --log-days {args.log_days:g}: the number of days must not be negative")
    if args.history_days < 0:
        raise BadInput(f"kyu up: --history-days {args.history_days:g}: the number of days must not be negative")
    for size in (args.log_size, args.history_size):
        parse_size(size)
    for option, path in (("--config", args.config), ("--nodes", args.nodes)):
        if path is not None and not path.exists():
            raise BadInput(f"kyu up: {option} {path}: the file does not exist")
    check_hub(args)
    if args.clusters is not None:
        from kyu.cli.local import fleet

        return fleet.start(args, data)
    if target.is_running(data):
        return _report_running(args, data)
    return _start_detached(args, data) if args.detach else _serve(args, data)


def check_hub(args: argparse.Namespace) -> None:
    """Raise BadInput for options of hubs and clusters that do not belong together."""
    from kyu.api import names

    if (args.hub is None) != (not args.cluster_name):
        raise BadInput("kyu up: --hub and --cluster-name belong together")
    if args.cluster_name and (reason := names.why_not_dns_label(args.cluster_name)):
        raise BadInput(f"kyu up: --cluster-name {args.cluster_name}: {reason}")
    if args.hub is not None and not args.hub.exists():
        raise BadInput(f"kyu up: --hub {args.hub}: the file does not exist")
    if args.clusters is not None and args.hub is not None:
        raise BadInput("kyu up: --clusters starts a hub, so it cannot be combined with --hub")


def _report_running(args: argparse.Namespace, data: Path) -> int:
    """Print the address of a server that runs already."""
    from kyu.kube.kubeconfig import load

    holder, path = lock.holder(data / "lock"), data / "kubeconfig"
    if not path.exists():
        print(f"the server of {data} is starting in process {holder}")
        return 0
    print(f"already running: {load(path).server} in process {holder}")
    print(f"export KUBECONFIG={path}")
    ignored = [word for word in args.words if word not in ("-d", "--detach", "--data", str(args.data))]
    if ignored:
        stop = target.down_command(data)
        output.note(f"{' '.join(ignored)} has no effect on a running server; restart it with `{stop}` and `kyu up`")
    return 0


def _serve(args: argparse.Namespace, data: Path) -> int:
    from kyu import app, log

    log.start()
    host, port = parse_listen(args.listen)
    settings = app.Settings(
        data,
        host,
        port,
        bare=args.bare,
        server_only=args.server_only,
        config=args.config,
        nodes=args.nodes,
        cores=args.cpu,
        trust_users=args.trust_users,
        host_paths=args.host_paths,
        mount_over=tuple(args.mount_over),
        pod_network=args.pod_network,
        runtime=args.runtime,
        virtual_node=args.virtual_node,
        log_days=args.log_days,
        log_bytes=parse_size(args.log_size),
        history_days=args.history_days,
        history_bytes=parse_size(args.history_size),
        hub=args.hub,
        cluster_name=args.cluster_name,
        socket=args.socket,
    )

    def ready(running: app.Embedded) -> None:
        print(f"listening on {running.address}", flush=True)
        print(f"export KUBECONFIG={running.kubeconfig}", flush=True)
        if args.ready_descriptor >= 0:
            os.write(args.ready_descriptor, b"ready\n")
            os.close(args.ready_descriptor)

    try:
        app.run(settings, ready)
    except (app.CannotStart, app.FolderLost, lock.Locked) as error:
        raise Failed(str(error)) from error
    return 0


def _start_detached(args: argparse.Namespace, data: Path) -> int:
    """Start the same command in the background, and wait until the server is ready."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    reader, writer = os.pipe()
    words = [*target.KYU, "up", "--data", str(data), "--ready-descriptor", str(writer)]
    words += options_of(args)
    log_path = data / "server.log"
    with open(os.open(log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a") as log_file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, pass_fds=[writer], start_new_session=True
        )
    os.close(writer)
    with open(reader, "rb") as pipe:
        # The pipe carries a line when the server is ready, and nothing if the process has ended.
        is_ready = pipe.readline() == b"ready\n"
    if not is_ready:
        process.wait(START_SECONDS)
        lines = log_path.read_text(errors="replace").strip().splitlines()
        last = lines[-1].removeprefix("kyu up: ") if lines else "no output"
        raise Failed(f"the server did not start: {last} (see {log_path})")
    from kyu.kube.kubeconfig import load

    print(f"listening on {load(data / 'kubeconfig').server} in process {process.pid}, log in {log_path}")
    print(f"export KUBECONFIG={data / 'kubeconfig'}")
    return 0


def options_of(args: argparse.Namespace) -> list[str]:
    """Return the options of this command as words of a command line."""
    given = {"--listen": args.listen, "--config": args.config, "--nodes": args.nodes, "--cpu": args.cpu}
    given |= {"--virtual-node": args.virtual_node, "--log-days": args.log_days, "--log-size": args.log_size}
    given |= {"--history-days": args.history_days, "--history-size": args.history_size}
    given |= {"--runtime": args.runtime, "--pod-network": args.pod_network, "--socket": args.socket}
    given |= {"--hub": args.hub, "--cluster-name": args.cluster_name}
    flags = {"--trust-users": args.trust_users, "--host-paths": args.host_paths}
    flags |= {"--bare": args.bare, "--server-only": args.server_only}
    words = [word for option, value in given.items() if value not in (None, "") for word in (option, str(value))]
    words += [word for path in args.mount_over for word in ("--mount-over", path)]
    return words + [option for option, is_set in flags.items() if is_set]


def parse_size(text: str) -> int:
    """Parse the value of --log-size."""
    from kyu.api import quantity

    try:
        return quantity.amount("memory", text)
    except quantity.QuantityError as error:
        raise BadInput(f"kyu up: --log-size {text}: {error}") from None


def parse_listen(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, ``HOST`` or ``:PORT``. An empty text means loopback and the remembered port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = text, "0"
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"kyu up: --listen {text}: {port!r} is not a port number")
    return host.strip("[]") or "127.0.0.1", int(port)
