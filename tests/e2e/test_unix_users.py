"""Two Unix accounts on one machine: each runs as itself, and neither reaches the other. As root only."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kinds.job import JOB
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden
from kyu.kube.kubeconfig import Credentials
from kyu.runtime.identity import unix_users
from tests.support.local_kyu import LocalKyu, local_kyu

# Accounts that Debian and others have from the start; no test makes accounts.
ANA, BEN = "games", "news"
POD = Kind("", "v1", "Pod", "pods")


def accounts_are_here() -> bool:
    try:
        return all(pwd.getpwnam(name) for name in (ANA, BEN))
    except KeyError:
        return False


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other accounts"),
    pytest.mark.skipif(not accounts_are_here(), reason=f"this machine has no accounts {ANA} and {BEN}"),
]


class Machine:
    """A shared server, and what two accounts do with it."""

    def __init__(self, kyu: LocalKyu, folder: Path) -> None:
        self.kyu = kyu
        self.folder = folder
        self.socket = folder / "run" / "kyu.sock"

    def login(self, account: str) -> Json:
        """Return what the socket answers to a process of the account."""
        ours, theirs = socket.socketpair()
        user = unix_users.find(account)
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups(user.groups)
                os.setresgid(user.gid, user.gid, user.gid)
                os.setresuid(user.uid, user.uid, user.uid)
                asking = socket.socket(socket.AF_UNIX)
                asking.connect(str(self.socket))
                socket.send_fds(theirs, [b"\0"], [asking.fileno()])
            finally:
                os._exit(0)
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(pid, 0)
        ours.close()
        theirs.close()
        with socket.socket(fileno=descriptors[0]) as answering, answering.makefile("rb") as file:
            answer: Json = json.loads(file.read())
        return answer

    def client(self, account: str) -> BlockingClient:
        login = self.login(account)
        authority = login["authority"].encode()
        return BlockingClient(Credentials(login["server"], authority=authority, token=login["token"]))

    def run(self, account: str, name: str, script: str, *, namespace: str = "", **annotations: str) -> tuple[str, str]:
        """Run a job of the account to its end; return the state of its pod and its output."""
        namespace = namespace or account
        client = self.client(account)
        client.create(JOB, job(name, namespace, script, self.folder / account, annotations))
        pod = self.kyu.wait(f"{name} is over", lambda: self.ended_pod(namespace, name))
        output = b"".join(client.logs(Key(namespace, pod["metadata"]["name"]), {})).decode()
        client.close()
        return pod["status"]["phase"], output

    def ended_pod(self, namespace: str, name: str) -> Json | None:
        pods = self.kyu.client.list(POD, namespace, labels=f"batch.kubernetes.io/job-name={name}")
        return next((pod for pod in pods if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")), None)


def job(name: str, namespace: str, script: str, folder: Path, annotations: dict[str, str]) -> Json:
    container = {
        "name": "main",
        "image": "kyu.dev/host",
        "command": ["/bin/sh", "-c", script],
        "workingDir": str(folder),
        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    meta = {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "default"}}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {"metadata": {**meta, "annotations": annotations}, "spec": {"backoffLimit": 0, "template": template}}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    # Pods have a /tmp of their own, so the users' files lie elsewhere.
    folder = Path(tempfile.mkdtemp(prefix="kyu-test-", dir="/srv" if os.path.isdir("/srv") else "/opt"))
    folder.chmod(0o755)
    for name in (ANA, BEN):
        own = folder / name
        own.mkdir()
        os.chown(own, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        own.chmod(0o700)
    try:
        with local_kyu(folder / "data", "--socket", str(folder / "run" / "kyu.sock")) as kyu:
            kyu.kyu("team", "add", ANA, "--group", ANA)
            kyu.kyu("team", "add", BEN, "--group", BEN, "--cpu", "1", "--memory", "1Gi")
            kyu.kyu("team", "add", "both", "--user", ANA, "--user", BEN)
            yield Machine(kyu, folder)
    finally:
        shutil.rmtree(folder)


def test_the_socket_knows_the_account_and_its_teams(machine: Machine) -> None:
    login = machine.login(ANA)
    assert (login["user"], login["namespaces"]) == (f"unix:{ANA}", ["both", ANA])
    assert machine.login(BEN)["namespaces"] == ["both", BEN]


def test_a_command_finds_the_server_without_a_token(machine: Machine, tmp_path: Path) -> None:
    """Root is the account that can run the commands here; it is an administrator."""
    environment = {**os.environ, "KYU_SOCKET": str(machine.socket), "HOME": str(tmp_path), "KYU_DATA": str(tmp_path)}
    environment.pop("KUBECONFIG", None)
    words = [sys.executable, "-m", "kyu"]
    listed = subprocess.run([*words, "team", "list"], env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["both", ANA, BEN]
    written = subprocess.run([*words, "login"], env=environment, capture_output=True, text=True, check=True)
    assert "token" not in written.stdout
    assert (
        "ExecCredential"
        in subprocess.run(
            [*words, "login", "--credential"], env=environment, capture_output=True, text=True, check=True
        ).stdout
    )


def test_a_job_runs_as_its_account_with_the_files_of_its_account(machine: Machine) -> None:
    user = unix_users.find(ANA)
    script = "echo $(id -u) $(id -g) $(id -G) $(whoami) $USER; echo mine > result; ls -ld . | cut -c 1-10; ls /proc"
    phase, output = machine.run(ANA, "own", script)
    first, second, *processes = output.splitlines()
    assert phase == "Succeeded"
    assert first == f"{user.uid} {user.gid} {' '.join(map(str, user.groups))} {ANA} {ANA}"
    assert second == "drwx------"
    assert len([entry for entry in processes if entry.isdigit()]) <= 4, "only the pod's own processes"
    written = machine.folder / ANA / "result"
    assert (written.read_text(), written.stat().st_uid) == ("mine\n", user.uid)


def test_an_account_cannot_reach_the_files_of_another_or_of_the_server(machine: Machine) -> None:
    (machine.folder / ANA / "secret").write_text("of ana")
    places = [
        machine.folder / ANA / "secret",
        machine.folder / "data" / "kyu.db",
        machine.folder / "data" / "kubeconfig",
    ]
    script = "; ".join(f"cat {place} && echo read" for place in places)
    _, output = machine.run(BEN, "curious", script)
    assert "read" not in output.split()
    assert "of ana" not in output


def test_the_identity_cannot_be_chosen(machine: Machine) -> None:
    """The annotation of a manifest means nothing: the server writes the user who submits."""
    claimed = {"kyu.dev/submitted-by": f"unix:{ANA}"}
    _, output = machine.run(BEN, "forged", "id -u", **claimed)
    assert output == f"{unix_users.find(BEN).uid}\n"
    made = machine.kyu.client.get(JOB, Key(BEN, "forged"))
    assert made["metadata"]["annotations"]["kyu.dev/submitted-by"] == f"unix:{BEN}"


def test_members_of_one_team_do_not_run_as_each_other(machine: Machine) -> None:
    ana, ben = machine.client(ANA), machine.client(BEN)
    script = "echo from ana; while true; do sleep 0.2; done"
    ana.create(JOB, job("shared", "both", script, machine.folder / ANA, {}))
    pod = machine.kyu.wait("it runs", lambda: running_pod(machine, "shared"))
    key = Key("both", pod["metadata"]["name"])
    with pytest.raises(Forbidden, match="only this user may enter it"):
        list(ben.logs(key, {}))
    with pytest.raises(Forbidden, match="only this user may enter it"):
        ben.raw(f"/api/v1/namespaces/both/pods/{key.name}/exec", {"command": "id", "stdout": "true"})
    other = [{"name": "main", "image": "kyu.dev/another"}]
    with pytest.raises(Forbidden, match="only this user may change what it runs"):
        ben.patch(POD, key, {"spec": {"containers": other}})
    with pytest.raises(Forbidden, match="only this user may change what it runs"):
        ben.patch(POD, key, {"metadata": {"annotations": {"kyu.dev/output": ".profile"}}})
    with pytest.raises(Forbidden, match="cannot be changed"):
        ana.patch(JOB, Key("both", "shared"), {"metadata": {"annotations": {"kyu.dev/submitted-by": f"unix:{BEN}"}}})
    # To stop another's job is no way to run as its user.
    ben.patch(JOB, Key("both", "shared"), {"spec": {"suspend": True}})
    machine.kyu.client.delete(JOB, Key("both", "shared"))
    ana.close()
    ben.close()


def running_pod(machine: Machine, name: str) -> Json | None:
    pods = machine.kyu.client.list(POD, "both", labels=f"batch.kubernetes.io/job-name={name}")
    return next((pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"), None)


def test_the_owner_of_a_socket_is_checked(machine: Machine, tmp_path: Path) -> None:
    """A socket in a place that others can change could belong to anyone."""
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    words = [sys.executable, "-m", "kyu", "up", "--data", str(machine.folder / "second")]
    done = subprocess.run([*words, "--socket", str(open_folder / "s")], capture_output=True, text=True)
    assert done.returncode != 0
    assert "can be changed by other users" in done.stderr
