"""
Makes a pod's folder: its plan, its home, its volumes.

The folder is made under a name that nobody runs, and gets its own name when it is whole; see processes.py. A folder
costs a millisecond on a busy disk, so only those are made that the pod needs.

Called by: processes.py.
"""

from __future__ import annotations

import os

from kyu.runtime import podplan, records, volumes


def make(folder: str, plan: podplan.Plan, place: podplan.Place) -> None:
    os.mkdir(folder)
    # Not by mkdir's mode, which the process may have narrowed: containers of other users pass through.
    os.chmod(folder, 0o711)
    os.mkdir(os.path.join(folder, records.HOME), 0o700)
    for container in plan.document["containers"]:
        if container["mounts"]:
            os.makedirs(os.path.join(folder, records.SCRATCH), exist_ok=True)
        if container["messageIsMounted"]:
            os.close(os.open(os.path.join(folder, records.message_file(container["name"])), os.O_CREAT, 0o600))
    if plan.volumes:
        os.mkdir(os.path.join(folder, records.VOLUMES))
        os.chmod(os.path.join(folder, records.VOLUMES), 0o711)
        volumes.write(plan.volumes, os.path.join(folder, records.VOLUMES))
    for container in plan.document["containers"]:
        for source, _, _ in container["mounts"]:
            # A subPath that is not there yet is a folder.
            inner = folder + source.removeprefix(place.folder)
            if source.startswith(place.folder) and not os.path.lexists(inner):
                os.makedirs(inner)
    if place.user is not None:
        for name in (records.HOME, records.VOLUMES) if plan.volumes else (records.HOME,):
            volumes.give(os.path.join(folder, name), place.user)
    records.write(os.path.join(folder, records.PLAN), plan.document)
