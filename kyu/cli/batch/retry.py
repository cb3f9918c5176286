"""
Submit a job again that has ended: the same command, in the same queue, with the same resources.

    kyu retry train               run it again
    kyu retry sweep --failed      run the failed tasks of an array again, under their numbers
    kyu retry sweep --task 3,7    run these tasks again

A new Job is created, and its name is printed. The old one stays as it is, with its output.
"""

from __future__ import annotations

import argparse

from kyu.api.meta import Json
from kyu.cli import connection, output
from kyu.cli.batch import jobs, lookup, tasks
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kinds import arrays, metadata, table
from kyu.kinds.arrays import TaskArray
from kyu.kinds.job import JOB, is_indexed
from kyu.kinds.templates import HOST_IMAGE
from kyu.plans.job import injection

# The name of the Job that this one repeats.
RETRY_OF = "kyu.dev/retry-of"
KEPT_FIELDS = (
    "parallelism", "completions", "completionMode", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes",
    "activeDeadlineSeconds", "podFailurePolicy", "successPolicy", "podReplacementPolicy", "ttlSecondsAfterFinished",
    "template",
)  # fmt: skip
LONGEST_PREFIX = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument("--failed", action="store_true", help="only the tasks of an array that have failed")
    parser.add_argument("--task", default="", metavar="TASKS", help="only these tasks of an array: 3,7 or 10-20")
    parser.add_argument("--name", default="", help="name of the new job (default: from the old one)")


def run(args: argparse.Namespace) -> int:
    if args.failed and args.task:
        raise BadInput("kyu retry: --failed and --task exclude each other")
    server = connection.connect(args)
    kind, plain = lookup.split(args.job)
    old = lookup.find_job(server, kind, plain)
    if old is None:
        found_kind, name = jobs.owner_of(lookup.find_workload(server, args.job))
        raise Failed(f"{name} is a {found_kind}; only Jobs can be submitted again")
    if jobs.state_of_job(old).word not in jobs.ENDED:
        raise Failed(f"{plain} has not ended yet; `kyu wait {plain}` waits for it")
    job = again(server, old, args)
    created = server.client.create(JOB, job)
    output.note(f"submitted again to {metadata.queue_name(created)} on {server.description}")
    print(created["metadata"]["name"])
    return 0


def again(server: ServerConnection, old: Json, args: argparse.Namespace) -> Json:
    """Return a new Job of the same content."""
    original = before_admission(server, old)
    spec = {name: original["spec"][name] for name in KEPT_FIELDS if name in original["spec"]}
    name = metadata.name_of(old)
    left_out = (metadata.JOB_DEPENDENCIES, metadata.ADMISSION_GATED_BY, metadata.STOPPING, arrays.ARRAY)
    annotations = {
        key: value for key, value in metadata.annotations_of(old).items() if key not in left_out and is_of_user(key)
    }
    annotations[RETRY_OF] = name
    if is_indexed(old) and arrays.of_job(old) is not None:
        array = chosen_tasks(old, args)
        image = spec["template"]["spec"]["containers"][0].get("image")
        if image != HOST_IMAGE and not array.is_dense:
            raise Failed(f"{name} runs image {image}, so its tasks are numbered from 0 without gaps; retry all of them")
        spec |= {"completions": len(array), "parallelism": min(spec["parallelism"], len(array))}
        annotations[arrays.ARRAY] = str(array)
        if spec["parallelism"] == 1:
            annotations.pop(metadata.JOB_MIN_PARALLELISM, None)
    elif args.failed or args.task:
        raise Failed(f"{name} is no array of `kyu submit --array`; retry it without --failed and --task")
    prefix = str(old["metadata"].get("generateName") or f"{name[:LONGEST_PREFIX]}-")
    meta = {
        **({"name": args.name} if args.name else {"generateName": prefix}),
        "namespace": old["metadata"]["namespace"],
        "labels": dict(metadata.labels_of(old)),
        "annotations": annotations,
    }
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": meta, "spec": spec}


def is_of_user(key: str) -> bool:
    """Return whether an annotation is no note of a program about the old object."""
    return not key.startswith(("kubectl.kubernetes.io/", "batch.kubernetes.io/", "deployment.kubernetes.io/"))


def before_admission(server: ServerConnection, old: Json) -> Json:
    """Return the Job without the additions of its admission, which its Workload knows."""
    kind = table.find_kind(JOB)
    assert kind is not None
    workloads = lookup.workloads_of(server, "job", metadata.name_of(old))
    if workloads:
        pod_sets = injection.originals(max(workloads, key=lookup.newness))
        for slot, original in zip(kind.slots(old), pod_sets, strict=False):
            old = kind.with_original(old, slot, original)
    return kind.for_worker(old)


def chosen_tasks(old: Json, args: argparse.Namespace) -> TaskArray:
    """Return the tasks to run again."""
    name, all_tasks = metadata.name_of(old), tasks.array_of(old)
    if args.failed:
        failed = tasks.ended_tasks(old, "failedIndexes")
        if not failed:
            raise Failed(f"{name} has no failed tasks; without --failed all of its tasks run again")
        return arrays.of_numbers(failed)
    if not args.task:
        return all_tasks
    try:
        wanted = arrays.parse(args.task)
    except ValueError as error:
        raise BadInput(f"kyu retry: --task {args.task}: {error}") from None
    if missing := [task for task in wanted if all_tasks.index(task) is None]:
        raise BadInput(f"kyu retry: {name} has no task {missing[0]}; it has {all_tasks}")
    return wanted
