"""Whatever happens to clusters and connections: a job is never made in two of them, and never lost."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from kyu.api.actions import Action, Create, Elsewhere
from kyu.kinds.job import JOB
from tests.support.dispatch_world import LOST_AFTER, World

NAMES = ("east", "west")
HAPPENINGS = st.tuples(
    st.sampled_from(["again", "evict", "lose", "find", "clean up", "evict here", "long"]),
    st.sampled_from(NAMES),
    st.booleans(),
)


class Guarded(World):
    """Objects to a job that is made while another cluster may have it. In haste, plans do not come to their end."""

    in_haste = False

    def settle(self) -> None:
        if self.in_haste:
            self.one_round()
        else:
            super().settle()

    def carry_out(self, action: Action) -> None:
        if isinstance(action, Elsewhere) and isinstance(action.action, Create) and action.action.kind == JOB:
            others = [name for name in self.jobs() if name != action.cluster]
            allowed = [name for name in others if self.is_given_up(name)]
            assert others == allowed, f"made in {action.cluster} while {others} have it"
        super().carry_out(action)

    def is_given_up(self, name: str) -> bool:
        lost: datetime | None = self.lost.get(name)
        return lost is not None and self.now >= lost + LOST_AFTER

    def happen(self, what: str, name: str) -> None:
        match what:
            case "again":
                self.reserve("manager", name)
            case "evict":
                self.clusters[name].evict(self.now)
            case "lose":
                self.lose(name)
            case "find":
                self.find(name)
            case "clean up":
                # Somebody does, there, by hand.
                there = self.clusters[name]
                there.objects = {key: one for key, one in there.objects.items() if key[1] not in ("Job", "Workload")}
            case "evict here":
                self.manager.evict(self.now)
            case "long":
                self.wait(LOST_AFTER + timedelta(seconds=1))
        self.settle()


@example("west", [("lose", "west", False), ("evict here", "west", False), ("again", "east", False)])
@example("west", [("lose", "west", False), ("long", "", False), ("again", "east", False), ("find", "west", False)])
@given(st.sampled_from(NAMES), st.lists(HAPPENINGS, max_size=10))
def test_a_job_is_made_in_one_cluster_at_a_time_and_ends_when_all_is_well_again(
    first: str, story: list[tuple[str, str, bool]]
) -> None:
    world = Guarded(NAMES)
    world.submit()
    world.reserve("manager", first)
    for what, name, in_haste in story:
        world.in_haste = in_haste
        world.happen(what, name)
        reached = [name for name in world.jobs() if name not in world.lost]
        assert in_haste or len(reached) <= 1
    world.in_haste = False
    for name in NAMES:
        world.find(name)
    world.reserve("manager")
    world.reserve(*NAMES)
    assert world.jobs() == [world.cluster_name]
    world.clusters[world.cluster_name].end_job()
    world.settle()
    assert world.manager.holds("Finished")
    assert world.copies() == world.jobs() == []
