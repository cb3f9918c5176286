"""The limits of the server's own process: descriptors, and memory that goes back to the system."""

from __future__ import annotations

import ctypes
import resource

MOST_DESCRIPTORS = 65_536
# Options of glibc's mallopt. Blocks above the threshold are given back as soon as they are freed; by default the
# threshold grows to 32 MB, and the buffers of a flood of connections would stay with the process.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
_BLOCK_BYTES = 128 * 1024
_ARENAS = 2


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, as far as a server needs; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def return_freed_memory() -> None:
    """Let the allocator return large blocks to the system; nothing happens with other C libraries than glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in (
        (_MMAP_THRESHOLD, _BLOCK_BYTES),
        (_TRIM_THRESHOLD, _BLOCK_BYTES),
        (_ARENA_MAX, _ARENAS),
    ):
        mallopt(option, value)
