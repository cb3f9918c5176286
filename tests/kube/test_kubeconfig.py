"""Kubeconfigs: tokens, files, plugins, service accounts, and the choice of a server."""

from __future__ import annotations

import argparse
import base64
import stat
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.cli import target
from kyu.cli.main import BadInput, Failed
from kyu.kube import kubeconfig
from kyu.lock import Lock


def written(folder: Path, user: Json, cluster: Json | None = None, name: str = "config") -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://example.test:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.write_bytes(msgspec.json.encode(document))
    return path


def test_a_token_is_sent_and_never_shown(tmp_path: Path) -> None:
    credentials = kubeconfig.load(written(tmp_path, {"token": "t0ken"}))
    assert (credentials.server, credentials.namespace) == ("https://example.test:6443", "team")
    assert credentials.headers() == {"authorization": "Bearer t0ken"}
    assert "t0ken" not in repr(credentials)


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    credentials = kubeconfig.load(written(tmp_path, {"tokenFile": "token"}))
    for text in ("one", "two"):
        (tmp_path / "token").write_text(text + "\n")
        assert credentials.headers() == {"authorization": f"Bearer {text}"}


def test_data_and_files_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"from a file")
    by_file = kubeconfig.load(written(tmp_path, {}, {"certificate-authority": "ca.crt"}))
    assert by_file.authority == b"from a file"
    data = base64.b64encode(b"inline").decode()
    assert kubeconfig.load(written(tmp_path, {}, {"certificate-authority-data": data})).authority == b"inline"


def plugin(folder: Path, output: str, code: int = 0) -> Json:
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\necho x >> {folder}/calls\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}}


def test_a_plugin_is_asked_once_while_its_token_lasts(tmp_path: Path) -> None:
    status = '{"status": {"token": "fresh", "expirationTimestamp": "2999-01-01T00:00:00Z"}}'
    credentials = kubeconfig.load(written(tmp_path, plugin(tmp_path, status)))
    for _ in range(2):
        assert credentials.headers() == {"authorization": "Bearer fresh"}
    assert (tmp_path / "calls").read_text() == "x\n"


def test_an_ended_token_is_asked_for_again(tmp_path: Path) -> None:
    status = '{"status": {"token": "stale", "expirationTimestamp": "2001-01-01T00:00:00Z"}}'
    credentials = kubeconfig.load(written(tmp_path, plugin(tmp_path, status)))
    credentials.headers()
    credentials.headers()
    assert (tmp_path / "calls").read_text() == "x\nx\n"


@pytest.mark.parametrize(("output", "code", "message"), [("{}", 0, "no ExecCredential"), ("{}", 3, "exit code 3")])
def test_a_plugin_that_fails_says_so(tmp_path: Path, output: str, code: int, message: str) -> None:
    credentials = kubeconfig.load(written(tmp_path, plugin(tmp_path, output, code)))
    with pytest.raises(kubeconfig.BadKubeconfig, match=message):
        credentials.headers()


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "line"), ("current-context: x", "contexts has no entry 'x'"), ("- 1", "not a kubeconfig")],
)
def test_an_unusable_kubeconfig_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(kubeconfig.BadKubeconfig, match=message):
        kubeconfig.load(path)


def test_passwords_are_refused(tmp_path: Path) -> None:
    with pytest.raises(kubeconfig.BadKubeconfig, match="not supported"):
        kubeconfig.load(written(tmp_path, {"username": "u", "password": "p"}))


def test_in_a_pod_the_mounted_account_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "namespace").write_text("team\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    inside = kubeconfig.in_cluster(tmp_path, environment)
    assert inside is not None
    assert (inside.server, inside.namespace) == ("https://[fd00::1]:443", "team")
    assert kubeconfig.in_cluster(tmp_path, {}) is None


def test_a_rendered_kubeconfig_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(kubeconfig.render("https://127.0.0.1:1", b"ca", "ana", "t", "team"))
    credentials = kubeconfig.load(path)
    assert (credentials.user, credentials.token, credentials.namespace) == ("ana", "t", "team")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "KYU_DATA", "XDG_DATA_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"kubeconfig": None, "data": None, "context": "", **given})


def test_the_order_in_which_a_target_is_looked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="no server found"):
        target.choose(options())
    (home / ".kube").mkdir()
    written(home / ".kube", {"token": "default"})
    assert target.choose(options()).credentials.token == "default"
    local = target.default_data()
    local.mkdir(parents=True)
    written(local, {"token": "local"}, name="kubeconfig")
    assert target.choose(options()).credentials.token == "default"
    lock = Lock(local / "lock")
    assert target.choose(options()).credentials.token == "local"
    monkeypatch.setenv("KUBECONFIG", f"{home}/missing:{written(home, {'token': 'environment'}, name='e')}")
    assert target.choose(options()).credentials.token == "environment"
    assert target.choose(options(data=local)).credentials.token == "local"
    named = written(home, {"token": "named"}, name="n")
    assert target.choose(options(data=local, kubeconfig=named)).credentials.token == "named"
    lock.release()
    with pytest.raises(Failed, match="is not running"):
        target.choose(options(data=local))


def test_a_named_context_is_not_the_local_server(home: Path) -> None:
    local = target.default_data()
    local.mkdir(parents=True)
    written(local, {"token": "local"}, name="kubeconfig")
    lock = Lock(local / "lock")
    with pytest.raises(BadInput, match="--context c: there is no kubeconfig"):
        target.choose(options(context="c"))
    with pytest.raises(BadInput, match="--context c: --data names a local server"):
        target.choose(options(context="c", data=local))
    (home / ".kube").mkdir()
    written(home / ".kube", {"token": "default"})
    assert target.choose(options(context="c")).credentials.token == "default"
    lock.release()


def test_a_kubeconfig_that_is_missing_is_told_once(home: Path) -> None:
    with pytest.raises(BadInput) as refused:
        target.choose(options(kubeconfig=home / "nowhere"))
    assert str(refused.value) == f"{home}/nowhere: No such file or directory"
