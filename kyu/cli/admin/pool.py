"""
Announce a pool of resources to a MasterQueue, or list the pools.

    kyu pool publish --nats nats://host:4222 --subject interlink.resources --pool site-a
    kyu pool publish … --from slurm            offer the idle nodes of Slurm; also: static, kubernetes
    kyu pool publish … --run --allow KEY       run pods of the control plane with this key (see `kyu pool key`)
    kyu pool list                              list the pools of all MasterQueues
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from kyu.cli import target
from kyu.cli.main import BadInput, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kyu.bus.connector import Connector
    from kyu.pools.offers import Offer
    from kyu.pools.publisher import Publication

SOURCES = ("local", "static", "kubernetes", "slurm")
STATIC_DEFAULTS = {"cpu": "1", "memory": "2Gi", "pods": "10", "nvidia.com/gpu": "0"}
CONNECT_SECONDS = 15.0
SHORTEST_PERIOD_SECONDS = 0.1


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("publish", "list", "key"))
    parser.add_argument("--nats", default="", metavar="URL", help="NATS server; @FILE reads the URL from a file")
    parser.add_argument("--creds", type=Path, metavar="FILE", help="NATS credentials file")
    parser.add_argument(
        "--nats-secret",
        type=Path,
        metavar="DIR",
        help="folder with the keys of a MasterQueue's Secret: token, nkey, ca.crt, tls.crt …",
    )
    parser.add_argument("--subject", default="interlink.resources", help="NATS subject (default: interlink.resources)")
    parser.add_argument("--pool", default="", metavar="NAME", help="name of the pool")
    parser.add_argument(
        "--from", dest="source", choices=SOURCES, default="local", help="source of the offer (default: local)"
    )
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME=AMOUNT", help="resource of --from static; repeatable"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="label of the pool; repeatable"
    )
    parser.add_argument(
        "--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT", help="taint of the pool; repeatable"
    )
    parser.add_argument(
        "--period", type=float, default=10.0, metavar="SECONDS", help="time between announcements (default: 10)"
    )
    parser.add_argument("--once", action="store_true", help="announce the pool once")
    parser.add_argument("--sign", action="store_true", help="sign announcements with the key in --pool-data")
    parser.add_argument("--run", action="store_true", help="run pods from the control plane, as processes of this user")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="KEY",
        help="key of a control plane that may send pods; repeatable",
    )
    parser.add_argument("--pool-data", type=Path, metavar="DIR", help="folder for the key and the pods of the pool")
    target.arguments(parser)


def run(args: argparse.Namespace) -> int:
    match args.action:
        case "publish":
            return _publish(args)
        case "list":
            return _list(args)
        case _:
            return _key(args)


def _publish(args: argparse.Namespace) -> int:
    from kyu import log
    from kyu.api import names
    from kyu.bus.connector import BadConnector

    if not args.nats or not args.pool:
        raise BadInput("kyu pool publish: --nats and --pool are required")
    if reason := names.why_not_dns_label(args.pool):
        raise BadInput(f"--pool {args.pool}: {reason}")
    if args.period < SHORTEST_PERIOD_SECONDS:
        raise BadInput(f"--period {args.period}: the period must be at least {SHORTEST_PERIOD_SECONDS} seconds")
    if args.run and not args.allow:
        raise BadInput("--run needs --allow with the key of the control plane; `kyu pool key` prints it there")
    log.start()
    try:
        connector = _connector(args)
    except BadConnector as error:
        raise BadInput(f"--nats: {error}") from error
    if args.run and not connector.is_private:
        raise BadInput("--run needs an encrypted connection: tls://, wss://, or a NATS server on this machine")
    asyncio.run(_announce(args, connector))
    return 0


def _connector(args: argparse.Namespace) -> Connector:
    from dataclasses import replace

    from kyu.bus.connector import Connector
    from kyu.cli import sources
    from kyu.controllers.pools import secrets

    try:
        url = sources.read_text(args.nats[1:]).strip() if args.nats.startswith("@") else args.nats
        connector = secrets.read_folder(url, args.nats_secret) if args.nats_secret else Connector(url)
        return replace(connector, credentials=sources.read_text(str(args.creds))) if args.creds else connector
    except OSError as error:
        raise BadInput(f"--nats: {error}") from error


async def _announce(args: argparse.Namespace, connector: Connector) -> None:
    from kyu.bus.nats import NatsConnection
    from kyu.pools import publisher

    connection = NatsConnection(connector, f"kyu-pool-{args.pool}")
    publication, find_offer = _publication(args), _find_offer(args)
    connecting = asyncio.create_task(connection.run())
    try:
        if args.once:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.connected()
            except TimeoutError as error:
                raise Failed(f"{connector.address}: {connection.state.error or 'no answer'}") from error
            await publisher.publish_once(connection, publication, find_offer())
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(publisher.publish(connection, publication, find_offer))
            if args.run:
                from kyu.pools.runner import Runner

                runner = Runner(connection, args.subject, args.pool, _pool_data(args), args.allow)
                group.create_task(runner.run())
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)


def _publication(args: argparse.Namespace) -> Publication:
    from kyu.bus import signing
    from kyu.pools.publisher import Publication

    signer = signing.load_or_make(_pool_data(args) / "pool.key") if args.sign else None
    return Publication(
        args.subject, args.pool, args.period, tuple(args.label), tuple(args.taint), runs=args.run, signer=signer
    )


def _find_offer(args: argparse.Namespace) -> Callable[[], Offer]:
    from kyu.pools import offers

    stated = _stated(args.resource)
    match args.source:
        case "static":
            return lambda: offers.Offer({**STATIC_DEFAULTS, **stated})
        case "slurm":
            return offers.slurm_offer
        case "kubernetes":
            from kyu.kube.blocking import BlockingClient

            client = BlockingClient(target.choose(args).credentials)
            return lambda: offers.cluster_offer(client)
        case _:
            folder = str(_pool_data(args))
            return lambda: offers.local_offer(folder)


def _stated(words: list[str]) -> dict[str, str]:
    from kyu.api import quantity

    stated = {}
    for word in words:
        name, separator, amount = word.partition("=")
        try:
            stated[name] = str(quantity.parse(amount))
        except quantity.QuantityError as error:
            raise BadInput(f"--resource {word}: {error}") from error
        if not name or not separator:
            raise BadInput(f"--resource {word}: write it as NAME=AMOUNT")
    return stated


def _pool_data(args: argparse.Namespace) -> Path:
    folder: Path = args.pool_data or target.default_data() / "pools" / args.pool
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _list(args: argparse.Namespace) -> int:
    from kyu.api import codec
    from kyu.api.pools import MasterQueue
    from kyu.cli import output
    from kyu.kube.blocking import BlockingClient

    client = BlockingClient(target.choose(args).credentials)
    try:
        queues = [codec.decode_as(MasterQueue, raw) for raw in client.list(MasterQueue.KIND)]
    finally:
        client.close()
    header = ("MASTERQUEUE", "FLAVOR", "POOL", "STATE", "SINCE", "CPU", "MEMORY", "PODS", "GPUS", "REASON")
    columns = ("cpu", "memory", "pods", "nvidia.com/gpu")
    rows = [
        (
            queue.metadata.name,
            pool.flavor,
            pool.name,
            pool.state,
            output.age(pool.since),
            *(pool.effective.get(name, "") for name in columns),
            pool.reason,
        )
        for queue in queues
        for pool in queue.status.pools
    ]
    print(output.table(header, rows) if rows else "no pool has announced itself yet")
    return 0


def _key(args: argparse.Namespace) -> int:
    """Print the public key of the local control plane, which creates it at its first start."""
    from kyu.bus import signing

    path = (args.data or target.default_data()) / "pool.key"
    if not path.exists():
        raise Failed(f"{path} does not exist; `kyu up` creates it, and --data names another data folder")
    print(signing.load_or_make(path).public_key)
    return 0
