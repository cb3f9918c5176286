"""The nodes of one machine: itself, simulated nodes beside it, and the users with access."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu import lock
from kyu.api.config.file import SETTINGS, SETTINGS_FILE
from kyu.api.core import CONFIG_MAP, Node
from kyu.api.kueue import ClusterQueue
from kyu.api.meta import Json, Key, key_of
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kube.errors import ApiError
from kyu.runtime import user_ids
from tests.support.local_kyu import LocalKyu, local_kyu

SIMULATED = """
apiVersion: v1
kind: Node
metadata:
  name: gpu
  labels: {rack: "r{index}"}
  annotations: {kyu.dev/count: "2"}
status:
  capacity: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8}
"""


def start(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "kyu", "up", "-d", "--data", str(data), *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=90)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "nodes.yaml").write_text(SIMULATED)
    with local_kyu(folder / "data", "--nodes", str(folder / "nodes.yaml"), "--cpu", "7") as running:
        yield running


def gpu_job(name: str, gpus: str, **annotations: str) -> Json:
    container = {"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"backoffLimit": 0, "template": template}}


def job_ended(kyu: LocalKyu, name: str) -> str | None:
    listed = (kyu.client.get(JOB, Key("default", name)).get("status") or {}).get("conditions") or ()
    return next((c["type"] for c in listed if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


def test_simulated_nodes_stand_beside_this_machine(simulated: LocalKyu) -> None:
    nodes = {node["metadata"]["name"]: node for node in simulated.client.list(Node.KIND)}
    assert {"gpu-0", "gpu-1"} < set(nodes)
    assert nodes["gpu-1"]["metadata"]["labels"]["rack"] == "r1"
    this = next(node for name, node in nodes.items() if not name.startswith("gpu-"))
    assert this["status"]["allocatable"]["cpu"] == "7"


def test_simulated_nodes_are_in_the_quota_of_the_first_queue(simulated: LocalKyu) -> None:
    queue = simulated.client.get(ClusterQueue.KIND, Key("", "local"))
    (group,) = queue["spec"]["resourceGroups"]
    quotas = {one["name"]: one["nominalQuota"] for one in group["flavors"][0]["resources"]}
    assert (quotas["cpu"], quotas["nvidia.com/gpu"]) == ("199", "16")


def test_misspelt_settings_are_refused(simulated: LocalKyu) -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    for wrong, told in (("fairSharng: {}\n", "fairSharng: Forbidden: there is no such setting"), ("[", "cannot be")):
        with pytest.raises(ApiError, match=told):
            simulated.client.patch(CONFIG_MAP, SETTINGS, {"data": {SETTINGS_FILE: text + wrong}})


def test_a_pod_on_a_simulated_node_takes_its_time_and_ends_with_its_code(simulated: LocalKyu) -> None:
    simulated.client.create(JOB, gpu_job("good", "8", **{"kyu.dev/run-seconds": "0.2"}))
    simulated.client.create(JOB, gpu_job("bad", "8", **{"kyu.dev/run-seconds": "0.2", "kyu.dev/exit-code": "3"}))
    assert simulated.wait("it is over", lambda: job_ended(simulated, "good")) == "Complete"
    assert simulated.wait("it is over", lambda: job_ended(simulated, "bad")) == "Failed"
    pod = next(p for p in simulated.client.list(POD) if p["metadata"]["name"].startswith("bad"))
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert pod["spec"]["nodeName"] in ("gpu-0", "gpu-1")
    assert b"".join(simulated.client.logs(Key("default", pod["metadata"]["name"]), {})) == b""


def test_users_changes_of_nodes_survive_a_restart_and_nodes_that_left_the_file_go(simulated: LocalKyu) -> None:
    this = next(key_of(node) for node in simulated.client.list(Node.KIND) if "kyu.dev/simulated" not in labels(node))
    taint = {"key": "mine", "value": "yes", "effect": "NoSchedule"}
    simulated.client.patch(Node.KIND, this, {"spec": {"taints": [taint]}})
    simulated.kyu("down", "--data", str(simulated.data))
    simulated.client.close()
    simulated.start()
    simulated.wait("only this is left", lambda: [key_of(node) for node in simulated.client.list(Node.KIND)] == [this])
    assert simulated.client.get(Node.KIND, this)["spec"]["taints"] == [taint]


def labels(obj: Json) -> Json:
    found: Json = obj["metadata"].get("labels") or {}
    return found


def test_a_file_with_faults_is_refused_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
    done = start(tmp_path / "data", "--nodes", str(tmp_path / "nodes.yaml"))
    assert done.returncode == 1
    assert "status.capacity" in done.stderr


def test_settings_of_a_file_are_in_force_also_where_there_were_others(tmp_path: Path) -> None:
    ready = tmp_path / "settings.yaml"
    header = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    rules = "timeout: 1s, blockAdmission: true, requeuingStrategy: {backoffLimitCount: 0}"
    ready.write_text(f"{header}waitForPodsReady: {{{rules}}}\n")
    with local_kyu(tmp_path / "data") as kyu:
        kyu.submit("before", "local", "true")
        kyu.wait_for("before", "Succeeded")
    with local_kyu(tmp_path / "data", "--config", str(ready)) as kyu:
        settings = kyu.client.get(CONFIG_MAP, SETTINGS)
        assert settings["data"][SETTINGS_FILE] == ready.read_text()
        # It fits the quota and no node: in its time its pod is not ready, and it may not try again.
        kyu.make_queue("vast", "100000")
        kyu.submit("unready", "vast", "true", cpu="100000")
        kyu.wait_for("unready", "Stopped")


def test_it_starts_in_any_folder_and_prints_paths_that_hold_in_all(tmp_path: Path) -> None:
    # A module that would break Python programs, were it imported.
    (tmp_path / "queue.py").write_text("raise SystemExit('this is a program of the user')")
    words = [sys.executable, "-P", "-m", "kyu"]
    up = [*words, "up", "-d", "--bare", "--data", "data"]
    started = subprocess.run(up, capture_output=True, text=True, timeout=90, cwd=tmp_path)
    try:
        assert started.returncode == 0, started.stderr
        assert f"export KUBECONFIG={tmp_path}/data/kubeconfig" in started.stdout
    finally:
        subprocess.run([*words, "down", "--data", str(tmp_path / "data")], capture_output=True, check=False)


def test_a_quiet_log_that_is_followed_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with local_kyu(tmp_path / "data") as kyu:
        kyu.submit("quiet", "local", "echo once; exec sleep 1000")
        kyu.wait_for("quiet", "Running")
        words = [sys.executable, "-m", "kyu", "logs", "-f", "quiet"]
        environment = {**os.environ, "KUBECONFIG": str(kyu.data / "kubeconfig")}
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "once\n"
            holder = lock.holder(kyu.data / "lock")
            assert holder is not None
            os.kill(holder, signal.SIGTERM)
            kyu.wait("it has stopped", lambda: not lock.is_locked(kyu.data / "lock"))
            # It would wait for the server to come back.
            follower.kill()


# Access of other users


def test_where_pods_cannot_be_kept_apart_others_are_refused(tmp_path: Path) -> None:
    # Only their owner passes through the folders of tests, so all pods run as one user.
    beyond = start(tmp_path / "data", "--listen", "0.0.0.0")
    assert beyond.returncode == 1
    assert "--trust-users" in beyond.stderr
    with local_kyu(tmp_path / "data") as kyu:
        refused = kyu.kyu("user", "add", "ana", check=False)
        assert (refused.returncode, "--trust-users" in refused.stderr) == (2, True)


def test_with_trust_they_are_let_in(tmp_path: Path) -> None:
    with local_kyu(tmp_path / "data", "--trust-users") as kyu:
        assert "token" in kyu.kyu("user", "add", "ana").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each namespace a user of its own")
def test_as_root_each_namespace_has_a_user_of_its_own() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="kyu-isolation-"))
    folder.chmod(0o711)
    try:
        with local_kyu(folder / "data") as kyu:
            kyu.submit("who", "local", f"id -u; cat {folder}/data/kubeconfig && exit 1; touch $HOME/mine")
            kyu.wait_for("who", "Succeeded")
            pod = kyu.client.list(POD)[0]["metadata"]["name"]
            text = b"".join(kyu.client.logs(Key("default", pod), {})).decode()
            assert int(text.splitlines()[0]) > user_ids.FIRST
            assert "No such file" in text
            assert "token" in kyu.kyu("user", "add", "ana").stdout
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root serves tenants")
def test_a_private_folder_above_keeps_tenants_isolated_after_a_restart() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="kyu-isolation-"))
    folder.chmod(0o711)
    try:
        with local_kyu(folder / "data") as kyu:
            assert "token" in kyu.kyu("user", "add", "ana").stdout
        folder.chmod(0o700)
        with local_kyu(folder / "data") as kyu:
            kyu.submit("again", "local", "id -u")
            kyu.wait_for("again", "Succeeded")
            pod = next(p for p in kyu.client.list(POD) if p["metadata"]["name"].startswith("again"))
            assert int(b"".join(kyu.client.logs(key_of(pod), {}))) > user_ids.FIRST
            assert "isolation:" not in kyu.kyu("status", "--data", str(kyu.data), check=False).stdout
    finally:
        shutil.rmtree(folder)


def test_users_without_isolation_stop_all_pods(tmp_path: Path) -> None:
    """The users were added with --trust-users; without it, their pods would do what the server's user may."""
    if os.geteuid() == 0:
        pytest.skip("root isolates them")
    with local_kyu(tmp_path / "data", "--trust-users") as kyu:
        kyu.kyu("user", "add", "ana")
    with local_kyu(tmp_path / "data") as kyu:
        kyu.submit("refused", "local", "id -u")
        kyu.wait_for("refused", "Failed")
        assert "pods are refused: only root can give" in kyu.kyu("status", "--data", str(kyu.data), check=False).stdout
