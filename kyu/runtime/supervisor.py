"""
One small process per pod: starts its containers, records their states, and outlives Kyu.

It claims the pod's folder with a file that can be made only once, so a pod never runs twice. Then it becomes the
pod's user. In the pod's namespaces it is process 1: the kernel ends the pod with it. From there on it sleeps until an
event: output, an exit, a stop, a time. After each it asks lifecycle.py for the next steps, and writes the record. If
Kyu is killed, nothing changes here; the next Kyu reads the record and goes on. All paths are relative to the pod's
folder, the working directory.

Started by: launcher.py, in a fork. Speaks with processes.py through the files of records.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any, assert_never

from kyu.runtime import cgroups, lifecycle, output, records, spawn, user_files
from kyu.runtime.interactive.attaching import ContainerStreams
from kyu.runtime.interactive.execs import Execs, listen
from kyu.runtime.podman import engine, entering
from kyu.runtime.sandbox import files, kernel, namespaces
from kyu.runtime.sandbox.mounts import MountFailed
from kyu.runtime.sandbox.namespaces import Sandbox, SandboxFailed

READ_BYTES = 65536
# A container's last output is read to its end, unless a process that left the container goes on writing.
MOST_LAST_BYTES = 2 * 1024 * 1024
# Sizes of a termination message, and of the part of a log that stands in for one (the kubelet's numbers).
LONGEST_MESSAGE_BYTES = 4096
LONGEST_LOG_MESSAGE_BYTES = 2048
LOG_MESSAGE_LINES = 80
NOTICE_RETRY_SECONDS = 0.05
# The interval at which the supervisor checks that the pod's folder is there.
LOOK_SECONDS = 5.0
FULL_DISK_RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Running:
    """A container's live process, with its open streams."""

    container: lifecycle.ContainerState
    plan: dict[str, Any]
    pid: int
    log: output.LogFile
    streams: dict[int, output.Stream] = field(default_factory=dict)
    # The start of its container, where podman runs it.
    start: engine.ContainerStart | None = None

    @property
    def is_started(self) -> bool:
        return self.start is None or self.start.is_ready


@dataclass(slots=True)
class Supervisor:
    """The life of one pod."""

    plan: dict[str, Any]
    pod: lifecycle.PodState
    # The path of the pipe to Kyu, through a descriptor that was opened before the change of user.
    notices: str
    groups: dict[str, cgroups.Group]
    # The container states in Kubernetes' words, as they go to the record.
    states: dict[str, dict[str, Any]]
    running: dict[int, Running] = field(default_factory=dict)
    wake_at: float | None = None
    saved: str = ""
    must_notify: bool = False
    sandbox: Sandbox = field(default_factory=Sandbox)
    # Podman, for a pod that runs from images.
    engine: engine.Engine | None = None
    # Commands that are started in the containers while they run.
    execs: Execs = field(init=False)
    listener: socket.socket | None = None

    def __post_init__(self) -> None:
        plans = {plan["name"]: plan for plan in self.plan["containers"]}
        numbers = {container.name: container for container in self.pod.containers}
        self.execs = Execs(self.listener, plans, self.is_running, numbers=lambda name: numbers[name].starts - 1)

    def is_running(self, name: str) -> bool:
        return any(running.container.name == name and running.is_started for running in self.running.values())

    def run(self, folder: str, wakeup: int) -> None:
        self.sandbox = Sandbox(**self.plan["sandbox"])
        self.execs.sandbox, self.execs.groups = self.sandbox, self.groups
        try:
            entering.enter(self.sandbox, folder, memory_of(self.plan))
            if self.sandbox.images:
                self.engine = self.execs.engine = engine.Engine.open(self.sandbox)
            namespaces.load_nothing_more()
            self.run_containers(wakeup)
        except SandboxFailed as error:
            self.refuse(f"the pod cannot be isolated: {error}")
        except FileNotFoundError:
            if not folder_is_gone():
                raise
        if folder_is_gone():
            self.give_up()
            return
        while not records.notify(self.notices, self.plan["uid"]):
            time.sleep(NOTICE_RETRY_SECONDS)

    def run_containers(self, wakeup: int) -> None:
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        self.execs.register(poll)
        self.read_stop()
        while not self.advance(poll):
            self.wait(poll, wakeup)
            if folder_is_gone():
                return

    def refuse(self, message: str) -> None:
        """End the pod before any of its containers has run."""
        stop = lifecycle.Stop(time.time(), "IsolationFailed", message, fails=True)
        lifecycle.request_stop(self.pod, stop)
        self.finish("Failed")

    def give_up(self) -> None:
        """End the pod whose folder was deleted: no request can reach it any more."""
        for pid in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.end_left_over()

    # Steps ------------------------------------------------------------------------------------------------------------

    def advance(self, poll: select.poll) -> bool:
        """Take steps until nothing is left to do now. True when the pod is finished."""
        while True:
            now = time.time()
            after = lifecycle.next_steps(self.pod, now)
            self.wake_at = after.wake_at
            if not after.steps:
                break
            for step in after.steps:
                match step:
                    case lifecycle.Start(container):
                        self.start(container, poll)
                    case lifecycle.Terminate(container, kill_at):
                        container.kill_at = kill_at
                        self.signal(container, signal.SIGTERM)
                    case lifecycle.Kill(container):
                        container.killed = True
                        self.signal(container, signal.SIGKILL)
                    case lifecycle.Finish(phase):
                        self.finish(phase)
                        return True
                    case _:
                        assert_never(step)
        self.show_waiting()
        # On a full disk the pod runs on, and the record is written later.
        with contextlib.suppress(OSError):
            self.save()
        return False

    def start(self, container: lifecycle.ContainerState, poll: select.poll) -> None:
        plan = next(plan for plan in self.plan["containers"] if plan["name"] == container.name)
        path = records.log_file(container.name, container.starts)
        output.remove_log(records.log_file(container.name, container.starts - output.MOST_STARTS))
        log = output.LogFile(path, self.plan["logMostBytes"], self.plan["logMostFiles"])
        start = None
        try:
            process = plan
            if self.engine is not None:
                start, process = self.engine.run(plan, container.starts)
            child = spawn.fork(process, self.sandbox)
        except (OSError, MountFailed) as error:
            self.fail_to_fork(container, error)
            return
        running = Running(container, plan, child.pid, log, start=start)
        running.streams = {
            descriptor: output.Stream(name, log)
            for descriptor, name in ((child.stdout, "stdout"), (child.stderr, "stderr"))
            if descriptor >= 0
        }
        self.running[child.pid] = running
        self.execs.attaching.add(container_streams(plan, child))
        lifecycle.started(container, time.time())
        if start is None:
            self.show_started(running)
        else:
            poll.register(start.listener, select.POLLIN)
        try:
            # The record knows the process before it may run.
            self.save()
            if container.name in self.groups:
                self.groups[container.name].enter(child.pid)
            spawn.release(child)
            self.take_user_files(running, child)
        except (spawn.StartFailed, OSError) as error:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            exit_code = error.exit_code if isinstance(error, spawn.StartFailed) else spawn.NOT_RUNNABLE_EXIT_CODE
            container.hopeless = True
            if child.user_files is not None:
                child.user_files.close()
            self.close(running, poll)
            self.show_exited(running, exit_code, "StartError", str(error))
            return
        for descriptor in running.streams:
            poll.register(descriptor, select.POLLIN)

    def take_user_files(self, running: Running, child: spawn.Child) -> None:
        """Take the files of the user that get the container's output as well. Its process has opened them."""
        if child.user_files is None:
            return
        with child.user_files:
            found = user_files.receive(child.user_files, running.plan["outputFiles"])
        for stream in running.streams.values():
            stream.user_file = found.pop(stream.name, -1)
        for descriptor in found.values():
            os.close(descriptor)

    def fail_to_fork(self, container: lifecycle.ContainerState, error: Exception) -> None:
        """End the pod, whose user has too many processes, or whose volumes podman cannot be given."""
        message = f"no process can be started: {error.strerror}" if isinstance(error, OSError) else str(error)
        lifecycle.request_stop(self.pod, lifecycle.Stop(time.time(), "StartError", message, fails=True))
        container.hopeless = True

    def signal(self, container: lifecycle.ContainerState, number: signal.Signals) -> None:
        for pid, running in self.running.items():
            if running.container is container and not (running.start and running.start.signal(number)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    # Events -----------------------------------------------------------------------------------------------------------

    def wait(self, poll: select.poll, wakeup: int) -> None:
        """Sleep until something happens, then take note of it."""
        now = time.time()
        wake_at = now + (NOTICE_RETRY_SECONDS if self.must_notify else LOOK_SECONDS)
        wake_at = wake_at if self.wake_at is None else min(wake_at, self.wake_at)
        for descriptor, _ in poll.poll(max(0.0, wake_at - now) * 1000 + 1):
            if descriptor == wakeup:
                with contextlib.suppress(BlockingIOError):
                    while signals := os.read(wakeup, READ_BYTES):
                        if signal.SIGTERM in signals:
                            self.read_stop()
            elif not self.execs.handle(descriptor, poll) and not self.read_start(descriptor):
                self.read_output(descriptor, poll)
        self.execs.attaching.drop_stalled()
        self.reap(poll)

    def read_start(self, descriptor: int) -> bool:
        """Take note that a container runs; return False if the descriptor is of another kind."""
        for running in self.running.values():
            if running.start is not None and running.start.listener.fileno() == descriptor:
                if running.start.read():
                    self.show_started(running)
                return True
        return False

    def read_output(self, descriptor: int, poll: select.poll) -> None:
        for running in self.running.values():
            if descriptor in running.streams:
                if not self.pump(running, descriptor):
                    poll.unregister(descriptor)
                    self.execs.attaching.containers[running.container.name].outputs.remove(descriptor)
                    running.streams.pop(descriptor).close(time.time_ns())
                    os.close(descriptor)
                return

    def pump(self, running: Running, descriptor: int) -> bool:
        """Take what is there. False when the stream is over."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            # A terminal whose last process has gone.
            data = b""
        if data:
            self.take(running, descriptor, data)
        return bool(data)

    def take(self, running: Running, descriptor: int, data: bytes) -> None:
        """Write output to the log, and pass it on to attached clients."""
        stream = running.streams[descriptor]
        stream.take(data, time.time_ns())
        self.execs.attaching.output(running.container.name, stream.name, data)

    def reap(self, poll: select.poll) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if self.engine is not None:
                self.engine.count(used, is_podman=pid in self.running or pid in self.execs.by_pid)
            if pid not in self.running:
                self.execs.exited(pid, code if code >= 0 else 128 - code, poll)
                continue
            running = self.running[pid]
            # As in a container, no process survives the main process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self.execs.end_container(running.container.name)
            is_started = running.start is None or running.start.end(poll)
            self.close(running, poll)
            exit_code = code if code >= 0 else 128 - code
            if is_started or running.container.killed:
                self.show_exited(running, exit_code, self.exit_reason(running, exit_code), None)
            else:
                running.container.hopeless = True
                self.show_exited(running, exit_code, "StartError", engine.why_failed(running.log.path))

    def exit_reason(self, running: Running, code: int) -> str:
        group = self.groups.get(running.container.name)
        if group is not None and code == 128 + signal.SIGKILL and cgroups.was_killed_for_memory(group.path):
            return "OOMKilled"
        return "Error" if code else "Completed"

    def close(self, running: Running, poll: select.poll) -> None:
        """Take the last output, as far as it is there, and forget the process."""
        self.execs.attaching.stop_reading(running.container.name)
        for descriptor, stream in running.streams.items():
            left = MOST_LAST_BYTES
            # Nothing is there any more, or a terminal has lost its last process.
            with contextlib.suppress(OSError):
                while left > 0 and (data := os.read(descriptor, READ_BYTES)):
                    left -= len(data)
                    self.take(running, descriptor, data)
            stream.close(time.time_ns())
            with contextlib.suppress(KeyError):
                poll.unregister(descriptor)
            os.close(descriptor)
        self.execs.attaching.ended(running.container.name)
        running.log.close()
        del self.running[running.pid]

    def read_stop(self) -> None:
        stop = records.find(records.STOP)
        if stop is not None:
            kill_at = stop["requestedAt"] + stop["graceSeconds"]
            wish = lifecycle.Stop(kill_at, stop["reason"], stop["message"], fails=bool(stop["reason"]))
            lifecycle.request_stop(self.pod, wish)

    # The record -------------------------------------------------------------------------------------------------------

    def show_started(self, running: Running) -> None:
        container = running.container
        state = self.states[container.name]
        # In a pod with namespaces, the claim stands for all processes: they end with the supervisor.
        state["process"] = None if self.sandbox.namespaces else records.find_process(running.pid)
        if "terminated" in state["state"]:
            state["lastState"] = state["state"]
        state["state"] = {"running": {"startedAt": records.rfc3339(container.started_at)}}
        state["restartCount"] = container.starts - 1

    def show_exited(self, running: Running, exit_code: int, reason: str, message: str | None) -> None:
        container = running.container
        lifecycle.exited(container, exit_code, time.time())
        terminated = {
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": records.rfc3339(container.started_at),
            "finishedAt": records.rfc3339(container.finished_at),
            "containerID": f"kyu://{self.plan['uid']}/{container.name}/{container.starts - 1}",
        }
        text = message if message is not None else self.termination_message(running, exit_code)
        if text:
            terminated["message"] = text
        state = self.states[container.name]
        state["process"] = None
        state["state"] = {"terminated": terminated}

    def show_waiting(self) -> None:
        """Show a container between two runs as waiting, with its last end as its last state."""
        for container in self.pod.containers:
            state = self.states[container.name]
            ended = state["state"].get("terminated")
            if ended is None or self.pod.stop is not None or not lifecycle.restarts(container):
                continue
            seconds = int(lifecycle.back_off_seconds(container))
            message = f"back-off {seconds}s restarting failed container={container.name}"
            state["lastState"] = {"terminated": ended}
            state["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}

    def termination_message(self, running: Running, exit_code: int) -> str:
        path = records.message_file(running.container.name)
        with contextlib.suppress(OSError), open(files.open_regular(path, os.O_RDWR), "rb+", buffering=0) as file:
            text = (file.read(LONGEST_MESSAGE_BYTES) or b"").decode(errors="replace")
            file.truncate(0)
            if text:
                return text
        if exit_code == 0 or not running.plan["messageFromLog"]:
            return ""
        return tail(running.log.path)

    def record(self, phase: str) -> dict[str, Any]:
        stop = self.pod.stop
        return {
            "uid": self.plan["uid"],
            "phase": phase,
            "startTime": records.rfc3339(self.pod.started_at),
            "reason": stop.reason if stop else "",
            "message": stop.message if stop else "",
            "containers": self.states,
        }

    def save(self) -> None:
        document = self.record(phase_before_end(self.pod, self.states))
        if (text := json.dumps(document)) != self.saved:
            records.write(records.RECORD, document)
            self.saved = text
            self.must_notify = True
        if self.must_notify:
            self.must_notify = not records.notify(self.notices, self.plan["uid"])

    def finish(self, phase: str) -> None:
        """End what is left of the pod, then write the last record, however long the disk is full, and only then go."""
        self.end_left_over()
        usage = self.usage()
        while True:
            try:
                records.write(records.RECORD, {**self.record(phase), "usage": usage}, durable=True)
            except FileNotFoundError:
                raise
            except OSError:
                time.sleep(FULL_DISK_RETRY_SECONDS)
            else:
                return

    def usage(self) -> dict[str, Any]:
        """Return what the pod has used. All its processes have ended, and the supervisor was the parent of each."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peaks = [cgroups.peak_memory(group.path) for group in self.groups.values()]
        # The work of podman is not that of the pod.
        podman_seconds = self.engine.podman_seconds if self.engine is not None else 0.0
        largest = used.ru_maxrss if self.engine is None else self.engine.largest_kilobytes
        return {
            "seconds": round(time.time() - self.pod.started_at, 3),
            "cpuSeconds": round(max(0.0, used.ru_utime + used.ru_stime - podman_seconds), 3),
            # If the kernel does not count the memory of the group, that of the largest process.
            "peakBytes": sum(filter(None, peaks)) or largest * 1024,
        }

    def end_left_over(self) -> None:
        """End every process of the pod, and wait until all are gone."""
        for group in self.groups.values():
            group.end()
        kill_descendants()


def container_streams(plan: dict[str, Any], child: spawn.Child) -> ContainerStreams:
    """Return the streams of a container that clients may be attached to."""
    is_interactive = bool(plan.get("stdin") or plan.get("tty"))
    return ContainerStreams(
        plan["name"],
        [descriptor for descriptor in (child.stdout, child.stderr) if descriptor >= 0],
        stdin=child.stdin,
        closes_stdin=bool(plan.get("stdinOnce")),
        is_terminal=bool(plan.get("tty")),
        keeps_early=is_interactive,
    )


def memory_of(plan: dict[str, Any]) -> namespaces.Memory:
    """Return the pod's folders in memory; the usual ones for a plan of an earlier version."""
    if "sharedMemoryBytes" not in plan:
        return namespaces.Memory()
    return namespaces.Memory(plan["sharedMemoryBytes"], plan["memoryVolumes"])


def folder_is_gone() -> bool:
    """Return whether the pod's folder, the working directory, was deleted."""
    try:
        return os.stat(".").st_nlink == 0
    except OSError:
        return True


def phase_before_end(pod: lifecycle.PodState, states: dict[str, dict[str, Any]]) -> str:
    mains = [states[container.name] for container in pod.containers if container.role == "main"]
    return "Running" if any("waiting" not in each["state"] or each["lastState"] for each in mains) else "Pending"


def tail(path: str) -> str:
    """Return the last lines of a log, as they were printed."""
    try:
        with open(files.open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_LOG_MESSAGE_BYTES * 2))
            lines = file.read().decode(errors="replace").splitlines()[-LOG_MESSAGE_LINES:]
    except OSError:
        return ""
    text = "\n".join(line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3)
    return text[-LONGEST_LOG_MESSAGE_BYTES:]


def kill_descendants() -> None:
    """
    End the processes that a container left behind in a session of their own: the supervisor is their parent now.

    Their children become its children in turn, so this goes on until there are none.
    """
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        # As process 1 of the pod, the supervisor can signal all others of it, and no other process.
        for pid in (-1,) if os.getpid() == 1 else children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def children() -> list[int]:
    me = str(os.getpid()).encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[1] == me:
                    found.append(int(entry))
    return found


def supervise(folder: str) -> None:
    """Run the pod of this folder to its end, unless another supervisor does."""
    kernel.become_subreaper()
    os.chdir(folder)
    plan = records.find(records.PLAN)
    if plan is None:
        sys.exit(f"{folder}: no {records.PLAN}")
    wakeup = wake_on_signals()
    me = records.find_self()
    if me is None or not records.write_once(records.CLAIM, me._asdict()):
        return
    containers = [
        lifecycle.ContainerState(container["name"], container["role"], container["restartPolicy"])
        for container in plan["containers"]
    ]
    pod = lifecycle.PodState(containers, time.time(), plan["activeDeadlineSeconds"], plan["graceSeconds"])
    waiting = {"waiting": {"reason": "PodInitializing" if containers[0].role != "main" else "ContainerCreating"}}
    states = {
        container.name: {"state": waiting, "lastState": {}, "restartCount": 0, "process": None}
        for container in containers
    }
    notices = f"/proc/self/fd/{os.open(plan['notices'], os.O_PATH | os.O_CLOEXEC)}"
    supervisor = Supervisor(plan, pod, notices, {}, states, listener=listen())
    try:
        supervisor.groups = make_groups(plan)
    except OSError as error:
        supervisor.refuse(f"the limits of the pod cannot be set: {error}")
        return
    supervisor.run(folder, wakeup)


def wake_on_signals() -> int:
    """Return a pipe that can be read after each signal."""
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # Containers see the supervisor as process 1. Python would end at this signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return wakeup


def make_groups(plan: dict[str, Any]) -> dict[str, cgroups.Group]:
    if not plan["cgroup"]:
        return {}
    groups = {
        container["name"]: cgroups.make(os.path.join(plan["cgroup"], container["name"]), container["limits"])
        for container in plan["containers"]
    }
    if "cpuWeight" in plan:
        cgroups.weigh(plan["cgroup"], plan["cpuWeight"])
    return groups
