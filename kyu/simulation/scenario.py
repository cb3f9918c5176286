"""
A scenario: a load as a short YAML document.

Each entry of `jobs` describes jobs of one class: their number, when they arrive, how long they run, and what they
request. Arrival and run times may be drawn at random; the seed makes each run of a scenario the same.

Called by: simulation/load.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from kyu.api import duration
from kyu.simulation.jobs import LoadError, PodRequest, SimulatedJob
from kyu.simulation.logs import check_quantity

FIELDS: Final = frozenset({"jobs", "seed", "name"})
ENTRY_FIELDS: Final = frozenset(
    {
        "name", "queue", "team", "count", "first", "every", "arrivals", "runtime", "limit", "priority", "pods",
        "requests", "nodeSelector",
    }
)  # fmt: skip
MOST_JOBS: Final = 10_000_000
# The z-value below which nine tenths of a normal distribution lie.
Z90: Final = 1.2815515655446004


def parse_scenario(document: Any) -> Iterator[SimulatedJob]:
    """Yield the jobs of a scenario, entry by entry."""
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise LoadError("a scenario is an object with a list `jobs`")
    refuse_unknown(document, FIELDS, "the scenario")
    seed = document.get("seed", 0)
    if not isinstance(seed, int):
        raise LoadError("seed: expected a whole number")
    for index, entry in enumerate(document["jobs"]):
        if not isinstance(entry, dict):
            raise LoadError(f"jobs[{index}]: expected an object")
        where = f"jobs[{index}]"
        refuse_unknown(entry, ENTRY_FIELDS, where)
        # A generator for each entry, so that a change of one entry leaves the draws of the others.
        yield from _jobs_of(entry, Random(f"{seed} {index}"), where)


def refuse_unknown(found: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    """Raise LoadError if a field is not known."""
    if unknown := sorted(set(found) - known):
        raise LoadError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")


def _jobs_of(entry: Mapping[str, Any], random: Random, where: str) -> Iterator[SimulatedJob]:
    name = str(entry.get("name", where.strip("]").replace("[", "-")))
    count = _whole(entry.get("count", 1), f"{where}.count", least=0)
    if count > MOST_JOBS:
        raise LoadError(f"{where}.count: at most {MOST_JOBS:,} jobs")
    limit = seconds(entry["limit"], f"{where}.limit") if "limit" in entry else None
    if limit is not None and limit < 1:
        raise LoadError(f"{where}.limit: at least 1s")
    request = _request_of(entry, where)
    runtime = _draw(entry.get("runtime"), f"{where}.runtime", random)
    time, every = seconds(entry.get("first", 0), f"{where}.first"), seconds(entry.get("every", 0), f"{where}.every")
    arrivals = entry.get("arrivals", "regular")
    if arrivals not in ("regular", "random"):
        raise LoadError(f"{where}.arrivals: expected `regular` or `random`")
    for number in range(1, count + 1):
        yield SimulatedJob(
            name=f"{name}-{number}",
            submitted=time,
            runtime=runtime(),
            request=request,
            queue=str(entry.get("queue", "")),
            limit=None if limit is None else int(limit),
            priority=_whole(entry.get("priority", 0), f"{where}.priority", least=-(2**31)),
            job_class=name,
            team=str(entry.get("team", "")),
        )
        time += random.expovariate(1 / every) if arrivals == "random" and every > 0 else every


def _request_of(entry: Mapping[str, Any], where: str) -> PodRequest:
    requests = entry.get("requests")
    if not isinstance(requests, dict) or not requests:
        raise LoadError(f"{where}.requests: expected resources such as {{cpu: 1}}")
    for resource, value in requests.items():
        check_quantity(str(value), f"{where}.requests.{resource}")
    selector = entry.get("nodeSelector", {})
    if not isinstance(selector, dict):
        raise LoadError(f"{where}.nodeSelector: expected labels")
    return PodRequest(
        tuple(sorted((str(resource), str(value)) for resource, value in requests.items())),
        _whole(entry.get("pods", 1), f"{where}.pods", least=1),
        tuple(sorted((str(label), str(value)) for label, value in selector.items())),
    )


def _draw(value: Any, where: str, random: Random) -> Callable[[], float]:
    """Return a function that draws run times: one value, a range, or a distribution with a long tail."""
    if not isinstance(value, dict):
        fixed = _positive(value, where)
        return lambda: fixed
    if set(value) == {"from", "to"}:
        low, high = _positive(value["from"], f"{where}.from"), _positive(value["to"], f"{where}.to")
        return lambda: float(math.ceil(random.uniform(low, high)))
    if set(value) == {"median", "p90"}:
        median, p90 = _positive(value["median"], f"{where}.median"), _positive(value["p90"], f"{where}.p90")
        if p90 < median:
            raise LoadError(f"{where}: p90 is shorter than the median")
        sigma = math.log(p90 / median) / Z90
        return lambda: float(math.ceil(random.lognormvariate(math.log(median), sigma)))
    raise LoadError(f"{where}: expected a duration, {{from, to}} or {{median, p90}}")


def _positive(value: Any, where: str) -> float:
    found = seconds(value, where)
    if found <= 0:
        raise LoadError(f"{where}: expected a duration above zero, such as 10m")
    return found


def seconds(value: Any, where: str) -> float:
    """Return the seconds of a duration such as 90s, 1h30m or 2d, or of a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise LoadError(f"{where}: expected a duration such as 90s, 30m, 1h30m or 2d")
    days, _, rest = value.rpartition("d") if "d" in value else ("", "", value)
    if days and not days.isdigit():
        raise LoadError(f"{where}: {value!r} is not a duration such as 90s, 30m, 1h30m or 2d")
    try:
        total = int(days or 0) * 86_400 + (duration.parse(rest).total_seconds() if rest else 0.0)
    except duration.DurationError:
        raise LoadError(f"{where}: {value!r} is not a duration such as 90s, 30m, 1h30m or 2d") from None
    if total < 0:
        raise LoadError(f"{where}: {value!r} is negative")
    return total


def _whole(value: Any, where: str, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LoadError(f"{where}: expected a whole number of at least {least}")
    return value
