"""
Names for the users of tenants: files like /etc/passwd and /etc/group in which the pod's user has a name.

Without one, `whoami` and many programs fail. A pair of files is made for each user, and linked into the folders of its
pods, where the sandbox shows them in place of the machine's.

Called by: processes.py, podfolder.py.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re

from kyu import log
from kyu.runtime.identity.unix_users import UnixUser
from kyu.runtime.sandbox.namespaces import ACCOUNTS

FOLDER = "accounts"
LONGEST_NAME = 32
# Above this, the files come from a directory service, and a copy for each user would be too much.
MOST_BYTES = 1024 * 1024


def name_of(namespace: str) -> str:
    """Return the name of the user of a namespace, for pods."""
    return re.sub(r"[^a-z0-9-]", "-", f"kyu-{namespace}")[:LONGEST_NAME]


def own_name() -> str:
    """Return the name of the user that runs this process; its number if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def entries_for(user: int, name: str) -> dict[str, str]:
    """Return the lines of a user that only pods have."""
    return {"passwd": f"{name}:x:{user}:{user}::/tmp:/bin/sh", "group": f"{name}:x:{user}:"}


def entries_of(account: UnixUser) -> dict[str, str]:
    """Return the lines of a local account: one of a directory service is not in the files of the machine."""
    name, home, shell = account.name, account.home, account.shell
    return {
        "passwd": f"{name}:x:{account.uid}:{account.gid}::{home}:{shell}",
        "group": f"{name}:x:{account.gid}:",
    }


def ensure(folder: str, user: int, entries: dict[str, str]) -> str:
    """Return the folder with the files of a user, written again if those of the machine have changed; or nothing."""
    place = os.path.join(folder, FOLDER, str(user))
    try:
        os.makedirs(place, mode=0o711, exist_ok=True)
        for file in ACCOUNTS:
            text = with_entry(read(f"/etc/{file}"), entries[file])
            if read(os.path.join(place, file)) != text:
                write(os.path.join(place, file), text)
    except OSError as error:
        log.warning("no name for the user of pods", user=user, error=error)
        return ""
    return place


def with_entry(text: str, entry: str) -> str:
    """Return the lines with the entry, unless its number or name is there already."""
    name, _, number = entry.split(":")[:3]
    taken = [line.split(":") for line in text.splitlines()]
    if any(words[0] == name or words[2:3] == [number] for words in taken):
        return text
    return f"{text.rstrip()}\n{entry}\n".lstrip()


def read(path: str) -> str:
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(MOST_BYTES)
    return ""


def write(path: str, text: str) -> None:
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
    os.rename(temporary, path)


def link(place: str, folder: str) -> None:
    """Link the files into the folder of a pod."""
    for file in ACCOUNTS:
        os.link(os.path.join(place, file), os.path.join(folder, file))
