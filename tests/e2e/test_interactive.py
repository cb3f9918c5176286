"""Commands in pods with the real kubectl, the official Python client and `kyu exec`, on `kyu up`.

As root, the server isolates the pods of each namespace; else all run as one user.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from kyu.api.meta import Json, Key, Kind
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden
from tests.support.local_kyu import LocalKyu, local_kyu

POD = Kind("", "v1", "Pod", "pods")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: see kubernetes.io/docs/tasks/tools"
)
# kubectl speaks WebSocket, and SPDY where this variable forbids it.
TRANSPORTS = pytest.mark.parametrize("websocket", ["true", "false"], ids=["websocket", "spdy"])


# The size of a terminal comes a moment after it.
UNTIL_SIZED = 'until test "$(stty size)" = "37 91"; do sleep 0.1; done; stty size; '


class Visitor:
    """A control plane with a pod that runs, and the programs that enter it."""

    def __init__(self, kyu: LocalKyu, folder: Path) -> None:
        self.kyu = kyu
        self.folder = folder

    def start_pod(self, name: str, namespace: str = "default", script: str = "", **container: object) -> None:
        command = ["sh", "-c", script or "while true; do sleep 0.2; done"]
        main = {"name": "main", "image": "busybox", "command": command, **container}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
        # A connection that was idle for long is closed by the server, and a POST is not repeated.
        self.kyu.client.close()
        self.kyu.client.create(POD, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
        self.kyu.wait(f"{name} runs", lambda: self.phase(name, namespace) == "Running")

    def phase(self, name: str, namespace: str = "default") -> str:
        pod = self.kyu.client.get(POD, Key(namespace, name))
        return str((pod.get("status") or {}).get("phase"))

    def environment(self, user: str = "", websocket: str = "true") -> dict[str, str]:
        file = self.folder / f"{user}.kubeconfig" if user else self.kyu.data / "kubeconfig"
        return {
            **os.environ,
            "KUBECONFIG": str(file),
            "HOME": str(self.folder),
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": websocket,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": websocket,
        }

    def kubectl(
        self, *words: str, user: str = "", websocket: str = "true", text: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        environment = self.environment(user, websocket)
        return subprocess.run(["kubectl", *words], input=text, capture_output=True, env=environment, timeout=90)


@pytest.fixture(scope="module")
def visitor() -> Iterator[Visitor]:
    # Below a folder that all users can pass through, a server of root isolates pods.
    with tempfile.TemporaryDirectory(prefix="kyu-interactive-") as folder:
        os.chmod(folder, 0o711)
        with local_kyu(Path(folder) / "data", "--cpu", "8") as kyu:
            found = Visitor(kyu, Path(folder))
            found.start_pod("main", env=[{"name": "COLOR", "value": "blue"}])
            yield found


@pytest.fixture(scope="module")
def user(visitor: Visitor) -> str:
    """A user with a namespace of their own."""
    visitor.kyu.client.close()
    visitor.kyu.client.create(NAMESPACE, {"metadata": {"name": "ana"}})
    for name, role in (("ana", "batch-user"), ("eva", "view")):
        added = visitor.kyu.kyu("user", "add", name, "--namespace", "ana", "--role", role)
        (visitor.folder / f"{name}.kubeconfig").write_text(added.stdout)
    visitor.start_pod("hers", "ana")
    return "ana"


@needs_kubectl
@TRANSPORTS
def test_kubectl_exec(visitor: Visitor, websocket: str) -> None:
    script = "cat; echo $COLOR; echo problem >&2; exit 3"
    done = visitor.kubectl("exec", "-i", "main", "--", "sh", "-c", script, websocket=websocket, text=b"typed\n")
    assert (done.returncode, done.stdout) == (3, b"typed\nblue\n")
    assert done.stderr == b"problem\ncommand terminated with exit code 3\n"
    missing = visitor.kubectl("exec", "main", "--", "no-such-program", websocket=websocket)
    assert missing.returncode == 127
    assert b"no-such-program" in missing.stderr


@needs_kubectl
@TRANSPORTS
def test_kubectl_cp_both_ways(visitor: Visitor, websocket: str, tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.write_bytes(os.urandom(3_000_000))
    there = visitor.kubectl("cp", str(original), f"main:there-{websocket}", websocket=websocket)
    assert there.returncode == 0, there.stderr
    back = visitor.kubectl("cp", f"main:there-{websocket}", str(copy), websocket=websocket)
    assert back.returncode == 0, back.stderr
    assert copy.read_bytes() == original.read_bytes()


def in_terminal(command: list[str], environment: dict[str, str], typed: bytes, rows: int, columns: int) -> str:
    """Run a command with a terminal of this size, and return all that it showed."""
    set_size = f"import fcntl, os, struct, sys, termios; size = struct.pack('HHHH', {rows}, {columns}, 0, 0);"
    set_size += "fcntl.ioctl(0, termios.TIOCSWINSZ, size); os.execvp(sys.argv[1], sys.argv[1:])"
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = subprocess.Popen([sys.executable, "-c", set_size, *command], env=environment, **streams)
    os.close(slave)
    gives_up = threading.Timer(90, process.kill)
    gives_up.start()
    try:
        os.write(master, typed)
        shown = b""
        # The terminal ends with its last process.
        with contextlib.suppress(OSError):
            while data := os.read(master, 4096):
                shown += data
    finally:
        gives_up.cancel()
        os.close(master)
        process.wait()
    return shown.decode()


@pytest.mark.parametrize("program", [pytest.param("kubectl", marks=needs_kubectl), "spdy", "kyu"])
def test_a_terminal(visitor: Visitor, program: str) -> None:
    if program == "spdy" and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    start = [sys.executable, "-m", "kyu", "exec", "-it", "pod/main"]
    if program != "kyu":
        start = ["kubectl", "exec", "-it", "main"]
    command = [*start, "--", "sh", "-c", UNTIL_SIZED + "read line; echo got $line"]
    environment = visitor.environment(websocket="false" if program == "spdy" else "true")
    shown = in_terminal(command, environment, b"typed\n", 37, 91)
    assert "37 91" in shown
    assert "got typed" in shown


def test_kyu_exec(visitor: Visitor) -> None:
    kyu = visitor.kyu
    done = kyu.kyu("exec", "-i", "pod/main", "--", "sh", "-c", "cat; echo problem >&2; exit 4", check=False, stdin="in")
    assert (done.returncode, done.stdout, done.stderr) == (4, "in", "problem\n")
    kyu.submit("entered", "local", "while true; do sleep 0.2; done")
    kyu.wait("it runs", lambda: kyu.state("entered") == "Running")
    assert kyu.kyu("exec", "entered", "--", "echo", "two words").stdout == "two words\n"
    refused = kyu.kyu("exec", "nothing", "--", "true", check=False)
    assert refused.returncode == 1
    assert "no job 'nothing'" in refused.stderr


@needs_kubectl
@TRANSPORTS
def test_kubectl_attach(visitor: Visitor, websocket: str) -> None:
    """The first client also gets what the program printed before it came."""
    name = f"attach-{websocket}"
    script = "echo early; cat; echo problem >&2; sleep 1; exit 3"
    visitor.start_pod(name, script=script, stdin=True, stdinOnce=True)
    done = visitor.kubectl("attach", "-i", name, websocket=websocket, text=b"typed\n")
    assert (done.returncode, done.stdout) == (0, b"early\ntyped\n")
    assert b"problem\n" in done.stderr
    visitor.kyu.wait("it ends", lambda: visitor.phase(name) == "Failed")
    assert visitor.kubectl("logs", name).stdout == b"early\ntyped\nproblem\n"


@needs_kubectl
def test_attach_to_a_terminal(visitor: Visitor) -> None:
    visitor.start_pod("screen", script=UNTIL_SIZED + "read line; echo got $line", stdin=True, tty=True)
    shown = in_terminal(["kubectl", "attach", "-it", "screen"], visitor.environment(), b"typed\n", 37, 91)
    assert "37 91" in shown
    assert "got typed" in shown


@pytest.fixture(scope="module")
def web_port(visitor: Visitor) -> int:
    """The port of a web server in a pod."""
    port = free_port()
    server = f"import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"
    visitor.start_pod("web", script=f'echo hello > index.html; exec python3 -c "{server}"')
    visitor.kyu.wait("it listens", lambda: can_connect(port))
    return port


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@needs_kubectl
@TRANSPORTS
def test_kubectl_port_forward(visitor: Visitor, web_port: int, websocket: str) -> None:
    closed = free_port()
    command = ["kubectl", "port-forward", "web", f":{web_port}", f":{closed}"]
    pipe = subprocess.PIPE
    environment = visitor.environment(websocket=websocket)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            local: dict[str, str] = {}
            while len(local) < 2:
                words = process.stdout.readline().split()
                if words[2].startswith("127.0.0.1:"):
                    local[words[-1]] = words[2]
            for _ in range(3):
                with urllib.request.urlopen(f"http://{local[str(web_port)]}/", timeout=60) as answer:
                    assert answer.read() == b"hello\n"
            with pytest.raises((http.client.HTTPException, ConnectionError, urllib.error.URLError)):
                urllib.request.urlopen(f"http://{local[str(closed)]}/", timeout=60)
            assert f"error forwarding port {closed}" in process.stderr.readline()
        finally:
            process.terminate()


def test_the_official_client_forwards_a_port(visitor: Visitor, web_port: int) -> None:
    with config.new_client_from_config(str(visitor.kyu.data / "kubeconfig")) as connected:
        core = client.CoreV1Api(connected)
        forward = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports=str(web_port))
        forwarded = forward.socket(web_port)
        forwarded.setblocking(True)
        forwarded.sendall(b"GET / HTTP/1.0\r\n\r\n")
        received = b""
        while data := forwarded.recv(4096):
            received += data
        assert received.endswith(b"\r\n\r\nhello\n")
        assert forward.error(web_port) is None


def test_kyu_attach(visitor: Visitor) -> None:
    visitor.start_pod("watched", script="read line; echo got $line", stdin=True, stdinOnce=True)
    done = visitor.kyu.kyu("attach", "-i", "pod/watched", stdin="typed\n")
    assert done.stdout == "got typed\n"


def test_kyu_run(visitor: Visitor) -> None:
    kyu = visitor.kyu
    folder = str(visitor.folder)
    script = "cat; echo problem >&2; sleep 1; exit 4"
    done = kyu.kyu("run", "--chdir", folder, "-i", "--", "sh", "-c", script, check=False, stdin="typed\n")
    assert (done.returncode, done.stdout) == (4, "typed\n")
    assert done.stderr.endswith("problem\n")
    assert "submitted to local" in done.stderr
    # It may have ended before the command could be attached to it.
    assert kyu.kyu("run", "--chdir", folder, "--", "echo", "short").stdout == "short\n"
    refused = kyu.kyu("run", "--array", "3", "--", "true", check=False)
    assert (refused.returncode, refused.stderr) == (2, "kyu run: --array is for `kyu submit`\n")


def test_kyu_run_passes_signals_on(visitor: Visitor) -> None:
    script = "trap 'echo interrupted; exit 9' INT; echo ready; while true; do sleep 0.1; done"
    command = [sys.executable, "-m", "kyu", "run", "--chdir", str(visitor.folder), "--", "sh", "-c", script]
    environment = visitor.environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(90) == 9


def test_kyu_run_waits_with_the_reason_and_can_be_cancelled(visitor: Visitor) -> None:
    visitor.kyu.client.close()
    visitor.kyu.make_queue("closed", "1", stopPolicy="Hold")
    command = [sys.executable, "-m", "kyu", "run", "-q", "closed", "--name", "waits", "--", "true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=visitor.environment()) as process:
        assert process.stderr is not None
        assert "submitted to closed" in process.stderr.readline()
        assert "waits: " in process.stderr.readline()
        # A shell may have its children ignore SIGINT.
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 130
        assert "waits: cancelled" in process.stderr.read()
    assert visitor.kyu.client.find(JOB, Key("default", "waits")) is None


def test_the_official_client(visitor: Visitor) -> None:
    with config.new_client_from_config(str(visitor.kyu.data / "kubeconfig")) as connected:
        core = client.CoreV1Api(connected)
        opened = stream(
            core.connect_get_namespaced_pod_exec,
            "main",
            "default",
            command=["sh", "-c", "cat; echo problem >&2; exit 5"],
            stdin=True,
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        opened.write_stdin("line\n")
        opened.close_channel(0)
        opened.run_forever(timeout=90)
        assert opened.read_stdout() == "line\n"
        assert opened.read_stderr() == "problem\n"
        assert opened.returncode == 5


def exec_refusal(visitor: Visitor, user: str, pod: str, namespace: str) -> str:
    loaded = BlockingClient(kubeconfig.load(visitor.folder / f"{user}.kubeconfig"))
    try:
        with pytest.raises(Forbidden) as refused:
            loaded.raw(f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", {"command": "id", "stdout": "true"})
        return str(refused.value)
    finally:
        loaded.close()


def test_rights(visitor: Visitor, user: str) -> None:
    """A user enters pods of the own namespace only, and the right to read is not enough."""
    own = subprocess.run(
        [sys.executable, "-m", "kyu", "exec", "pod/hers", "--", "id", "-u"],
        capture_output=True,
        text=True,
        env=visitor.environment(user),
        timeout=90,
    )
    assert own.returncode == 0, own.stderr
    if os.geteuid() == 0:
        main = visitor.kyu.kyu("exec", "pod/main", "--", "id", "-u").stdout
        assert len({own.stdout, main, "0\n"}) == 3, "each namespace has a user of its own, and none is root"
    assert 'cannot get resource "pods/exec"' in exec_refusal(visitor, user, "main", "default")
    assert 'cannot get resource "pods/exec"' in exec_refusal(visitor, "eva", "hers", "ana")
    rule: Json = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
    rbac = "rbac.authorization.k8s.io"
    visitor.kyu.client.create(
        Kind(rbac, "v1", "Role", "roles"), {"metadata": {"name": "reads", "namespace": "ana"}, "rules": [rule]}
    )
    binding = {
        "metadata": {"name": "reads", "namespace": "ana"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reads"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "eva"}],
    }
    visitor.kyu.client.create(Kind(rbac, "v1", "RoleBinding", "rolebindings"), binding)
    assert 'cannot create resource "pods/exec"' in exec_refusal(visitor, "eva", "hers", "ana")


@needs_kubectl
def test_what_cannot_be_entered_is_explained(visitor: Visitor) -> None:
    assert b"not found" in visitor.kubectl("exec", "nothing", "--", "true").stderr
    visitor.start_pod("ends", script="until test -e $HOME/enough; do sleep 0.1; done")
    assert visitor.kubectl("exec", "ends", "--", "touch", "enough").returncode == 0
    visitor.kyu.wait("it ends", lambda: visitor.phase("ends") == "Succeeded")
    assert b"completed pod" in visitor.kubectl("exec", "ends", "--", "true").stderr
    assert b"container other is not valid" in visitor.kubectl("exec", "main", "-c", "other", "--", "true").stderr


def test_a_pod_can_be_entered_after_a_crash_of_the_server(visitor: Visitor) -> None:
    visitor.kyu.kill()
    visitor.kyu.start()
    assert visitor.kyu.kyu("exec", "pod/main", "--", "echo", "still here").stdout == "still here\n"
