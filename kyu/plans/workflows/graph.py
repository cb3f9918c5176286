"""The graph of a Workflow: the order of its steps, circles in it, and the steps before a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kyu.api.workflows import WorkflowStep


def in_order(steps: Sequence[WorkflowStep]) -> list[WorkflowStep]:
    """Return the steps so that each comes after those that it waits for. Steps of a circle are left out."""
    step_by_name = {step.name: step for step in steps}
    missing = {step.name: len(set(step.after) & step_by_name.keys()) for step in steps}
    followers = followers_of(steps)
    ready = [step.name for step in steps if not missing[step.name]]
    found: list[WorkflowStep] = []
    # The list grows while it is read.
    for name in ready:
        found.append(step_by_name[name])
        for follower in followers.get(name, ()):
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    return found


def followers_of(steps: Sequence[WorkflowStep]) -> dict[str, list[str]]:
    """Return the names of the steps that wait for a step, by its name."""
    followers: dict[str, list[str]] = {}
    for step in steps:
        for name in dict.fromkeys(step.after):
            followers.setdefault(name, []).append(step.name)
    return followers


def find_circle(steps: Sequence[WorkflowStep]) -> list[str]:
    """Return the names of a circle, the first one again at the end; nothing if there is none."""
    reached = {step.name for step in in_order(steps)}
    after_by_name = {
        step.name: [name for name in step.after if name not in reached] for step in steps if step.name not in reached
    }
    # Each of the remaining steps waits for another of them: following that ends in a circle.
    path: list[str] = []
    name = next((name for name, after in after_by_name.items() if any(one in after_by_name for one in after)), "")
    while name and name not in path:
        path.append(name)
        name = next((one for one in after_by_name[name] if one in after_by_name), "")
    return [*path[path.index(name) :], name][::-1] if name else []


class EarlierSteps:
    """The steps that are over when a step starts, as bits: a graph of 1,000 steps has 500,000 such pairs."""

    def __init__(self, steps: Sequence[WorkflowStep]) -> None:
        self._bit_by_name = {step.name: 1 << position for position, step in enumerate(steps)}
        self._before: dict[str, int] = {}
        for step in in_order(steps):
            self._before[step.name] = 0
            for name in step.after:
                self._before[step.name] |= self._bit_by_name.get(name, 0) | self._before.get(name, 0)

    def has(self, name: str, earlier: str) -> bool:
        return bool(self._before.get(name, 0) & self._bit_by_name[earlier])


def levels(steps: Sequence[WorkflowStep]) -> Iterator[list[WorkflowStep]]:
    """Yield the steps by their distance from the start, for drawings."""
    level_by_name: dict[str, int] = {}
    for step in in_order(steps):
        level_by_name[step.name] = max(
            (level_by_name[one] + 1 for one in step.after if one in level_by_name), default=0
        )
    for level in range(max(level_by_name.values(), default=-1) + 1):
        yield [step for step in steps if level_by_name.get(step.name) == level]
