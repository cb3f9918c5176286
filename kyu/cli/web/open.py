"""
Show queues and jobs in the browser, with your own rights.

    kyu open                 opens the page; Ctrl-C ends it
    kyu open --no-browser    prints the link only, for example behind an ssh tunnel

The page is served to this machine only. The link logs in once, within two minutes.
"""

from __future__ import annotations

import argparse
import webbrowser

from kyu.cli import output, target
from kyu.cli.main import Failed
from kyu.cli.web import site
from kyu.cli.web.sessions import Session
from kyu.kube.blocking import BlockingClient

LOOPBACK = ("127.0.0.1", "localhost")


def arguments(parser: argparse.ArgumentParser) -> None:
    target.arguments(parser)
    parser.add_argument("-n", "--namespace", default="", help="your namespace, if you may not see all")
    parser.add_argument("--port", type=int, default=0, help="the port of the page (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the link, and open no browser")


def run(args: argparse.Namespace) -> int:
    chosen = target.choose(args)
    credentials = chosen.credentials
    credentials.namespace = args.namespace or credentials.namespace
    try:
        served = site.WebSite(("127.0.0.1", args.port), credentials, LOOPBACK, secure=False)
    except OSError as error:
        raise Failed(f"port {args.port} cannot be used: {error}; --port 0 takes a free one") from error
    with served:
        session = Session(credentials, site.user_name(BlockingClient(credentials)))
        link = f"http://127.0.0.1:{served.server_port}/login?code={served.sessions.make_code(session)}"
        print(link, flush=True)
        output.note(f"the page of {credentials.server} ({chosen.origin}); Ctrl-C ends it")
        if not args.no_browser:
            webbrowser.open(link)
        try:
            served.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
