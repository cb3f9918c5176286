"""
The system calls that a pod of a tenant is refused: those that reach into the kernel, and new namespaces.

A user namespace of its own would give a tenant all capabilities inside it, and with them the code of the kernel that
only root reaches otherwise. The list follows the default profile of container engines; all other calls pass. Programs
of another architecture than the machine's are refused, because their calls have other numbers.

Called by: namespaces.py. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import struct
from collections.abc import Mapping, Sequence

from kyu.runtime.sandbox import kernel

SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF0000
FAIL = 0x00050000

LOAD, AND, JUMP_EQUAL, JUMP_ANY_BIT, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# On x86-64, calls of the x32 kind have this bit.
X32_BIT = 0x40000000

NEW_NAMESPACES = 0x7E020080
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
# UNIX, IPv4, IPv6, netlink. Other families reach parts of the kernel that batch work has no use for.
SOCKET_FAMILIES = (1, 2, 10, 16)

CLONE = {"x86_64": 56, "aarch64": 220}
UNSHARE = {"x86_64": 272, "aarch64": 97}
SOCKET = {"x86_64": 41, "aarch64": 198}
IOCTL = {"x86_64": 16, "aarch64": 29}
PRLIMIT = {"x86_64": 302, "aarch64": 261}
# The pid of the caller itself. The supervisor has the same user, and its limits are not the pod's to change.
ITSELF = 0
# C libraries use clone instead of clone3 where this is the answer; clone's flags can be looked at.
WITHOUT = {"clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
# The same numbers everywhere.
NEW_CALLS = (428, 429, 430, 431, 432, 433, 442, 467)  # open_tree … fspick, mount_setattr, open_tree_attr
REFUSED: Mapping[str, Sequence[int]] = {
    "x86_64": (
        # mount, umount2, pivot_root, chroot, setns
        165, 166, 155, 161, 308,
        # keyctl, add_key, request_key
        250, 248, 249,
        # bpf, perf_event_open, userfaultfd, open_by_handle_at, fanotify_init
        321, 298, 323, 304, 300,
        # kexec_load, kexec_file_load, init_module, finit_module, delete_module
        246, 320, 175, 313, 176,
        # reboot, swapon, swapoff, acct, quotactl, quotactl_fd, settimeofday, clock_settime, adjtimex, clock_adjtime
        169, 167, 168, 163, 179, 443, 164, 227, 159, 305,
        # sethostname, setdomainname, syslog, iopl, ioperm
        170, 171, 103, 172, 173,
    ),
    "aarch64": (
        40, 39, 41, 51, 268,
        219, 217, 218,
        280, 241, 282, 265, 262,
        104, 294, 105, 273, 106,
        142, 224, 225, 89, 60, 443, 170, 112, 171, 266,
        161, 162, 116,
    ),
}  # fmt: skip


@functools.cache
def build_filter(machine: str) -> bytes | None:
    """Return the filter as the kernel reads it; None for an architecture that has no list here."""
    if machine not in AUDIT_ARCHITECTURES:
        return None
    refuse, absent = FAIL | errno.EPERM, FAIL | errno.ENOSYS
    program = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        (RETURN, 0, 0, absent),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        program += [(JUMP_AT_LEAST, 0, 1, X32_BIT), (RETURN, 0, 0, absent)]
    for number in WITHOUT.values():
        program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, absent)]
    for number in (*REFUSED[machine], *NEW_CALLS):
        program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, refuse)]
    for number in (CLONE[machine], UNSHARE[machine]):
        program += refuse_bits(number, NEW_NAMESPACES)
    program += refuse_values(IOCTL[machine], SECOND_ARGUMENT, (TIOCSTI, TIOCLINUX))
    program += allow_only(SOCKET[machine], SOCKET_FAMILIES, errno.EAFNOSUPPORT)
    program += allow_only(PRLIMIT[machine], (ITSELF,), errno.EPERM)
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


Instruction = tuple[int, int, int, int]


def refuse_bits(number: int, bits: int) -> list[Instruction]:
    """Refuse the call if its first argument has one of the bits, else allow it."""
    return [
        (JUMP_EQUAL, 0, 4, number),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_ANY_BIT, 0, 1, bits),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def refuse_values(number: int, argument: int, values: Sequence[int]) -> list[Instruction]:
    """Refuse the call if its argument is one of the values, else allow it."""
    checks: list[Instruction] = [(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    body = [(LOAD, 0, 0, argument), *checks, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.EPERM)]
    return [(JUMP_EQUAL, 0, len(body), number), *body]


def allow_only(number: int, values: Sequence[int], refusal: int) -> list[Instruction]:
    """Allow the call if its first argument is one of the values, else refuse it."""
    checks: list[Instruction] = [(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    body = [(LOAD, 0, 0, FIRST_ARGUMENT), *checks, (RETURN, 0, 0, FAIL | refusal), (RETURN, 0, 0, ALLOW)]
    return [(JUMP_EQUAL, 0, len(body), number), *body]


class Program(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(program: bytes) -> None:
    """Hold this process and its children to the filter for ever. It needs ``kernel.gain_no_privileges`` before."""
    pointer = ctypes.byref(Program(len(program) // 8, program))
    kernel.prctl(kernel.PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer)
