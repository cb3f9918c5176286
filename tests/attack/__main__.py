"""
A fuzzer: two hostile tenants beside a quiet third, on a server of its own.

    python -m tests.attack --minutes 30         everything, with controllers and real pods
    python -m tests.attack --seconds 8 --server-only
    python -m tests.attack --floods             2,000 idle, 2,000 slow and 1,400 half-sent connections at once

Other modules: tests.attack.fields (strange values in all fields), tests.attack.deletion (a namespace with 5,000 jobs).

It watches for faults of the server (5xx that say so, traces in its log), for growth of its memory, and for the time
that the quiet tenant waits. The exit code is 1 if one of them is beyond its bound. The seed of a run is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.attack.floods import Target, run_all
from tests.attack.fuzzer import Bounds, Fuzzer, Report, kyu


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--server-only", action="store_true", help="without controllers and pods")
    parser.add_argument("--p99", type=float, default=0.2, help="seconds that the quiet tenant may wait")
    parser.add_argument("--floods", action="store_true", help="floods of connections instead of hostile requests")
    args = parser.parse_args(arguments)
    if args.floods:
        return flood()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    seconds = args.minutes * 60 or args.seconds
    print(f"seed {seed}, {seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="kyu-attack-") as folder:
        fuzzer = Fuzzer(Path(folder), random.Random(seed), server_only=args.server_only)
        report = fuzzer.run(seconds)
    return show(report, Bounds(p99_seconds=args.p99))


def flood() -> int:
    """Run the floods from many addresses and from one, against a server without controllers."""
    with tempfile.TemporaryDirectory(prefix="kyu-attack-") as folder:
        data = Path(folder, "data")
        kyu(data, "up", "-d", "--server-only", "--bare")
        try:
            return min(1, run_all(Target(data), ("at-once",), ("many", "one")))
        finally:
            kyu(data, "down")


def show(report: Report, bounds: Bounds) -> int:
    print(report.text())
    found = report.problems(bounds)
    for problem in found:
        print(f"PROBLEM: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
