"""Pods from images on `kyu up`, as their users see them: the real kubectl, and images made on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kinds.job import JOB
from tests.support.images import made_image
from tests.support.local_kyu import LocalKyu, local_kyu

POD = Kind("", "v1", "Pod", "pods")
IMAGE = "ghcr.io/grycap/cowsay:latest"
PORT = 28931


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: see kubernetes.io/docs/tasks/tools")
    with made_image(IMAGE), local_kyu(tmp_path_factory.mktemp("kyu"), "--runtime", "auto") as running:
        yield running


def kubectl(kyu: LocalKyu, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(kyu.data / "kubeconfig")}
    return subprocess.run(["kubectl", *words], env=environment, input=text, capture_output=True, text=True, timeout=60)


def start_pod(kyu: LocalKyu, name: str, script: str, image: str = IMAGE) -> None:
    main = {"name": "main", "image": image, "command": ["sh", "-c", script], "imagePullPolicy": "IfNotPresent"}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
    kyu.client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def phase(kyu: LocalKyu, name: str) -> str:
    return str((kyu.client.get(POD, Key("default", name)).get("status") or {}).get("phase"))


def test_the_cowsay_job_runs_as_it_is_written(kyu: LocalKyu) -> None:
    container = {
        "name": "dummy-job",
        "image": IMAGE,
        "command": ["/bin/sh", "-c"],
        "args": ['echo "Hello world!"\nls /home 2>&1 || true\n'],
        "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}},
    }
    tolerations = [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists", "effect": "NoSchedule"}]
    pod = {"containers": [container], "tolerations": tolerations, "restartPolicy": "Never"}
    meta = {"name": "cowsay", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "local"}}
    kyu.client.create(JOB, {"metadata": meta, "spec": {"suspend": True, "template": {"spec": pod}}})
    kyu.wait_for("cowsay", "Finished", "Succeeded")
    output = kubectl(kyu, "logs", "job/cowsay").stdout
    assert output.startswith("Hello world!\n")
    assert "No such file" in output, "the image has no such folder, whatever the machine has"


def test_kubectl_enters_a_container(kyu: LocalKyu, tmp_path: Path) -> None:
    start_pod(kyu, "entered", f"echo hello > /tmp/index.html; exec httpd -f -p {PORT} -h /tmp")
    kyu.wait("it runs", lambda: phase(kyu, "entered") == "Running")
    assert kubectl(kyu, "exec", "entered", "--", "hostname").stdout == "entered\n"
    assert kubectl(kyu, "exec", "-i", "entered", "--", "sh", "-c", "cat; exit 9", text="in\n").returncode == 9
    assert kubectl(kyu, "exec", "-i", "entered", "--", "cat", text="in\n").stdout == "in\n"
    refused = kubectl(kyu, "exec", "entered", "--", "no-such-program")
    assert refused.returncode != 0
    assert "no-such-program" in refused.stderr
    (tmp_path / "file").write_text("copied\n")
    assert kubectl(kyu, "cp", str(tmp_path / "file"), "entered:/tmp/file").returncode == 0
    assert kubectl(kyu, "cp", "entered:/tmp/file", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_text() == "copied\n"
    environment = {**os.environ, "KUBECONFIG": str(kyu.data / "kubeconfig")}
    words = ["kubectl", "port-forward", "pod/entered", f":{PORT}"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as forwarding:
        assert forwarding.stdout is not None
        address = forwarding.stdout.readline().split()[2]
        with urllib.request.urlopen(f"http://{address}/", timeout=30) as answer:
            assert answer.read() == b"hello\n"
        forwarding.terminate()


def test_a_missing_image_keeps_its_pod_waiting_with_a_word(kyu: LocalKyu) -> None:
    start_pod(kyu, "missing", "true", image="localhost:1/no-such-image:1")

    def waiting() -> Json:
        status = kyu.client.get(POD, Key("default", "missing")).get("status") or {}
        listed = status.get("containerStatuses") or [{}]
        return dict((listed[0].get("state") or {}).get("waiting") or {})

    kyu.wait("it waits", lambda: waiting().get("reason") in ("ErrImagePull", "ImagePullBackOff"))
    assert "no-such-image" in waiting()["message"]
    assert phase(kyu, "missing") == "Pending"


def test_a_command_of_the_machine_stays_one(kyu: LocalKyu) -> None:
    start_pod(kyu, "plain", "echo ${container-machine}", image="kyu.dev/host")
    kyu.wait("it ends", lambda: phase(kyu, "plain") == "Succeeded")
    assert kubectl(kyu, "logs", "plain").stdout == "machine\n"
