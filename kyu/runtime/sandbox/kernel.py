"""
The system calls of Linux that Python has no function for.

Each function raises OSError with the kernel's reason. Numbers of system calls that are missing on an old kernel fail
with ENOSYS, as any unknown call does.

Called by: namespaces.py, mounts.py, seccomp.py. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 1024, 2048, 4096, 16384
MS_PRIVATE, MS_SLAVE, MS_RELATIME = 1 << 18, 1 << 19, 1 << 21

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_NET_ADMIN = 12
CAP_SYS_CHROOT = 18
CAP_SYS_ADMIN = 21
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522

# The same number on every architecture of the kernel since version 5.1.
NR_OPEN_TREE, NR_MOVE_MOUNT, NR_MOUNT_SETATTR = 428, 429, 442
NR_KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY = 0x00000001
MOUNT_ATTR_NOSUID = 0x00000002
MOUNT_ATTR_IDMAP = 0x00100000

NR_CLONE = {"x86_64": 56, "aarch64": 220}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)
# Calls through this one keep the interpreter's lock, as os.fork does.
_locked_libc = ctypes.PyDLL(None, use_errno=True)
_locked_libc.syscall.restype = ctypes.c_long


def fork_into(namespaces: int, machine: str) -> int:
    """Fork, as os.fork does, with the child in new namespaces. Only for a process with one thread."""
    number = ctypes.c_long(NR_CLONE[machine])
    flags = ctypes.c_ulong(namespaces | signal.SIGCHLD)
    zero = ctypes.c_ulong(0)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _locked_libc.syscall(number, flags, zero, zero, zero, zero)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    _check(pid)
    return pid


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() if data else None))


def bind(source: int, target: int) -> None:
    """Bind one open file or folder on another. A path could be exchanged between a check and its use."""
    mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{target}", "", MS_BIND | MS_REC)


def ignore_set_uid(path: str) -> None:
    """Let no file below the mount raise privileges, on all mounts below it."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    number = ctypes.c_long(NR_MOUNT_SETATTR)
    _check(_libc.syscall(number, AT_FDCWD, os.fsencode(path), AT_RECURSIVE, ctypes.byref(attributes), size))


def copy_mount(path: str) -> int:
    """Return a copy of the mount at the path that is mounted nowhere yet."""
    descriptor: int = _libc.syscall(
        ctypes.c_long(NR_OPEN_TREE), AT_FDCWD, os.fsencode(path), ctypes.c_uint(OPEN_TREE_CLONE | os.O_CLOEXEC)
    )
    _check(descriptor)
    return descriptor


def mount_for(tree: int, user_namespace: int, target: str) -> None:
    """Mount a copied mount, for reading, with the owners that the user namespace has for them."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY, 0, 0, user_namespace)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    setattr_number, move_number = ctypes.c_long(NR_MOUNT_SETATTR), ctypes.c_long(NR_MOVE_MOUNT)
    _check(_libc.syscall(setattr_number, tree, b"", ctypes.c_uint(AT_EMPTY_PATH), ctypes.byref(attributes), size))
    flags = ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH)
    _check(_libc.syscall(move_number, tree, b"", AT_FDCWD, os.fsencode(target), flags))


def prctl(option: int, value: int = 0, pointer: object = None) -> None:
    _check(_libc.prctl(option, value, pointer, 0, 0))


def become_subreaper() -> None:
    """Make orphans of this process's descendants its children, so that none is lost."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal_number)


def gain_no_privileges() -> None:
    """Let no program that is run from here on gain privileges by set-uid bits or file capabilities."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """Let no program that is run from here on have a capability."""
    drop, option = _libc.prctl, PR_CAPBSET_DROP
    for capability in range(LAST_CAPABILITY + 1):
        if drop(option, capability, None, 0, 0) < 0:
            # The kernel knows no further capability, or this process may not drop them: then it has none to give.
            return


def set_capabilities(capabilities: int) -> None:
    """Keep these capabilities only, as a set of bits."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)))


def leave_session_keyring(machine: str) -> None:
    """Start with an empty keyring: the one of the server's session may hold keys of its user."""
    if machine in NR_KEYCTL:
        number = ctypes.c_long(NR_KEYCTL[machine])
        # Kernels without keyrings have no keys to leave behind.
        _libc.syscall(number, ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), ctypes.c_void_p(None))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
