"""
Makes a pod's folder: its plan, its home, its volumes.

The folder is made under a name that no supervisor runs, and gets its own name when it is whole; see processes.py. A
folder costs a millisecond on a busy disk, so only those are made that the pod needs. The folder itself belongs to the
server's user, so that no process of the pod can exchange its entries; their contents are the pod's.

Called by: processes.py.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict

from kyu.runtime import accounts, podplan, records, volumes
from kyu.runtime.podman import entering
from kyu.runtime.sandbox import files
from kyu.runtime.sandbox.namespaces import Sandbox

# The files of the supervisor lay beside the plan before pods had sandboxes.
MOVED_TO_STATE = ("record.json", "logs", "supervisor.log")
# For the pod's group to pass through, not to list or change.
PASSABLE = 0o710


def make(folder: str, plan: podplan.Plan, place: podplan.Place) -> None:
    user, group = place.sandbox.user, place.sandbox.own_group
    passable(folder, group)
    owned(os.path.join(folder, records.STATE), user)
    owned(os.path.join(folder, records.HOME), user)
    if place.sandbox.tenant:
        owned(os.path.join(folder, records.TEMPORARY), user)
    if place.accounts:
        accounts.link(place.accounts, folder)
    for container in plan.document["containers"]:
        if container["mounts"] and not os.path.isdir(os.path.join(folder, records.SCRATCH)):
            owned(os.path.join(folder, records.SCRATCH), user)
        if container["messageIsMounted"]:
            make_message_file(os.path.join(folder, records.message_file(container["name"])), user)
            if place.images:
                os.chmod(os.path.join(folder, records.message_file(container["name"])), 0o666)
    if place.images:
        make_engine(folder, user)
    if plan.volumes:
        passable(os.path.join(folder, records.VOLUMES), group)
        volumes.write(plan.volumes, os.path.join(folder, records.VOLUMES), user, has_users=bool(place.images))
    records.write(os.path.join(folder, records.PLAN), plan.document)


def clear(folder: str) -> None:
    """Remove the files of a tenant's pod that has ended: nothing can reach them, and they fill the disk of all."""
    for name in (records.VOLUMES, records.HOME, records.TEMPORARY, records.SCRATCH):
        with contextlib.suppress(OSError):
            files.remove_tree(os.path.join(folder, name))


def make_message_file(path: str, user: int | None) -> None:
    descriptor = os.open(path, records.NEW_FILE, 0o600)
    if user is not None:
        os.fchown(descriptor, user, user)
    os.close(descriptor)


def make_engine(folder: str, user: int | None) -> None:
    """Make the folder of podman, with the place where a tenant's engine sees the images of the machine."""
    owned(os.path.join(folder, records.ENGINE), user)
    owned(os.path.join(folder, records.ENGINE, entering.IMAGES), user)


def make_trial(folder: str, user: int | None) -> None:
    """Make the folder of a pod that never runs, to try whether pods can be isolated."""
    passable(folder, user)
    owned(os.path.join(folder, records.HOME), user)
    owned(os.path.join(folder, records.TEMPORARY), user)
    make_engine(folder, user)


def passable(path: str, group: int | None) -> None:
    os.mkdir(path, 0o700)
    if group is not None:
        os.chown(path, 0, group)
        # Not by mkdir's mode, which the process may have narrowed.
        os.chmod(path, PASSABLE)


def owned(path: str, user: int | None) -> None:
    os.mkdir(path, 0o700)
    if user is not None:
        os.chown(path, user, user)


class StillRuns(Exception):
    """A pod that an earlier version has started still runs; the message says what to do."""


def migrate(pods: str) -> None:
    """Give the folders of pods that an earlier version has run the layout of today."""
    for name in sorted(os.listdir(pods)) if os.path.isdir(pods) else ():
        folder = os.path.join(pods, name)
        plan = records.find(os.path.join(folder, records.PLAN))
        if plan is not None and "sandbox" not in plan:
            claim = records.find(os.path.join(folder, records.CLAIM))
            if claim is not None and records.is_alive(records.Process(**claim)):
                raise StillRuns(
                    f"the pod {plan['namespace']}/{plan['name']} was started by an earlier version and still runs as"
                    f" process {claim['pid']}: wait for it, or end it with `kyu down --stop-jobs` of that version"
                )
            migrate_folder(folder, plan)


def migrate_folder(folder: str, plan: dict[str, object]) -> None:
    """Move the supervisor's files, then write the plan: a start that is interrupted begins again."""
    state = os.path.join(folder, records.STATE)
    os.makedirs(state, 0o700, exist_ok=True)
    for name in MOVED_TO_STATE:
        if os.path.lexists(os.path.join(folder, name)):
            os.rename(os.path.join(folder, name), os.path.join(state, name))
    user = plan.get("user")
    sandbox = Sandbox(user if isinstance(user, int) else None)
    records.write(os.path.join(folder, records.PLAN), {**plan, "sandbox": asdict(sandbox)}, durable=True)
