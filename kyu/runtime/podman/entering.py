"""
Gives podman its place in the namespaces of a pod. A part of the pod's supervisor.

The engine of a tenant runs without any right on the machine: as root of a user namespace, whose root is the tenant's
user outside, and whose further users are numbers that only this tenant has. It sees the images of the machine through
a mount for reading that maps their owners; so no image is copied, and none can be changed.

    supervisor ── namespaces of the pod ── becomes the tenant's user ── user namespace ── podman, conmon, containers
        └── helper (the server's user): writes the numbers of the user namespace, mounts the images

Called by: supervisor.py, launcher.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import os

from kyu.runtime.sandbox import kernel, namespaces
from kyu.runtime.sandbox.namespaces import ENGINE, HOME, VOLUMES, Memory, Sandbox, SandboxFailed

# Below the folder of the engine: the images of the machine, as a tenant sees them.
IMAGES = "images"
CGROUP_ROOT = "/sys/fs/cgroup"
SHARED_MEMORY = "/dev/shm"
# The folder of the engine as podman sees it: its sockets need a short path.
PLACE = f"{SHARED_MEMORY}/kyu"


def enter(sandbox: Sandbox, folder: str, memory: Memory | None = None) -> None:
    """Become the engine of the pod in the pod's namespaces. The working directory is the pod's folder."""
    if not sandbox.images:
        namespaces.enter(sandbox, folder, memory)
        return
    try:
        kernel.leave_session_keyring(namespaces.MACHINE)
        if os.getpid() != 1:
            raise SandboxFailed("the system does not permit process, mount and IPC namespaces")
        namespaces.make_namespaces(sandbox)
        if sandbox.network == "none":
            namespaces.raise_loopback()
        cover_machine()
        for name, size in (memory or Memory()).volumes.items():
            # The closed folder above keeps other users of the machine out.
            namespaces.mount_memory(os.path.join(folder, VOLUMES, name), size, "0777")
        if sandbox.user is not None:
            become_tenant(sandbox, sandbox.user, folder)
        # No container may look into this process: it is the one that ends the pod.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    except OSError as error:
        raise SandboxFailed(str(error)) from error


def cover_machine() -> None:
    """Cover what the engine would share with other pods: its locks, and the control groups. Show its folder there.

    The engine makes no control groups, and takes those of the machine for unusable if two versions are mounted.
    """
    kernel.mount("tmpfs", SHARED_MEMORY, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    os.mkdir(PLACE)
    kernel.mount(ENGINE, PLACE, "", kernel.MS_BIND)
    if os.path.isdir(os.path.join(CGROUP_ROOT, "unified")):
        with contextlib.suppress(OSError):
            kernel.mount("cgroup2", CGROUP_ROOT, "cgroup2", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def become_tenant(sandbox: Sandbox, user: int, folder: str) -> None:
    """Become root of a user namespace that stands for the tenant's numbers."""
    images = kernel.copy_mount(sandbox.images)
    process = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    go_reader, go_writer = os.pipe()
    failure_reader, failure_writer = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            # Else this process would wait for itself.
            os.close(go_writer)
            os.read(go_reader, 1)
            map_tenant(sandbox, process, images)
        except BaseException as error:
            os.write(failure_writer, str(error).encode(errors="replace"))
        finally:
            os._exit(0)
    for descriptor in (images, process, go_reader, failure_writer):
        os.close(descriptor)
    try:
        namespaces.become_user(sandbox, user)
        namespaces.show_own_folder(folder, (HOME, VOLUMES))
        kernel.unshare(kernel.CLONE_NEWUSER)
    finally:
        os.close(go_writer)
    with open(failure_reader, "rb") as pipe:
        failure = pipe.read().decode(errors="replace")
    os.waitpid(helper, 0)
    if failure:
        raise SandboxFailed(f"no user namespace for containers: {failure}")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    # From here on the mounts are the engine's.
    kernel.unshare(kernel.CLONE_NEWNS)


def map_tenant(sandbox: Sandbox, process: int, images: int) -> None:
    """Write the numbers of the user namespace of the supervisor, and mount the images for it. Runs in the helper."""
    for name, text in (("uid_map", sandbox.uid_map), ("gid_map", sandbox.gid_map)):
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    user_namespace = os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    kernel.mount_for(images, user_namespace, f"{PLACE}/{IMAGES}")
