"""
Show the decisions that the scheduler would take on these manifests, without a cluster or on top of a running one.

    kyu decide -f queues.yaml -f jobs/ --now 2026-01-01T00:00:00Z
    kyu decide --live -f job.yaml               # with the objects of the server, which does not change
    kyu decide -f queues.yaml -f jobs/ --why train

Jobs become Workloads first, in the order of the files. Workloads may hold quota in their status. Between cycles,
admitted workloads keep their quota, and preempted workloads release it and queue again. Without --cycles, cycles run
until nothing more is decided.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kyu.cli import connection, output
from kyu.cli.main import BadInput, Failed
from kyu.kube.errors import Forbidden

if TYPE_CHECKING:
    from kyu.api.codec import Manifest
    from kyu.api.config.config import Configuration
    from kyu.api.meta import Json
    from kyu.engine.decisions import Cycle
    from kyu.engine.reasons import Reason
    from kyu.engine.state import State
    from kyu.engine.stats import QuotaReport

MAX_CYCLES = 100_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="manifests: a file, a folder, or - for standard input",
    )
    parser.add_argument("--live", action="store_true", help="add the objects of the server")
    connection.arguments(parser)
    parser.add_argument("--config", metavar="FILE", help="Kueue Configuration")
    parser.add_argument("--now", metavar="TIME", help="time of the decision, RFC 3339 (default: now)")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--cycles", type=int, metavar="N", help="run exactly N cycles, with one head per queue in each")
    steps.add_argument("--until-stable", action="store_true", help="run until nothing more is decided (default)")
    parser.add_argument(
        "--why", metavar="NAME", help="explain one pending job or Workload, and what would admit it, instead"
    )
    parser.add_argument("--no-validate", action="store_true", help="skip validation, as for stored objects")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")


def run(args: argparse.Namespace) -> int:
    from kyu.api import codec
    from kyu.cli.sources import read_manifests
    from kyu.engine import options
    from kyu.engine.state import State

    if args.cycles is not None and args.cycles < 1:
        raise BadInput("--cycles must be at least 1")
    now = parse_time(args.now)
    there, configuration = read_server(args) if args.live else ([], load_configuration(args.config))
    manifests = [in_namespace(manifest) for name in args.filename for manifest in read_manifests(name)]
    objects = decode_all(manifests, configuration, validate=not args.no_validate)
    objects += workloads_of_jobs(manifests, there, configuration, now)
    if not objects:
        raise BadInput(
            f"{', '.join(args.filename)}: nothing to decide: there is no queue, no Workload and no job with a queue"
        )
    state = State(options.from_configuration(configuration))
    feed(state, [*(codec.decode(obj) for obj in there if obj["kind"] in ENGINE_KINDS), *objects])
    if args.why:
        from kyu.cli.admin.decide_why import explain_one

        everything = [*(codec.decode(obj) for obj in there if obj["kind"] in ENGINE_KINDS), *objects]
        print(explain_one(state, everything, args.why, now, args.output))
        return 0
    result = rehearse(state, now, args.cycles)
    print_result(result, args.output, only={str(obj.key) for obj in objects} if args.live else None)
    return 0


def read_server(args: argparse.Namespace) -> tuple[list[Json], Configuration]:
    """Return the objects of the server, and the settings of the file or else of the server."""
    from kyu.cli import server_state

    server = connection.connect(args)
    settings = load_configuration(args.config) if args.config else server_state.read_configuration(server)
    try:
        return server_state.read_objects(server), settings
    except Forbidden as error:
        raise Failed(
            "--live: you may not see the usage of others, which a decision depends on; "
            "submit the job with `kyu submit`, and `kyu why JOB` explains why it waits"
        ) from error


def parse_time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--now: {text!r} is not a time such as 2026-01-01T00:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def load_configuration(name: str | None) -> Configuration:
    """Return the settings of a file. Without one, every kind of job is queued, as on the embedded server."""
    import msgspec

    from kyu.api.config import file
    from kyu.api.config.config import Configuration, Integrations
    from kyu.cli.sources import read_manifests
    from kyu.kinds import table

    if name is None:
        return msgspec.structs.replace(Configuration(), integrations=Integrations(frameworks=table.FRAMEWORKS))
    manifests = read_manifests(name)
    if len(manifests) != 1:
        raise BadInput(f"{name}: expected one Configuration, found {len(manifests)} documents")
    try:
        return file.load(manifests[0].object).configuration
    except file.InvalidConfiguration as error:
        raise BadInput("\n".join(f"{name}: document 1: {fault}" for fault in error.errors)) from None


def in_namespace(manifest: Manifest) -> Manifest:
    """Default the namespace of a manifest to `default`, as kubectl does."""
    import msgspec

    from kyu.kinds import table

    job_kind = table.find(manifest.object)
    if manifest.kind not in NAMESPACED_KINDS and (job_kind is None or not job_kind.kind.namespaced):
        return manifest
    given = manifest.object.get("metadata")
    if not isinstance(given, dict) or given.get("namespace"):
        return manifest
    return msgspec.structs.replace(manifest, object={**manifest.object, "metadata": {**given, "namespace": "default"}})


def workloads_of_jobs(
    manifests: list[Manifest], there: list[Json], configuration: Configuration, now: datetime
) -> list[Any]:
    """Return the Workloads of the jobs, and the namespaces of these jobs that no file contains."""
    from kyu.api import codec
    from kyu.api.core import Namespace
    from kyu.plans.job import rehearsal

    jobs = [manifest for manifest in manifests if rehearsal.is_job(manifest.object)]
    others = (manifest.object for manifest in manifests if not rehearsal.is_job(manifest.object))
    view = rehearsal.ObjectsView([*there, *others], configuration)
    answers = rehearsal.rehearse(view, [manifest.object for manifest in jobs], now)
    faults = [
        str(manifest.fault(error.message, error.field))
        for manifest, answer in zip(jobs, answers, strict=True)
        for error in answer.errors
    ]
    if faults:
        raise BadInput("\n".join(faults))
    made = [codec.decode(answer.workload) for answer in answers if answer.workload is not None]
    known = {name.name for _, kind, name in view.objects if kind == "Namespace"}
    missing = dict.fromkeys(name for obj in made if (name := obj.metadata.namespace) not in known)
    labels = "kubernetes.io/metadata.name"
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": {labels: n}}} for n in missing
    ]
    return [*(codec.decode_as(Namespace, space) for space in spaces), *made]


def decode_all(manifests: list[Manifest], configuration: Configuration, *, validate: bool) -> list[Any]:
    """Decode the objects of kinds that the engine uses, or raise BadInput with all errors."""
    from kyu.api import codec, rules

    objects: list[Any] = []
    faults: list[str] = []
    for manifest in manifests:
        if manifest.kind not in ENGINE_KINDS or codec.find_type(manifest.api_version, manifest.kind) is None:
            continue
        try:
            obj = manifest.decode()
            if validate:
                complete = rules.defaults(manifest.object)
                errors = rules.validate(complete, gates=configuration.gates)
                faults += [str(manifest.fault(error.message, error.field)) for error in errors]
                for path in rules.unknown_fields(manifest.object):
                    # The field is misspelt or of a newer Kueue. A server prunes it too.
                    output.note(f"warning: {manifest.fault('unknown field, ignored', path)}")
                obj = codec.decode(complete) if not errors else obj
            objects.append(obj)
        except codec.DecodeError as error:
            faults.append(str(error))
    if faults:
        raise BadInput("\n".join(faults))
    return objects


ENGINE_KINDS = frozenset(
    {
        "AdmissionCheck", "ClusterQueue", "Cohort", "LimitRange", "LocalQueue", "Namespace", "Node", "Pod",
        "ResourceFlavor", "RuntimeClass", "Topology", "Workload", "WorkloadPriorityClass",
    }
)  # fmt: skip


NAMESPACED_KINDS = frozenset({"LimitRange", "LocalQueue", "Workload"})


def feed(state: State, objects: list[Any]) -> None:
    """Add the objects to the state. If no Namespace is given, those that objects name exist."""
    from kyu.api.core import Namespace
    from kyu.api.meta import ObjectMeta
    from kyu.api.quantity import QuantityError

    if not any(isinstance(obj, Namespace) for obj in objects):
        names = sorted({obj.metadata.namespace for obj in objects} - {""})
        objects = [*(Namespace(metadata=ObjectMeta(name=name)) for name in names), *objects]
    # Workloads come last, because LimitRanges and RuntimeClasses change their requests.
    for obj in sorted(objects, key=lambda obj: bool(obj.KIND.kind == "Workload")):
        try:
            state.put(obj)
        except QuantityError as error:
            raise BadInput(f"{obj.KIND.kind} {obj.key}: {error}") from None


def rehearse(state: State, now: datetime, cycles: int | None) -> dict[str, Any]:
    """Run cycles, and take each decision as done at once; return the result as it is printed."""
    from kyu.engine.schedule import schedule
    from kyu.engine.what_if.trial import requeue_time

    steps: list[dict[str, Any]] = []
    seen: set[frozenset[object]] = set()
    for _ in range(cycles or MAX_CYCLES):
        cycle = schedule(state, now, cycles=None if cycles is None else 1)
        steps.append(describe_cycle(state, cycle))
        for admit in cycle.admitted():
            if admit.is_complete:
                state.confirm(admit.key)
        leaving = {p.victim: requeue_time(state, p, now.timestamp()) for p in cycle.preempted()}
        leaving |= dict.fromkeys(e.key for e in cycle.evicted())
        for key, since in leaving.items():
            state.release(key, queued_at=since)
        # Queues may reclaim quota from each other forever. Stop at the first repetition.
        holders: frozenset[object] = frozenset(reserved.key for reserved in state.all_reserved())
        if cycles is None and (not leaving or holders in seen):
            break
        seen.add(holders)
    queues = {name: describe_queue(state, name) for name in state.queue_names()}
    cohorts = {name: describe_cohort(state, name) for name in state.cohort_names()}
    return {"cycles": steps, "clusterQueues": queues, "cohorts": cohorts}


def describe_cycle(state: State, cycle: Cycle) -> dict[str, Any]:
    from kyu.engine import explain

    left, inadmissible, pending = {}, {}, {}
    told = {wait.key: wait.reason for wait in cycle.waiting()}
    for name in state.queue_names():
        left[name] = [str(workload.key) for workload in state.active_in(name)]
        inadmissible[name] = [str(workload.key) for workload in state.inadmissible_in(name)]
    for workload in state.all_pending():
        reason = told.get(workload.key) or explain.why_waiting(state, workload)
        pending[str(workload.key)] = describe_reason(reason)
    return {
        "admitted": {str(a.key): describe_admission(a) for a in cycle.admitted() if not a.second_pass},
        "placed": {str(a.key): describe_admission(a) for a in cycle.admitted() if a.second_pass},
        "preempted": [
            {"workload": str(p.victim), "reason": p.reason, "preemptor": str(p.preemptor)} for p in cycle.preempted()
        ],
        "evicted": [{"workload": str(e.key), "reason": e.reason} for e in cycle.evicted()],
        "pending": pending,
        "left": {name: keys for name, keys in left.items() if keys},
        "inadmissible": {name: keys for name, keys in inadmissible.items() if keys},
    }


def describe_reason(reason: Reason) -> dict[str, str]:
    from kyu.engine import reasons

    word, message = reasons.render(reason)
    return {"reason": word, "message": message}


def describe_admission(admit: Any) -> dict[str, Any]:
    from kyu.api import quantity

    pod_sets = []
    for pod_set in admit.pod_sets:
        described: dict[str, Any] = {
            "name": pod_set.name,
            "count": pod_set.count,
            "flavors": dict(pod_set.flavors),
            "usage": {r: quantity.render(r, amount) for r, amount in pod_set.usage.items()},
        }
        if pod_set.placement is not None:
            described["topology"] = {
                "levels": list(pod_set.placement.levels),
                "domains": [{"values": list(d.values), "count": d.count} for d in pod_set.placement.domains],
            }
        pod_sets.append(described)
    return {"clusterQueue": admit.cluster_queue, "podSets": pod_sets}


def describe_queue(state: State, name: str) -> dict[str, Any]:
    why = state.why_inactive(name)
    described: dict[str, Any] = {"active": why is None, "weightedShare": state.stats(name).weighted_share}
    if why is not None:
        described["reason"] = why
    return {**described, "flavors": describe_quotas(state.queue_quotas(name))}


def describe_cohort(state: State, name: str) -> dict[str, Any]:
    share = state.cohort_stats(name).weighted_share
    return {"weightedShare": share, "flavors": describe_quotas(state.cohort_quotas(name))}


def describe_quotas(quotas: list[QuotaReport]) -> dict[str, Any]:
    from kyu.api import quantity

    flavors: dict[str, dict[str, dict[str, str]]] = {}
    for quota in quotas:
        flavor, resource = quota.key
        amounts = {
            "nominal": quota.nominal,
            "used": quota.used,
            "borrowed": quota.borrowed,
            "available": quota.available,
        }
        flavors.setdefault(flavor, {})[resource] = {
            word: quantity.render(resource, min(amount, quantity.UNLIMITED)) for word, amount in amounts.items()
        }
    return flavors


def print_result(result: dict[str, Any], form: str, only: Container[str] | None) -> None:
    from kyu.api import documents

    if form == "json":
        print(json.dumps(result, indent=2))
    elif form == "yaml":
        print(documents.render([result]), end="")
    else:
        print("\n".join(table(result, only)))


def table(result: dict[str, Any], only: Container[str] | None) -> Iterator[str]:
    """Yield the lines of a table: admitted, preempted and pending workloads. ``only`` filters the pending ones."""
    rows: list[tuple[str, ...]] = [("WORKLOAD", "QUEUE", "STATE", "DETAIL")]
    for number, cycle in enumerate(result["cycles"], start=1):
        step = f" (cycle {number})" if len(result["cycles"]) > 1 else ""
        rows += [(key, a["clusterQueue"], "Admitted" + step, flavors_text(a)) for key, a in cycle["admitted"].items()]
        rows += [(key, a["clusterQueue"], "Placed" + step, flavors_text(a)) for key, a in cycle["placed"].items()]
        rows += [
            (p["workload"], "", "Preempted" + step, f"by {p['preemptor']}: {p['reason']}") for p in cycle["preempted"]
        ]
        rows += [(e["workload"], "", "Evicted" + step, e["reason"]) for e in cycle["evicted"]]
    last = result["cycles"][-1]
    queue_of = {key: name for where in ("left", "inadmissible") for name, keys in last[where].items() for key in keys}
    for key, why in last["pending"].items():
        if only is not None and key not in only:
            continue
        rows.append((key, queue_of.get(key, ""), "Pending", f"{why['reason']}: {why['message']}"))
    yield from aligned(rows if len(rows) > 1 else usage_rows(result))
    for name, queue in result["clusterQueues"].items():
        if not queue["active"]:
            yield f"ClusterQueue {name} is inactive: {queue['reason']}"


def usage_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the quota and usage of the queues, for a result without decisions."""
    words = ("nominal", "used", "borrowed", "available")
    rows: list[tuple[str, ...]] = [("QUEUE", "FLAVOR", "RESOURCE", *(word.upper() for word in words))]
    for name, queue in result["clusterQueues"].items():
        for flavor, resources in queue["flavors"].items():
            rows += [(name, flavor, r, *(amounts[word] for word in words)) for r, amounts in resources.items()]
    return rows


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def flavors_text(admission: dict[str, Any]) -> str:
    return "; ".join(
        f"{pod_set['name']} x {pod_set['count']}: "
        + ", ".join(f"{amount} {r} of {pod_set['flavors'][r]}" for r, amount in pod_set["usage"].items())
        for pod_set in admission["podSets"]
    )
