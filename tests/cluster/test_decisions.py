"""
Kyu's engine admits whom Kueue admits, in random histories on a real control plane.

DECISIONS_SEED and DECISIONS_SCENARIOS play other and more of them than the few that are always played.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.engine import options
from tests.cluster import decisions, kueue
from tests.cluster.client import Manifest
from tests.cluster.conftest import require
from tests.cluster.controlplane import ControlPlane
from tests.cluster.decisions_played import LONG_QUIET_SECONDS, Kueue, Kyu

SEED = int(os.environ.get("DECISIONS_SEED", "1"))
SCENARIOS = int(os.environ.get("DECISIONS_SCENARIOS", "8"))
ARRIVALS = int(os.environ.get("DECISIONS_ARRIVALS", "5"))
# Gates that the versions of Kueue disagree about are set.
GATES = {"RecomputeAssignmentUponPreemptionTargetsOverlap": True, "FlavorFungibilityPreserveScanProgress": True}
SETTINGS: dict[str, Manifest] = {
    "classical": {"featureGates": GATES},
    "fair": {
        "featureGates": GATES,
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    },
}


@pytest.fixture(scope="module")
def bare_plane() -> Iterator[ControlPlane]:
    """An API server with Kueue's kinds, nothing else."""
    require("kueue")
    with ControlPlane.start() as running:
        kueue.install(running, webhooks=True)
        yield running


@pytest.mark.parametrize("mode", SETTINGS)
def test_same_admissions(mode: str, bare_plane: ControlPlane) -> None:
    kueue.run(bare_plane, SETTINGS[mode])
    try:
        seeds = range(SEED, SEED + SCENARIOS)
        differences = play(mode, {f"{mode}-{seed}": seed for seed in seeds}, Kueue(bare_plane.admin))
        if differences:
            again = {f"{mode}-{seed}-again": seed for seed in differences}
            differences = play(mode, again, Kueue(bare_plane.admin, LONG_QUIET_SECONDS))
    finally:
        bare_plane.processes.kill(kueue.NAME)
    assert not differences, "\n".join(differences.values())


def play(mode: str, seed_by_name: dict[str, int], theirs: Kueue) -> dict[int, str]:
    """Scenarios side by side, one arrival in each at a time. A line per seed that goes another way with Kyu."""
    theirs.admin.apply(decisions.flavors())
    scenarios = [decisions.scenario(name, seed, ARRIVALS) for name, seed in seed_by_name.items()]
    known = options.from_configuration(configuration(SETTINGS[mode]))
    ours = {each.name: Kyu.start(known, [*decisions.flavors(), *theirs.set_up(each)]) for each in scenarios}
    theirs.settle()
    differences: dict[int, str] = {}
    for number in range(ARRIVALS):
        arrived = {each.name: theirs.admin.create(each.workloads[number]) for each in scenarios}
        theirs.settle()
        for name, workload in arrived.items():
            ours[name].arrive(workload)
            wanted, found = theirs.outcome(name), ours[name].outcome()
            if wanted != found:
                told = f"{name}, arrival {number}:\n  Kueue {wanted}\n  Kyu   {found}"
                differences.setdefault(seed_by_name[name], told)
    return differences


def configuration(settings: Manifest) -> Configuration:
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    return file.load({**head, **settings}).configuration
