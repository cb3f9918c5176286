"""
Serve the page of queues and jobs to several people. Each logs in with a token, and sees what that token may see.

    kyu web --host kyu.example.org --cert tls.crt --key tls.key --listen 0.0.0.0:8443

Without a certificate the page is served to this machine only, for example to a proxy that ends TLS.
"""

from __future__ import annotations

import argparse
import ipaddress
import ssl
from pathlib import Path

from kyu.cli import output, target
from kyu.cli.main import BadInput
from kyu.cli.web import site
from kyu.cli.web.open import LOOPBACK


def arguments(parser: argparse.ArgumentParser) -> None:
    target.arguments(parser)
    parser.add_argument("--listen", default="127.0.0.1:8080", metavar="ADDRESS:PORT", help="default: 127.0.0.1:8080")
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="a name of the page in browsers")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="the TLS certificate of the page")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key of the certificate")


def run(args: argparse.Namespace) -> int:
    address, port = parse_address(args.listen)
    if (args.cert is None) != (args.key is None):
        raise BadInput("kyu web: --cert and --key belong together")
    if args.cert is None and not ipaddress.ip_address(address).is_loopback:
        raise BadInput(
            f"kyu web: tokens would travel in the clear on {address}; give --cert and --key, or use 127.0.0.1"
        )
    chosen = target.choose(args)
    hosts = (*LOOPBACK, *args.host)
    with site.WebSite((address, port), chosen.credentials, hosts, secure=args.cert is not None) as served:
        if args.cert is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(args.cert, args.key)
            served.socket = context.wrap_socket(served.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https" if args.cert else "http"
        print(f"{scheme}://{args.host[0] if args.host else address}:{served.server_port}/", flush=True)
        output.note(f"the page of {chosen.credentials.server} ({chosen.origin}); Ctrl-C ends it")
        try:
            served.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def parse_address(text: str) -> tuple[str, int]:
    """Parse ADDRESS:PORT, where the address is an IP address."""
    address, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(address.strip("[]"))
        return address.strip("[]"), int(port)
    except ValueError as error:
        raise BadInput(f"kyu web: --listen {text}: {error}; write it as 127.0.0.1:8080") from error
