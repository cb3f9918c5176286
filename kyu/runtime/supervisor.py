"""
One small process per pod: starts its containers, writes down what becomes of them, and outlives Kyu.

It claims the pod's folder with a file that can be made only once, so a pod never runs twice. Then it sleeps until
something happens: output, an exit, a stop, a time. After each it asks lifecycle.py for the next steps, and writes the
record. When Kyu is killed, nothing changes here; the next Kyu reads the record and goes on.

Started by: launcher.py, in a fork. Speaks with processes.py through the files of records.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, assert_never

from kyu.runtime import cgroups, lifecycle, mounts, output, records, spawn

READ_BYTES = 65536
# How much of a termination message is kept, and how much of a log stands in for one (the kubelet's numbers).
LONGEST_MESSAGE_BYTES = 4096
LONGEST_LOG_MESSAGE_BYTES = 2048
LOG_MESSAGE_LINES = 80
NOTICE_RETRY_SECONDS = 0.05
# How often it is looked whether the pod's folder is still there.
LOOK_SECONDS = 5.0
FULL_DISK_RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Running:
    """A container's live process, and what is open for it."""

    container: lifecycle.Container
    plan: dict[str, Any]
    pid: int
    log: output.LogFile
    streams: dict[int, output.Stream] = field(default_factory=dict)


@dataclass(slots=True)
class Supervisor:
    folder: str
    plan: dict[str, Any]
    pod: lifecycle.Pod
    # The container states in Kubernetes' words, as they go to the record.
    states: dict[str, dict[str, Any]]
    running: dict[int, Running] = field(default_factory=dict)
    wake_at: float | None = None
    saved: str = ""
    must_notify: bool = False

    def run(self) -> None:
        poll = select.poll()
        wakeup, wakeup_writer = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakeup_writer, False)
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        poll.register(wakeup, select.POLLIN)
        me = records.find_process(os.getpid())
        if me is None or not records.write_once(self.path(records.CLAIM), me._asdict()):
            return
        try:
            self.read_stop()
            while not self.advance(poll):
                self.wait(poll, wakeup)
                if not os.path.isdir(self.folder):
                    self.give_up()
                    return
        except FileNotFoundError:
            if os.path.isdir(self.folder):
                raise
            self.give_up()
            return
        while not records.notify(self.plan["notices"], self.plan["uid"]):
            time.sleep(NOTICE_RETRY_SECONDS)

    def give_up(self) -> None:
        """The folder was deleted: nobody can ever ask for this pod again, so it must not run on."""
        for pid in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.end_left_over()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

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
        # On a full disk the pod runs on, and the next look tries again; whether its folder is there, it asks as well.
        with contextlib.suppress(OSError):
            self.save()
        return False

    def start(self, container: lifecycle.Container, poll: select.poll) -> None:
        plan = next(plan for plan in self.plan["containers"] if plan["name"] == container.name)
        path = self.path(records.log_file(container.name, container.starts))
        log = output.LogFile(path, self.plan["logMostBytes"], self.plan["logMostFiles"])
        child = spawn.fork(plan, self.plan["user"])
        running = Running(container, plan, child.pid, log)
        running.streams = {child.stdout: output.Stream("stdout", log), child.stderr: output.Stream("stderr", log)}
        self.running[child.pid] = running
        lifecycle.started(container, time.time())
        self.show_started(running)
        try:
            # The record knows the process before it may run.
            self.save()
            if self.plan["cgroup"]:
                cgroups.enter(os.path.join(self.plan["cgroup"], container.name), plan["limits"], child.pid)
            spawn.release(child)
        except (spawn.StartFailed, OSError) as error:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            exit_code = error.exit_code if isinstance(error, spawn.StartFailed) else spawn.NOT_RUNNABLE_EXIT_CODE
            container.hopeless = True
            self.close(running, poll)
            self.show_exited(running, exit_code, "StartError", str(error))
            return
        for descriptor in running.streams:
            poll.register(descriptor, select.POLLIN)

    def signal(self, container: lifecycle.Container, number: signal.Signals) -> None:
        for pid, running in self.running.items():
            if running.container is container:
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
            else:
                self.read_output(descriptor, poll)
        self.reap(poll)

    def read_output(self, descriptor: int, poll: select.poll) -> None:
        for running in self.running.values():
            if descriptor in running.streams:
                if not self.pump(running.streams[descriptor], descriptor):
                    poll.unregister(descriptor)
                    running.streams.pop(descriptor).close(time.time_ns())
                    os.close(descriptor)
                return

    def pump(self, stream: output.Stream, descriptor: int) -> bool:
        """Take what is there. False when the stream is over."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            stream.take(data, time.time_ns())
        return bool(data)

    def reap(self, poll: select.poll) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self.running:
                continue
            running = self.running[pid]
            # As in a container, nothing survives the main process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self.close(running, poll)
            code = os.waitstatus_to_exitcode(status)
            self.show_exited(running, code if code >= 0 else 128 - code, self.exit_reason(running, code), None)

    def exit_reason(self, running: Running, code: int) -> str:
        if self.plan["cgroup"]:
            group = os.path.join(self.plan["cgroup"], running.container.name)
            if code == -signal.SIGKILL and cgroups.was_killed_for_memory(group):
                return "OOMKilled"
        return "Error" if code else "Completed"

    def close(self, running: Running, poll: select.poll) -> None:
        """Take the last output, as far as it is there, and forget the process."""
        for descriptor, stream in running.streams.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, READ_BYTES):
                    stream.take(data, time.time_ns())
            stream.close(time.time_ns())
            with contextlib.suppress(KeyError):
                poll.unregister(descriptor)
            os.close(descriptor)
        running.log.close()
        del self.running[running.pid]

    def read_stop(self) -> None:
        stop = records.find(self.path(records.STOP))
        if stop is not None:
            kill_at = stop["requestedAt"] + stop["graceSeconds"]
            wish = lifecycle.Stop(kill_at, stop["reason"], stop["message"], fails=bool(stop["reason"]))
            lifecycle.request_stop(self.pod, wish)

    # The record -------------------------------------------------------------------------------------------------------

    def show_started(self, running: Running) -> None:
        container = running.container
        state = self.states[container.name]
        process = records.find_process(running.pid)
        state["process"] = process
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
        """A container between two runs waits, and its last end is its last state."""
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
        with contextlib.suppress(OSError), open(running.plan["messageFile"], "rb") as file:
            text = file.read(LONGEST_MESSAGE_BYTES).decode(errors="replace")
            os.truncate(running.plan["messageFile"], 0)
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
        document = self.record(phase_before_end(self.pod))
        if (text := json.dumps(document)) != self.saved:
            records.write(self.path(records.RECORD), document)
            self.saved = text
            self.must_notify = True
        if self.must_notify:
            self.must_notify = not records.notify(self.plan["notices"], self.plan["uid"])

    def finish(self, phase: str) -> None:
        """End what is left of the pod, then write the last record, however long the disk is full, and only then go."""
        self.end_left_over()
        while True:
            try:
                records.write(self.path(records.RECORD), self.record(phase), durable=True)
            except FileNotFoundError:
                raise
            except OSError:
                time.sleep(FULL_DISK_RETRY_SECONDS)
            else:
                return

    def end_left_over(self) -> None:
        if self.plan["cgroup"]:
            for container in self.pod.containers:
                cgroups.kill(os.path.join(self.plan["cgroup"], container.name))
        kill_descendants()
        if self.plan["cgroup"]:
            cgroups.remove(self.plan["cgroup"])


def phase_before_end(pod: lifecycle.Pod) -> str:
    started = any(container.starts for container in pod.containers if container.role == "main")
    return "Running" if started else "Pending"


def tail(path: str) -> str:
    """The last lines of a log, as they were printed."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_LOG_MESSAGE_BYTES * 2))
            lines = file.read().decode(errors="replace").splitlines()[-LOG_MESSAGE_LINES:]
    except OSError:
        return ""
    text = "\n".join(line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3)
    return text[-LONGEST_LOG_MESSAGE_BYTES:]


def kill_descendants() -> None:
    """
    End the processes that a container left behind in a session of their own: they are our children now.

    Their children become ours in turn, so this goes on until there are none.
    """
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in children():
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
    """Run the pod of this folder to its end, unless somebody else does."""
    mounts.become_subreaper()
    plan = records.find(os.path.join(folder, records.PLAN))
    if plan is None:
        sys.exit(f"{folder}: no {records.PLAN}")
    containers = [
        lifecycle.Container(container["name"], container["role"], container["restartPolicy"])
        for container in plan["containers"]
    ]
    pod = lifecycle.Pod(containers, time.time(), plan["activeDeadlineSeconds"], plan["graceSeconds"])
    waiting = {"waiting": {"reason": "PodInitializing" if containers[0].role != "main" else "ContainerCreating"}}
    states = {
        container.name: {"state": waiting, "lastState": {}, "restartCount": 0, "process": None}
        for container in containers
    }
    Supervisor(folder, plan, pod, states).run()
