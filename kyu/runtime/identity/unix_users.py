"""
The Unix user that a pod runs as: the local account that submitted it, with its groups and its home folder.

The server records the submitter of every job, and passes it on to its pods. A pod of an account that is not there any
more is refused: it must not run as any other user.

Called by: processes.py. Kubernetes has no such thing.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from kyu.api.accounting import submitter_of, unix_account
from kyu.api.meta import Json


class NoUnixUser(Exception):
    """The pod cannot run as its Unix user; the message says why."""


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A local account, as pods run with it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def user_of(pod: Json, *, can_switch: bool) -> UnixUser | None:
    """Return the Unix user of a pod; None for pods of other users, and of root, which run as their namespace's user.

    ``can_switch``: whether pods can have other users than this process.
    """
    name = unix_account(submitter_of(pod))
    if not name or name == pwd.getpwuid(0).pw_name:
        return None
    if not can_switch:
        raise NoUnixUser(f"pods of the Unix user {name} need `kyu up` as root, with isolated users")
    return find(name)


def find(name: str) -> UnixUser:
    """Return the account of this name, with the groups that it has now."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise NoUnixUser(f"the account {name} does not exist on this machine") from None
    if entry.pw_uid == 0:
        raise NoUnixUser(f"the account {name} has the user id of root")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return UnixUser(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)
