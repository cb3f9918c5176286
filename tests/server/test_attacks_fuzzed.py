"""Some seconds of the fuzzer; `python -m tests.attack --minutes 30` runs it for longer."""

from __future__ import annotations

import random
from pathlib import Path

from tests.attack.fuzzer import Bounds, Fuzzer

SECONDS = 6.0


def test_two_hostile_tenants_cause_no_fault_and_delay_no_third(tmp_path: Path) -> None:
    report = Fuzzer(tmp_path, random.Random(7), server_only=True).run(SECONDS)
    # Machines that run tests are busy with other things: half a minute would be a fault, a second is not.
    assert report.problems(Bounds(p99_seconds=2.0)) == [], report.text()
    assert sum(report.codes.values()) > 20
