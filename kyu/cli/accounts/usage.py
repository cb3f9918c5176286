"""
Sum up what teams, users or queues have used.

    kyu usage                                 by user of your namespace, in the last 30 days
    kyu usage -A --by team --since 2026-11-01 --until 2026-12-01 --csv
    kyu usage -A --by queue --prices prices.yaml

A table of prices names the price of an hour of each resource; memory is counted in GiB. A flavor may have its own:

    prices: {cpu: 0.02, memory: 0.003, nvidia.com/gpu: 1.10}
    flavors:
      spot: {cpu: 0.01}

Hours are those of the requests, from start to end; CPU used is what was measured.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kyu.api import documents
from kyu.api.accounting import WASTED, JobAttempt
from kyu.cli import connection, output
from kyu.cli.accounts import attempts
from kyu.cli.accounts.history import GIB, gpus, safe_cell
from kyu.cli.main import BadInput

GROUPS = {"team": "namespace", "user": "submitter", "queue": "queue", "cluster-queue": "cluster_queue"}


def arguments(parser: argparse.ArgumentParser) -> None:
    attempts.arguments(parser, since="30d")
    parser.add_argument("--by", choices=list(GROUPS), default="user", help="what to sum up by (default: user)")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="table of prices, for the column of costs")
    parser.add_argument("--csv", action="store_true", help="print for a spreadsheet")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The price of an hour of a resource, and other prices in some flavors."""

    prices: Mapping[str, float]
    flavors: Mapping[str, Mapping[str, float]]

    def cost(self, attempt: JobAttempt) -> float:
        total = 0.0
        for name, amount in attempt.requests.items():
            own = self.flavors.get(attempt.flavors.get(name, ""), {})
            units = amount / GIB if name == "memory" else amount
            total += units * attempt.seconds / 3600 * own.get(name, self.prices.get(name, 0.0))
        return total


@dataclass(slots=True)
class Total:
    """The sums of one group."""

    jobs: set[str] = field(default_factory=set)
    attempts: int = 0
    cpu_hours: float = 0.0
    cpu_used_hours: float = 0.0
    memory_hours: float = 0.0
    gpu_hours: float = 0.0
    wasted_cpu_hours: float = 0.0
    waited_hours: float = 0.0
    cost: float = 0.0

    def add(self, one: JobAttempt, prices: PriceTable | None) -> None:
        hours = one.seconds / 3600
        cpu = one.requests.get("cpu", 0.0) * hours
        self.jobs.add(one.job_uid)
        self.attempts += 1
        self.cpu_hours += cpu
        self.cpu_used_hours += (one.cpu_seconds or 0.0) / 3600
        self.memory_hours += one.requests.get("memory", 0.0) / GIB * hours
        self.gpu_hours += gpus(one) * hours
        self.wasted_cpu_hours += cpu if one.state in WASTED else 0.0
        self.waited_hours += attempts.seconds_between(one.queued, one.started) / 3600
        self.cost += prices.cost(one) if prices is not None else 0.0

    def cells(self, *, costs: bool) -> list[object]:
        hours = [
            self.cpu_hours, self.cpu_used_hours, self.memory_hours, self.gpu_hours, self.wasted_cpu_hours,
            self.waited_hours,
        ]  # fmt: skip
        return [len(self.jobs), self.attempts, *(f"{value:.4f}" for value in hours), *([f"{self.cost:.2f}"] * costs)]


def run(args: argparse.Namespace) -> int:
    prices = read_prices(args.prices) if args.prices is not None else None
    server = connection.connect(args)
    found = attempts.read(server, args, datetime.now(UTC))
    totals = sum_up(found, GROUPS[args.by], prices)
    costs = ["COST"] if prices is not None else []
    header = ["JOBS", "ATTEMPTS", "CPU-H", "CPU-H-USED", "GIB-H", "GPU-H", "CPU-H-WASTED", "WAITED-H", *costs]
    rows = [[name, *total.cells(costs=prices is not None)] for name, total in sorted(totals.items())]
    if args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([word.lower().replace("-", "_") for word in (args.by, *header)])
        writer.writerows([safe_cell(cell) for cell in row] for row in rows)
        return 0
    if not rows:
        output.note("no jobs ended in this time; --since all shows older ones")
        return 0
    print(output.table([args.by.upper(), *header], rows, output.terminal_room()))
    return 0


def sum_up(found: Sequence[JobAttempt], field_name: str, prices: PriceTable | None) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for one in found:
        totals.setdefault(str(getattr(one, field_name)) or "-", Total()).add(one, prices)
    return totals


def read_prices(path: Path) -> PriceTable:
    """Read the table of prices, or raise BadInput."""
    try:
        listed = [document.value for document in documents.parse(path.read_text())]
    except OSError as error:
        raise BadInput(f"kyu usage: {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"kyu usage: {path}: {error}") from error
    body = listed[0] if len(listed) == 1 else None
    if not isinstance(body, dict) or set(body) - {"prices", "flavors"}:
        raise BadInput(f"kyu usage: {path}: write `prices:` and, for single flavors, `flavors:`")
    flavors = body.get("flavors") or {}
    if not isinstance(flavors, dict):
        raise BadInput(f"kyu usage: {path}: flavors: write a table of prices for each flavor")
    tables = {str(name): checked(path, table) for name, table in flavors.items()}
    return PriceTable(checked(path, body.get("prices") or {}), tables)


def checked(path: Path, table: object) -> dict[str, float]:
    if not isinstance(table, dict):
        raise BadInput(f"kyu usage: {path}: write prices as a table, for example cpu: 0.02")
    for name, price in table.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
            raise BadInput(f"kyu usage: {path}: the price of {name} is no number: {price!r}")
    return {str(name): float(price) for name, price in table.items()}
