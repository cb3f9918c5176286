"""
Settings of all tests: property tests draw the same examples on every run, and take the time they need.

KYU_FUZZ=N draws N new examples each time instead, to look for what nobody thought of.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", PATIENT, derandomize=True)
settings.register_profile("fuzz", PATIENT, max_examples=int(os.environ.get("KYU_FUZZ", "1000")))
settings.load_profile("fuzz" if "KYU_FUZZ" in os.environ else "same")

# Modules, tests and cases live until the end. Python's defaults look through all of them again and again.
gc.set_threshold(20_000, 50, 100)

TESTS = Path(__file__).parent
# With several workers these files start first, the longest at the beginning: a worker that begins one at the end keeps
# the others waiting.
LONGEST = [
    "e2e/test_demo.py", "e2e/test_crash.py", "engine/test_run_until_stable.py", "e2e/test_kubestellar.py",
    "runtime/test_local_nodes.py", "e2e/test_master_queue.py", "e2e/test_workflow_crash.py", "e2e/test_foresight.py",
    "bus/test_nats_trouble.py", "pools/test_local.py", "cli/test_logs.py", "sdk/test_crash.py",
    "e2e/test_many_clusters.py", "plans/test_master_queue_totals.py", "e2e/test_capacity_quota.py",
    "e2e/test_interactive_page.py", "server/test_crash.py", "cli/test_reconnect.py", "e2e/test_embedded.py",
    "cli/test_up.py", "server/test_managed_fields.py", "engine/test_topology_plain.py", "server/test_attacks_fuzzed.py",
    "cli/test_arrays.py", "server/test_fuzz.py", "workflows/test_properties.py", "cli/test_batch_user.py",
]  # fmt: skip
ORDER = {TESTS / name: position for position, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.get(item.path, len(ORDER)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
