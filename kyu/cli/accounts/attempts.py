"""The attempts in the ledger of the server, as commands read them, and their times."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from kyu.api.accounting import JobAttempt
from kyu.cli import connection, ledger
from kyu.cli.batch.submission import times
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kinds import conditions

FIRST = "all"


def arguments(parser: argparse.ArgumentParser, *, since: str) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument(
        "--since", default=since, metavar="TIME", help=f"ended since: 2026-11-01, 7d or all (default: {since})"
    )
    parser.add_argument("--until", default="", metavar="TIME", help="ended before: 2026-12-01 or 2h ago as 2h")
    parser.add_argument("--user", default="", help="only jobs of this submitter")
    parser.add_argument("-q", "--queue", default="", help="only jobs of this LocalQueue")


def read(server: ServerConnection, args: argparse.Namespace, now: datetime, **more: str) -> list[JobAttempt]:
    """Return the attempts that the options choose, the oldest first."""
    query = {
        "since": moment("--since", args.since, now),
        "until": moment("--until", args.until, now),
        "submitter": args.user,
        "queue": args.queue,
        **more,
    }
    namespace = None if args.all_namespaces else server.namespace
    return ledger.pages(server, namespace, {name: value for name, value in query.items() if value})


def moment(option: str, text: str, now: datetime) -> str:
    """Return the time that a user wrote: a date, a date and time, or a duration before now."""
    if text in ("", FIRST):
        return ""
    seconds = times.seconds(text) if not text[:4].isdigit() or text.isdigit() else None
    if seconds is not None:
        return conditions.timestamp((now - timedelta(seconds=seconds)).astimezone(UTC))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{option} {text}: write a date as 2026-11-01, a time as 2026-11-01T14:00, or 7d") from None
    # A time without a zone is that of the user.
    return conditions.timestamp(parsed.astimezone(UTC))


def seconds_between(start: str, end: str) -> float:
    return max(0.0, (conditions.parse_timestamp(end) - conditions.parse_timestamp(start)).total_seconds())
