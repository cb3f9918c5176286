"""
Start the control plane on this machine.

    kyu up                      in the foreground, until Ctrl-C
    kyu up -d                   in the background; `kyu down` stops it
    kyu up --nodes FILE         with simulated nodes beside this machine
    kyu up --server-only --bare the API alone, for clients and tests
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from kyu import lock
from kyu.cli import target
from kyu.cli.main import BadInput, Failed

START_SECONDS = 60.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder; default: the user's")
    parser.add_argument("-d", "--detach", action="store_true", help="run in the background")
    parser.add_argument(
        "--listen", default="", metavar="HOST:PORT", help="default: 127.0.0.1 and the port of last time"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="Kueue's Configuration; becomes the ConfigMap in use"
    )
    parser.add_argument("--nodes", type=Path, metavar="FILE", help="Node manifests: machines that are only simulated")
    parser.add_argument("--cpu", type=int, metavar="N", help="cores that this machine offers; default: all it has")
    parser.add_argument("--trust-users", action="store_true", help="let in others though all pods run as one user")
    parser.add_argument("--host-paths", action="store_true", help="let pods have places of this machine as volumes")
    parser.add_argument(
        "--virtual-node",
        choices=("pools", "local", "simulate"),
        default="pools",
        help="what runs pods for pools: runners of the pools (default), this machine, or nothing, for a trial",
    )
    parser.add_argument("--bare", action="store_true", help="no queues in a fresh folder")
    parser.add_argument("--server-only", action="store_true", help="the API without controllers and pods")
    parser.add_argument("--ready-descriptor", type=int, default=-1, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    data: Path = (args.data or target.default_data()).absolute()
    parse_listen(args.listen)
    if args.cpu is not None and args.cpu < 1:
        raise BadInput(f"kyu up: --cpu {args.cpu}: a machine offers one core or more")
    for option, path in (("--config", args.config), ("--nodes", args.nodes)):
        if path is not None and not path.exists():
            raise BadInput(f"kyu up: {option} {path}: there is no such file")
    _refuse_running(data)
    return _start_detached(args, data) if args.detach else _serve(args, data)


def _refuse_running(data: Path) -> None:
    if target.is_running(data):
        raise Failed(f"process {lock.holder(data / 'lock')} runs in {data} already; `kyu status` shows it")


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
        virtual_node=args.virtual_node,
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
    """The same command again, as a process of its own; wait until it says that it is ready."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    reader, writer = os.pipe()
    words = [*target.KYU, "up", "--data", str(data), "--ready-descriptor", str(writer)]
    words += again(args)
    log_path = data / "server.log"
    with open(os.open(log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer], start_new_session=True
        )
    os.close(writer)
    with open(reader, "rb") as pipe:
        # Ends with a line when it is ready, and with nothing when the process has ended before.
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


def again(args: argparse.Namespace) -> list[str]:
    """The options, as they are typed."""
    given = {"--listen": args.listen, "--config": args.config, "--nodes": args.nodes, "--cpu": args.cpu}
    given["--virtual-node"] = args.virtual_node
    flags = {"--trust-users": args.trust_users, "--host-paths": args.host_paths}
    flags |= {"--bare": args.bare, "--server-only": args.server_only}
    words = [word for option, value in given.items() if value for word in (option, str(value))]
    return words + [option for option, is_set in flags.items() if is_set]


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``HOST`` or ``:PORT``; nothing is this machine only, with the remembered port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = text, "0"
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"kyu up: --listen {text}: {port!r} is no port")
    return host.strip("[]") or "127.0.0.1", int(port)
