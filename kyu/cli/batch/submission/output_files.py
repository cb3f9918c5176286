"""
The files of ``kyu submit --output`` and ``--error``: patterns in annotations of the pod, which its node fills in.

Kyu's own nodes write the output of a pod to the file as well as to its log. On a cluster of containers they have no
effect, so the command refuses them there.
"""

from __future__ import annotations

import getpass
import os
import re

FORMATS = ("json", "yaml", "name", "table")
# Slurm has a number and a name for a job. A job of Kyu has a name.
SPECIFIERS = {"j": "%j", "x": "%j", "A": "%j", "a": "%a", "%": "%%"}


def pod_annotations(output: str, error: str, folder: str, faults: list[str]) -> dict[str, str]:
    """Return the annotations of the pod for the two patterns, and add errors to ``faults``."""
    from kyu.runtime.user_files import ERROR, OUTPUT

    patterns = {OUTPUT: ("--output", output), ERROR: ("--error", error)}
    return {
        key: checked(option, pattern, folder, faults)
        for key, (option, pattern) in patterns.items()
        if pattern and pattern != os.devnull
    }


def checked(option: str, pattern: str, folder: str, faults: list[str]) -> str:
    """Return the pattern relative to the folder, with the name of the user filled in."""
    from kyu.runtime.user_files import why_not_below

    if pattern in FORMATS:
        faults.append(f"{option} {pattern}: this option names a file for the output of the job; use --print {pattern}")
    if unknown := sorted(set(re.findall(r"%(.?)", pattern)) - {*SPECIFIERS, "u"}):
        named = ", ".join(f"%{letter}" for letter in unknown)
        faults.append(f"{option} {pattern}: {named} is not known; use %j (job), %a (task), %u (user) or %%")
    path = os.path.join(folder, pattern)
    if why := why_not_below(path, folder):
        faults.append(f"{option} {pattern}: {why}; name a file in the current folder or below")
    user = getpass.getuser().replace("%", "%%")
    words = {**SPECIFIERS, "u": user}
    return re.sub(r"%(.)", lambda match: words.get(match[1], match[0]), os.path.relpath(path, folder))
