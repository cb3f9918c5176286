"""
Chooses how pods are isolated on this machine: the best sandbox that its kernel permits.

Called by: processes.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from kyu.runtime import podplan, user_ids
from kyu.runtime.sandbox import namespaces, seccomp
from kyu.runtime.sandbox.namespaces import Sandbox


@dataclass(frozen=True, slots=True)
class Isolation:
    """How pods are isolated on this machine: the sandbox of each, or why pods of tenants are refused.

    ``missing`` names the parts that this system does not permit.
    """

    sandbox: Sandbox = field(default_factory=Sandbox)
    refused: str = ""
    missing: tuple[str, ...] = ()


def sandboxes(options: podplan.RuntimeOptions, first_user: int | None) -> list[Sandbox]:
    """Return the sandboxes to try, the best first. ``first_user``: of the users that tenants get, if they get any."""
    network = options.network
    if first_user is not None:
        best = Sandbox(first_user, namespaces=True, user_namespace=True, tenant=True, network=network)
        return [best, replace(best, user_namespace=False)]
    if options.tenants:
        return []
    return [Sandbox(None, namespaces=True, user_namespace=os.geteuid() != 0, network=network)]


def engine_sandbox(options: podplan.RuntimeOptions, first_user: int | None, images: str) -> Sandbox:
    """Return the sandbox of pods that podman runs, with the folder of its images."""
    if first_user is None:
        return Sandbox(None, namespaces=True, network=options.network, images=images)
    tenant = Sandbox(
        first_user, namespaces=True, user_namespace=True, tenant=True, network=options.network, images=images
    )
    return with_users(tenant, first_user, first_user)


def with_users(sandbox: Sandbox, user: int, block: int) -> Sandbox:
    """Give the user namespace its numbers: root is the pod's user, the others are those of the block."""
    numbers = f"0 {user} 1\n1 {block + 1} {user_ids.RANGE_SIZE - 1}\n"
    return replace(sandbox, user=user, uid_map=numbers, gid_map=numbers)


def choose(wanted: list[Sandbox], refused: list[str], *, tenants: bool) -> Isolation:
    """Return the best of the sandboxes that this machine permits. Without one, pods of tenants are refused."""
    for sandbox, reason in zip(wanted, refused, strict=True):
        if not reason:
            missing = [f"no user namespaces: {refused[0]}"] if sandbox != wanted[0] else []
            if sandbox.tenant and seccomp.build_filter(namespaces.MACHINE) is None:
                missing.append(f"no filter of system calls for {namespaces.MACHINE}")
            return Isolation(sandbox, missing=tuple(missing))
    if not tenants:
        return Isolation(missing=tuple(f"no namespaces: {reason}" for reason in refused))
    if not wanted:
        return Isolation(refused="only root can give each namespace a user of its own")
    return Isolation(refused=f"the system does not permit the namespaces that keep them apart: {refused[-1]}")
