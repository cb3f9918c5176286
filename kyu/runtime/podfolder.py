"""
Makes a pod's folder: its plan, its volumes, a home and a place for a last message for each container.

The folder is made under a name that nobody runs, and gets its own name when it is whole; see processes.py.

Called by: processes.py.
"""

from __future__ import annotations

import os

from kyu.api.meta import Json
from kyu.runtime import podplan, records, volumes

POD = "pod.json"


def make(folder: str, pod: Json, plan: podplan.Plan, place: podplan.Place) -> None:
    os.mkdir(folder, 0o711)
    for name in (records.LOGS, records.VOLUMES, records.HOMES, records.MESSAGES, records.SCRATCH):
        os.mkdir(os.path.join(folder, name), 0o711)
    for container in plan.document["containers"]:
        home = os.path.join(folder, records.HOMES, container["name"])
        message = os.path.join(folder, records.MESSAGES, container["name"])
        os.mkdir(home, 0o700)
        os.close(os.open(message, os.O_CREAT | os.O_WRONLY, 0o600))
        if place.user is not None:
            os.chown(home, place.user, place.user)
            os.chown(message, place.user, place.user)
    volumes.write(plan.volumes, os.path.join(folder, records.VOLUMES), place.user)
    records.write(os.path.join(folder, POD), pod)
    records.write(os.path.join(folder, records.PLAN), plan.document)
