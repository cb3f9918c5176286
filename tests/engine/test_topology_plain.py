"""
The same placements as a plain program: no caches, no sorted keys, nothing incremental.

The plain program below works on paths instead of numbers and counts everything anew for every question. Random
clusters and requests must get the same hosts from both, also while workloads come and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from kyu.api.core import NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from kyu.engine.topology import search
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import (
    DomainUsage,
    FlavorInfo,
    Gates,
    NodeInfo,
    PlacementRequest,
    PodFilter,
    SliceLayer,
    TopologyRequest,
)
from tests.support.topology_trees import LEVELS, examples

Path: TypeAlias = tuple[str, ...]
LAST = len(LEVELS) - 1


@dataclass(frozen=True)
class Host:
    path: Path
    cpu: int
    liked: bool


@dataclass(frozen=True)
class Question:
    """A request with everything in plain words; ``leader`` is the CPU of a leader, if there is one."""

    count: int
    cpu: int
    leader: int | None
    reach: str
    level: int
    layers: tuple[tuple[int, int], ...]


@dataclass
class Offer:
    """What a domain can do."""

    pods: int = 0
    slices: int = 0
    pods_led: int = 0
    slices_led: int = 0
    leads: bool = False
    liked: int = 0


class Plain:
    def __init__(self, hosts: list[Host], free: dict[Path, int], question: Question) -> None:
        self.question = question
        self.leader = question.leader is not None
        self.slice_level, self.size = question.layers[0] if question.layers else (LAST, 1)
        self.unit = dict.fromkeys(range(len(LEVELS)), 1)
        for (outer, _), (inner, size) in zip(question.layers, question.layers[1:], strict=False):
            self.unit.update(dict.fromkeys(range(outer + 1, inner + 1), size))
        self.best_fit = question.reach != "unconstrained"
        self.offers: dict[Path, Offer] = {}
        for host in hosts:
            self.offers[host.path] = self.count_host(host, free[host.path])
        for length in range(LAST, 0, -1):
            for path in {host.path[:length] for host in hosts}:
                self.offers[path] = self.count_domain(path)

    def count_host(self, host: Host, free: int) -> Offer:
        pods = max(0, free // self.question.cpu)
        offer = Offer(pods=pods, pods_led=pods, liked=int(host.liked))
        if self.question.leader is not None and free >= self.question.leader:
            offer.leads = True
            offer.pods_led = max(0, (free - self.question.leader) // self.question.cpu)
        if self.slice_level == LAST:
            offer.slices, offer.slices_led = offer.pods // self.size, offer.pods_led // self.size
        return offer

    def count_domain(self, path: Path) -> Offer:
        level = len(path) - 1
        unit = self.unit[level + 1]
        below = [self.offers[child] for child in self.children(path)]
        capable = [o for o in below if o.leads]
        pods = sum(o.pods // unit * unit for o in below)
        slices = sum(o.slices for o in below)
        led = slices_led = 0
        if capable:
            led = pods - min(o.pods // unit * unit - o.pods_led // unit * unit for o in capable)
            slices_led = slices - min(o.slices - o.slices_led for o in capable)
        if level == self.slice_level:
            slices, slices_led = pods // self.size, led // self.size
        return Offer(pods, slices, led, slices_led, bool(capable), sum(o.liked for o in below))

    def children(self, path: Path) -> list[Path]:
        return sorted(p for p in self.offers if len(p) == len(path) + 1 and p[: len(path)] == path)

    def sort(self, paths: list[Path], *, led: bool) -> list[Path]:
        sign = -1 if self.best_fit else 1

        def key(path: Path) -> tuple[bool, int, int, int, Path]:
            o = self.offers[path]
            if led and self.leader:
                return (not o.leads, -o.liked, sign * o.slices_led, o.pods_led, path)
            return (False, -o.liked, sign * o.slices, o.pods, path)

        return sorted(paths, key=key)

    def capacity(self, path: Path, unit: int | None, *, led: bool) -> int:
        """In slices, or in units of so many pods."""
        o = self.offers[path]
        if unit is None:
            return o.slices_led if led else o.slices
        return (o.pods_led if led else o.pods) // unit

    def suffices(self, path: Path, amount: int, unit: int | None, *, led: bool) -> bool:
        return self.capacity(path, unit, led=led) >= amount and (not led or self.offers[path].leads)

    def tightest(self, paths: list[Path], amount: int, unit: int | None, *, led: bool) -> Path:
        alike = [p for p in paths if self.offers[p].liked == self.offers[paths[0]].liked]
        return min(
            (p for p in alike if self.suffices(p, amount, unit, led=led)),
            key=lambda p: self.capacity(p, unit, led=led),
        )

    def leader_first(self, paths: list[Path], amount: int, unit: int | None) -> list[Path]:
        total = sum(self.capacity(p, unit, led=False) for p in paths)
        for path in paths:
            lost = self.capacity(path, unit, led=False) - self.capacity(path, unit, led=True)
            if self.offers[path].leads and total - lost >= amount:
                return [path, *(p for p in paths if p != path)]
        return paths

    def walk(self, paths: list[Path], amount: int, unit: int | None, *, led: bool) -> list[tuple[Path, int, bool]]:
        shares: list[tuple[Path, int, bool]] = []
        left = self.leader_first(paths, amount, unit) if led else list(paths)
        while left and (amount > 0 or led):
            path = left[0]
            if self.best_fit and self.suffices(path, amount, unit, led=led):
                path = self.tightest(left, amount, unit, led=led)
            taken = min(amount, self.capacity(path, unit, led=led))
            hosts = led and self.offers[path].leads
            if taken or hosts:
                shares.append((path, taken, hosts))
            amount, led = amount - taken, led and not hosts
            left.remove(path)
        return shares

    def pick(self, level: int) -> list[tuple[Path, int, bool]] | None:
        question, wanted = self.question, self.question.count // self.size
        ordered = self.sort([p for p in self.offers if len(p) == level + 1], led=True)
        enough = [p for p in ordered if self.suffices(p, wanted, None, led=self.leader)]
        if not self.best_fit and enough:
            return [(enough[0], wanted, self.leader)]
        if enough and (enough[0] == ordered[0] or question.reach == "required"):
            rest = ordered[ordered.index(enough[0]) :]
            return [(self.tightest(rest, wanted, None, led=self.leader), wanted, self.leader)]
        if question.reach == "required":
            return None
        if question.reach == "preferred" and level > 0:
            return self.pick(level - 1)
        return self.several(ordered, wanted)

    def several(self, ordered: list[Path], wanted: int) -> list[tuple[Path, int, bool]] | None:
        taken: list[Path] = []
        missing = wanted
        if self.leader:
            ordered = self.leader_first(ordered, wanted, None)
            host = ordered[0]
            if not self.offers[host].leads:
                return None
            if self.best_fit and self.suffices(host, missing, None, led=True):
                host = self.tightest(ordered, missing, None, led=True)
            taken, missing = [host], missing - self.offers[host].slices_led
            ordered = self.sort([p for p in ordered if p != host], led=False)
        while missing > 0 and ordered:
            path = ordered[0]
            if self.best_fit and self.suffices(path, missing, None, led=False):
                path = self.tightest(ordered, missing, None, led=False)
            ordered.remove(path)
            taken.append(path)
            missing -= self.offers[path].slices
        return None if missing > 0 else self.walk(taken, wanted, None, led=self.leader)

    def place(self) -> tuple[dict[str, int], str | None] | None:
        """Pods by host, and the host of the leader."""
        shares = self.pick(self.question.level)
        if shares is None:
            return None
        while len(shares[0][0]) - 1 < self.slice_level if shares else False:
            pool = [child for path, _, _ in shares for child in self.children(path)]
            amount = self.question.count // self.size
            shares = self.walk(self.sort(pool, led=False), amount, None, led=self.leader)
        shares = [(path, amount * self.size, leads) for path, amount, leads in shares]
        while shares and len(shares[0][0]) <= LAST:
            unit = self.unit[len(shares[0][0])]
            shares = [
                (child, amount * unit, leads)
                for path, whole, led in shares
                for child, amount, leads in self.walk(
                    self.sort(self.children(path), led=False), whole // unit, unit, led=led
                )
            ]
        pods = {path[-1]: amount for path, amount, _ in shares if amount}
        return pods, next((path[-1] for path, _, leads in shares if leads), None)


LIKED = PodFilter(
    preferred_terms=(PreferredSchedulingTerm(1, NodeSelectorTerm((NodeSelectorRequirement("liked", "In", ("yes",)),))),)
)


def build(hosts: list[Host]) -> Forest:
    trees = Forest(Gates(preferred_affinity=True))
    trees.put_flavor(FlavorInfo("f", "default", LEVELS))
    for host in hosts:
        labels = dict(zip(LEVELS, host.path, strict=True)) | {"liked": "yes" if host.liked else "no"}
        trees.put_node(NodeInfo(host.path[-1], labels, {"cpu": host.cpu, "pods": 1000}))
    return trees


def requests(question: Question) -> list[PlacementRequest]:
    level = LEVELS[question.level]
    layers = tuple(SliceLayer(LEVELS[at], size) for at, size in question.layers)
    words = {"required": {"required": level}, "preferred": {"preferred": level}}.get(question.reach, {})
    topology_request = TopologyRequest(unconstrained=not words, layers=layers, **words)
    group = None if question.leader is None else "g"
    made = [PlacementRequest("w", "f", question.count, (("cpu", question.cpu),), topology_request, LIKED, group)]
    if question.leader is not None:
        made.append(PlacementRequest("l", "f", 1, (("cpu", question.leader),), topology_request, LIKED, group))
    return made


def ask(trees: Forest, question: Question) -> tuple[dict[str, int], str | None] | None:
    outcome = search.place(trees, requests(question))
    if outcome.failure is not None:
        return None
    pods = {domain.values[0]: domain.count for domain in outcome.placements["w"].domains}
    leader = outcome.placements.get("l")
    return pods, leader.domains[0].values[0] if leader is not None else None


@st.composite
def clusters(draw: st.DrawFn, *, liked: bool) -> list[Host]:
    racks = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=3)
    sizes = draw(st.lists(racks, min_size=1, max_size=3))
    return [
        Host((f"b{b}", f"b{b}r{r}", f"b{b}r{r}h{h}"), cpu, liked and draw(st.booleans()))
        for b, block in enumerate(sizes)
        for r, cpus in enumerate(block)
        for h, cpu in enumerate(cpus)
    ]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    reach = draw(st.sampled_from(["required", "preferred", "unconstrained"]))
    leader = draw(st.none() | st.integers(1, 5)) if reach != "unconstrained" else None
    layers = draw(
        st.sampled_from(
            [
                (),
                ((2, 2),),
                ((1, 2),),
                ((1, 3),),
                ((0, 4),),
                ((1, 4), (2, 2)),
                ((0, 4), (2, 2)),
                ((0, 4), (1, 2), (2, 1)),
            ]
        )
    )
    level = draw(st.integers(0, layers[0][0] if layers else LAST))
    if reach == "unconstrained":
        level = 0 if layers else LAST
    size = layers[0][1] if layers else 1
    # Two pods at least, so that the leader is the smaller pod set.
    count = size * draw(st.integers(1, 5)) if size > 1 else draw(st.integers(2, 12))
    return Question(count, draw(st.integers(1, 2)), leader, reach, level, layers)


@examples(250)
@given(clusters(liked=False) | clusters(liked=True), questions())
def test_one_placement(hosts: list[Host], question: Question) -> None:
    free = {host.path: host.cpu for host in hosts}
    wanted = Plain(hosts, free, question).place()
    assert ask(build(hosts), question) == wanted


@examples(100)
@given(
    clusters(liked=False) | clusters(liked=True),
    st.lists(questions(), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=15),
)
def test_placements_while_workloads_come_and_go(
    hosts: list[Host], asked: list[Question], events: list[tuple[int, int]]
) -> None:
    """Counts that are kept and brought up to date must equal counts that are made afresh."""
    trees = build(hosts)
    free = {host.path: host.cpu for host in hosts}
    path_by_name = {host.path[-1]: host.path for host in hosts}
    running: list[list[DomainUsage]] = []
    for number, leaving in events:
        question = asked[number]
        answer = Plain(hosts, free, question).place()
        assert ask(trees, question) == answer
        lines = usages(question, answer)
        trees.add(lines)
        running.append(lines)
        gone = running.pop(leaving) if leaving < len(running) else []
        trees.remove(gone)
        for sign, changed in ((-1, lines), (1, gone)):
            for line in changed:
                free[path_by_name[line.values[0]]] += sign * line.count * line.requests[0][1]


def usages(question: Question, answer: tuple[dict[str, int], str | None] | None) -> list[DomainUsage]:
    if answer is None:
        return []
    lines = [DomainUsage("f", (name,), pods, (("cpu", question.cpu),)) for name, pods in answer[0].items()]
    if answer[1] is not None and question.leader is not None:
        lines.append(DomainUsage("f", (answer[1],), 1, (("cpu", question.leader),)))
    return lines
