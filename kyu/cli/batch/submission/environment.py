"""
The environment of a submitted command: variables of the submitter's shell, and their umask.

By default a job gets the variables that select programs (PATH, virtual environments, Conda). A job with an image gets
none, since the paths of this machine mean nothing in a container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from kyu.api.meta import Json

UMASK = "kyu.dev/umask"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SELECTING = re.compile(r"PATH|VIRTUAL_ENV|CONDA_\w+")
# Variables of the pod or of the shell itself. A job must not choose its GPUs by itself.
NOT_EXPORTED = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "TMPDIR", "CUDA_VISIBLE_DEVICES"})
LISTENING = "0A"


def exported(wanted: list[str], here: Mapping[str, str], faults: list[str], *, by_default: bool) -> dict[str, str]:
    """Return the variables that ``--export`` names, or those that select programs."""
    if not wanted:
        return {name: value for name, value in here.items() if SELECTING.fullmatch(name)} if by_default else {}
    found: dict[str, str] = {}
    for word in (word for item in wanted for word in item.split(",") if word):
        name, separator, value = word.partition("=")
        if word == "ALL":
            found |= {name: value for name, value in here.items() if is_exported(name)}
        elif word == "NONE":
            found = {}
        elif separator and NAME.fullmatch(name):
            found[name] = value
        elif word in here:
            found[word] = here[word]
        else:
            faults.append(f"--export {word}: not set in your environment; write ALL, NONE or names of variables")
    return found


def is_exported(name: str) -> bool:
    return bool(NAME.fullmatch(name)) and name not in NOT_EXPORTED


def as_variables(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": escape_dollars(value)} for name, value in values.items()]


def escape_dollars(text: str) -> str:
    """Escape a text for Kubernetes, which replaces `$(NAME)` and reads `$$` as one dollar."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def current_umask() -> str:
    mask = os.umask(0o022)
    os.umask(mask)
    return f"{mask:04o}"


def runs_as_me(server: str) -> bool:
    """Return whether the server is a process of this user on this machine, so that pods share the home folder."""
    return os.getuid() != 0 and is_mine(server)


def is_mine(server: str) -> bool:
    """Return whether the server is a process of this user on this machine. Its pods may have other users, for root."""
    place = urlsplit(server)
    user = os.getuid()
    if place.hostname not in ("127.0.0.1", "localhost", "::1"):
        return False
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == place.port:
                return int(row[7]) == user
    return False
