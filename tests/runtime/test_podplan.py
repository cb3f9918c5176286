"""The plan that a pod's manifest becomes for its supervisor: environment, words, volumes; and refusals."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.runtime import environment, podplan, volumes
from kyu.runtime.environment import NotYet, PodFacts, PodRefused
from kyu.runtime.identity.service_account import FOLDER, HOST_IMAGE, VOLUME, ServerAccess, ServerAddress
from kyu.runtime.podplan import Place, Plan, RuntimeOptions
from kyu.runtime.sandbox.mounts import Mount

PLACE = Place(folder="/pods/u1", notices="/notices", boot_id="boot")


class Objects:
    """Two objects to read from."""

    def config_map(self, namespace: str, name: str) -> Json | None:
        found = (namespace, name) == ("team", "settings")
        return {"data": {"color": "blue", "size": "3"}, "binaryData": {"raw": "AAE="}} if found else None

    def secret(self, namespace: str, name: str) -> Json | None:
        found = (namespace, name) == ("team", "token")
        return {"data": {"key": base64.b64encode(b"s3cret").decode()}} if found else None


def pod(container: Json | None = None, **spec: Any) -> Json:
    main = {"name": "main", "image": "tool:1", "command": ["tool"], **(container or {})}
    meta = {"name": "p", "namespace": "team", "uid": "u1", "labels": {"app": "web"}, "annotations": {"note": 'a "b"'}}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [main], **spec}}


def plan(pod: Json, place: Place = PLACE, options: RuntimeOptions | None = None) -> podplan.Outcome:
    facts = PodFacts(pod, "node-1", {"cpu": "4", "memory": "8Gi"})
    return podplan.plan_pod(facts, Objects(), options or RuntimeOptions(), place)


def container_of(outcome: podplan.Outcome) -> Json:
    assert isinstance(outcome, Plan), outcome
    container: Json = outcome.document["containers"][-1]
    return container


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(NAME)", "x"),
        ("a-$(NAME)-$(OTHER)", "a-x-y"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(NAME)", "$(NAME)"),
        ("$NAME $", "$NAME $"),
        ("$(NAME", "$(NAME"),
        ("$$$(NAME)", "$x"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert environment.expand(text, {"NAME": "x", "OTHER": "y"}) == expanded


class Hostile(Objects):
    """A ConfigMap of another server, whose key is a path."""

    def config_map(self, namespace: str, name: str) -> Json | None:
        return {"data": {"../../plan.json": "{}"}}


def test_names_that_become_files_stay_in_the_pods_folder() -> None:
    facts = PodFacts(pod(volumes=[{"name": "v", "configMap": {"name": "c"}}]), "node-1", {})
    outcome = podplan.plan_pod(facts, Hostile(), RuntimeOptions(), PLACE)
    assert isinstance(outcome, PodRefused)
    assert outcome.reason == "VolumeRefused"
    for wanted in (pod({"name": "../main"}), pod(volumes=[{"name": "..", "emptyDir": {}}])):
        refused = plan(wanted)
        assert isinstance(refused, PodRefused)
        assert refused.message.endswith("is not a valid name")


def test_a_relative_working_folder_is_refused() -> None:
    assert isinstance(plan(pod({"workingDir": "state"})), PodRefused)


def test_command_and_args_see_the_declared_environment() -> None:
    container = {"command": ["echo", "$(A)"], "args": ["$(B)"], "env": [{"name": "A", "value": "1"}]}
    container["env"].append({"name": "B", "value": "$(A)2"})  # type: ignore[attr-defined]
    assert container_of(plan(pod(container)))["argv"] == ["echo", "1", "12"]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "web"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "node-1"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.1"),
        ({"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "8192"),
        ({"configMapKeyRef": {"name": "settings", "key": "color"}}, "blue"),
        ({"secretKeyRef": {"name": "token", "key": "key"}}, "s3cret"),
    ],
)
def test_values_come_from_their_sources(source: Json, value: str) -> None:
    container = {"env": [{"name": "X", "valueFrom": source}], "resources": {"requests": {"cpu": "1500m"}}}
    assert container_of(plan(pod(container)))["env"]["X"] == value


def test_env_from_comes_first_and_may_have_a_prefix() -> None:
    sources = [{"configMapRef": {"name": "settings"}}, {"prefix": "S_", "secretRef": {"name": "token"}}]
    container = {"envFrom": sources, "env": [{"name": "size", "value": "9"}]}
    env = container_of(plan(pod(container)))["env"]
    assert (env["color"], env["size"], env["S_key"]) == ("blue", "9", "s3cret")


def test_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_KYU", "1")
    env = container_of(plan(pod(hostname="h")))["env"]
    expected = {"PATH", "HOME", "TMPDIR", "LANG", "HOSTNAME", "PYTHONUNBUFFERED"}
    assert set(env) == expected | {"CUDA_VISIBLE_DEVICES", "KYU_TERMINATION_LOG", "KYU_POD_UID"}
    assert env["HOSTNAME"] == "h"


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "absent", "key": "a"}},
        {"configMapKeyRef": {"name": "settings", "key": "absent"}},
        {"secretKeyRef": {"name": "absent", "key": "a"}},
    ],
)
def test_a_missing_source_is_waited_for_unless_it_is_optional(source: Json) -> None:
    outcome = plan(pod({"env": [{"name": "X", "valueFrom": source}]}))
    assert isinstance(outcome, NotYet)
    assert "absent" in outcome.message
    kind, ref = next(iter(source.items()))
    optional = {kind: {**ref, "optional": True}}
    assert "X" not in container_of(plan(pod({"env": [{"name": "X", "valueFrom": optional}]})))["env"]


def test_volumes_are_files_and_their_mounts_are_read_only_but_for_empty_dir() -> None:
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": "settings", "items": [{"key": "color", "path": "a/b", "mode": 0o400}]}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"secret": {"name": "token"}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            },
        },
    ]
    mounts = [
        {"name": "work", "mountPath": "/work"},
        {"name": "conf", "mountPath": "/etc/color", "subPath": "a/b"},
        {"name": "all", "mountPath": "/all"},
    ]
    outcome = plan(pod({"volumeMounts": mounts}, volumes=volumes))
    assert isinstance(outcome, Plan)
    work, conf, everything = outcome.volumes
    assert work.writable
    assert [(f.path, f.content, f.mode) for f in conf.files] == [("a/b", b"blue", 0o400)]
    assert [(f.path, f.content) for f in everything.files] == [("key", b"s3cret"), ("labels", b'app="web"')]
    assert mounts_of(outcome) == [
        Mount("/pods/u1/volumes/work", "/work"),
        Mount("/pods/u1/volumes/conf", "/etc/color", read_only=True, inner="a/b"),
        Mount("/pods/u1/volumes/all", "/all", read_only=True),
    ]
    assert container_of(outcome)["env"]["KYU_VOLUME_WORK"] == "/pods/u1/volumes/work"


def mounts_of(outcome: podplan.Outcome) -> list[Mount]:
    """Return the mounts that the manifest asks for."""
    return [mount for given in container_of(outcome)["mounts"] if not (mount := Mount(**given)).is_optional]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["/dev/termination-log"]),
        ({"terminationMessagePath": "/tmp/last-words"}, ["/tmp/last-words"]),
        ({"image": HOST_IMAGE}, []),
    ],
)
def test_the_file_for_the_last_message(changes: Json, expected: list[str]) -> None:
    planned = container_of(plan(pod(changes)))
    assert [mount["target"] for mount in planned["mounts"]] == expected
    assert planned["messageIsMounted"] == bool(expected)


@pytest.mark.parametrize(("given", "mode"), [(None, 0o400), (0o644, 0o400), (0o777, 0o500), (0o400, 0o400)])
def test_only_the_pods_user_reads_a_secret(tmp_path: Path, given: int | None, mode: int) -> None:
    outcome = plan(pod(volumes=[{"name": "s", "secret": {"secretName": "token", "defaultMode": given}}]))
    assert isinstance(outcome, Plan)
    volumes.write(outcome.volumes, str(tmp_path), None)
    assert stat.S_IMODE((tmp_path / "s" / "key").stat().st_mode) == mode


REFUSED: list[tuple[Json, str]] = [
    (pod({"command": []}), 'the command of the image "tool:1" is not known'),
    (
        pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "persistentVolumeClaim volumes are not",
    ),
    (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "`kyu up --host-paths` permits"),
    (pod(volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]), "serviceAccountToken"),
    (pod({"volumeMounts": [{"name": "absent", "mountPath": "/a"}]}), "there is no such volume"),
    (
        pod({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../x"}]}, volumes=[{"name": "v"}]),
        "leaves its volume",
    ),
    (pod({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.bogus"}}}]}), "spec.bogus"),
    (
        pod({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "x\0y"}]}, volumes=[{"name": "v"}]),
        "it has a NUL character",
    ),
    (
        pod({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "d/" * 5000}]}, volumes=[{"name": "v"}]),
        "it is longer than 4095 bytes",
    ),
    (pod({"volumeMounts": [{"name": "v", "mountPath": "/" + "n" * 300}]}, volumes=[{"name": "v"}]), "one of its names"),
    (pod({"workingDir": "/\ud800"}), "it is no text"),
    (pod({"terminationMessagePath": "/x\0"}), "it has a NUL character"),
]


@pytest.mark.parametrize(("refused", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(refused: Json, words: str) -> None:
    outcome = plan(refused)
    assert isinstance(outcome, PodRefused)
    assert words in outcome.message


def test_host_paths_are_mounted_where_they_are_permitted() -> None:
    def planned(**host_path: str) -> podplan.Outcome:
        volumes = [{"name": "v", "hostPath": host_path}]
        mounts = [{"name": "v", "mountPath": "/h"}, {"name": "v", "mountPath": "/i", "subPath": "s", "readOnly": True}]
        return plan(pod({"volumeMounts": mounts}, volumes=volumes), options=RuntimeOptions(host_paths=("/x",)))

    assert mounts_of(planned(path="/x")) == [
        Mount("/x", "/h", allowed=("/x",)),
        Mount("/x", "/i", read_only=True, inner="s", allowed=("/x",)),
    ]
    for refused, words in (
        (planned(path="/x", type="DirectoryOrCreate"), "only Directory, File"),
        (planned(path="x"), "does not begin with a slash"),
        (planned(path="/y"), "is not permitted here"),
        (planned(path="/x/../y"), "is not permitted here"),
        (planned(path="/xy"), "is not permitted here"),
    ):
        assert isinstance(refused, PodRefused)
        assert words in refused.message


def test_without_mounts_the_pod_is_refused_or_finds_its_volumes_by_name() -> None:
    place = Place("/pods/u1", "/notices", "boot", mounts_refused="Operation not permitted")
    wanted = pod({"volumeMounts": [{"name": "v", "mountPath": "/data"}]}, volumes=[{"name": "v", "emptyDir": {}}])
    outcome = plan(wanted, place)
    assert isinstance(outcome, PodRefused)
    assert "mountPath /data cannot be provided" in outcome.message
    assert "Operation not permitted" in outcome.message
    wanted["metadata"]["annotations"][podplan.VOLUME_MOUNTS_ANNOTATION] = "env"
    assert container_of(plan(wanted, place))["mounts"] == []


@pytest.mark.parametrize(
    ("image", "argv"),
    [
        ("gcr.io/k8s-staging-perf-tests/sleep:v0.1.0", ["sleep", "30s"]),
        ("registry.example:5000/perf-tests/sleep", ["sleep", "30s"]),
        ("pause:3.9", ["sleep", "infinity", "30s"]),
    ],
)
def test_images_that_are_one_well_known_program_need_no_command(image: str, argv: list[str]) -> None:
    assert container_of(plan(pod({"image": image, "command": [], "args": ["30s"]})))["argv"] == argv


def test_roles_and_restart_policies() -> None:
    first = [
        {"name": "i", "command": ["true"]},
        {"name": "s", "command": ["true"], "restartPolicy": "Always"},
    ]
    outcome = plan(pod(initContainers=first, restartPolicy="Always"))
    assert isinstance(outcome, Plan)
    found = [(c["name"], c["role"], c["restartPolicy"]) for c in outcome.document["containers"]]
    assert found == [("i", "init", "OnFailure"), ("s", "sidecar", "Always"), ("main", "main", "Always")]


def test_limits_become_control_group_files() -> None:
    container = {"resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}
    assert container_of(plan(pod(container)))["limits"] == {
        "cpu.weight": "20",
        "cpu.max": "50000 100000",
        "memory.max": "67108864",
        "memory.swap.max": "0",
    }


def test_wishes_without_effect_are_named() -> None:
    wanted = pod({"livenessProbe": {"exec": {}}, "securityContext": {"runAsUser": 0}})
    outcome = plan(wanted)
    assert isinstance(outcome, Plan)
    assert outcome.no_effect == ("main: livenessProbe", "main: securityContext.runAsUser")
    context = {"privileged": False, "readOnlyRootFilesystem": True, "capabilities": {"add": ["SYS_ADMIN"]}}
    outcome = plan(pod({"securityContext": context}, hostPID=True, securityContext={"fsGroup": 0}))
    assert isinstance(outcome, Plan)
    wanted = "hostPID, securityContext.fsGroup, main: securityContext.readOnlyRootFilesystem"
    assert ", ".join(outcome.no_effect) == f"{wanted}, main: securityContext.capabilities.add"


@pytest.mark.parametrize(("given", "seconds"), [(None, 30), (5, 5), (2**63 - 1, 600)])
def test_a_grace_period_has_a_bound(given: int | None, seconds: float) -> None:
    outcome = plan(pod(terminationGracePeriodSeconds=given))
    assert isinstance(outcome, Plan)
    assert outcome.document["graceSeconds"] == seconds
    assert bool(outcome.no_effect) is (given == 2**63 - 1)


def test_the_objects_that_a_pod_reads() -> None:
    container = {
        "envFrom": [{"secretRef": {"name": "s1"}}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
        ],
    }
    volumes = [
        {"name": "a", "secret": {"secretName": "s2"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "c1"}}, {"configMap": {"name": "c2"}}]}},
        {"name": "c", "emptyDir": {}},
    ]
    found = environment.references(pod(container, volumes=volumes))
    assert found == [("Secret", "s1"), ("ConfigMap", "c1"), ("Secret", "s2"), ("ConfigMap", "c2")]


AUTHORITY = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "PEM"}}


class WithAuthority(Objects):
    """The objects above, and the authority of the server."""

    def config_map(self, namespace: str, name: str) -> Json | None:
        return AUTHORITY if name == "kube-root-ca.crt" else super().config_map(namespace, name)


SERVER = ServerAddress("127.0.0.1", 6443)


def access(account: Json | None, *, server: ServerAddress | None = SERVER) -> ServerAccess:
    return ServerAccess(server, account, {("", 3607): "signed", ("vault", 600): "for the vault"})


def plan_with_account(wanted: Json, given: ServerAccess, place: Place = PLACE) -> Plan:
    outcome = podplan.plan_pod(PodFacts(wanted, "node-1", {}, given), WithAuthority(), RuntimeOptions(), place)
    assert isinstance(outcome, Plan), outcome
    return outcome


def test_a_pod_gets_the_token_of_its_account_the_authority_and_its_namespace() -> None:
    planned = plan_with_account(pod(serviceAccountName="default"), access({}))
    container = container_of(planned)
    assert [(mount["target"], mount["read_only"]) for mount in container["mounts"]][:1] == [(FOLDER, True)]
    (volume,) = planned.volumes
    assert {(file.path, file.content, file.mode) for file in volume.files} == {
        ("token", b"signed", 0o444),
        ("ca.crt", b"PEM", 0o444),
        ("namespace", b"team", 0o444),
    }
    assert container["env"]["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
    assert container["env"]["KUBERNETES_SERVICE_PORT"] == "6443"
    assert planned.document["tokens"] == [{"volume": VOLUME, "path": "token", "audience": "", "seconds": 3607}]
    assert "volumes" not in planned.document["pod"]["spec"]


@pytest.mark.parametrize(
    ("container", "spec", "account", "is_mounted"),
    [
        ({}, {"serviceAccountName": "default"}, {}, True),
        ({}, {"serviceAccountName": "default", "automountServiceAccountToken": False}, {}, False),
        ({}, {"serviceAccountName": "default"}, {"automountServiceAccountToken": False}, False),
        (
            {},
            {"serviceAccountName": "default", "automountServiceAccountToken": True},
            {"automountServiceAccountToken": False},
            True,
        ),
        ({}, {"serviceAccountName": "missing"}, None, False),
        ({"image": HOST_IMAGE}, {"serviceAccountName": "default"}, {}, False),
        ({"image": HOST_IMAGE}, {"serviceAccountName": "robot"}, {}, True),
        ({"image": HOST_IMAGE}, {"serviceAccountName": "default", "automountServiceAccountToken": True}, {}, True),
        ({"volumeMounts": [{"name": "own", "mountPath": FOLDER}]}, {"volumes": [{"name": "own"}]}, {}, False),
    ],
)
def test_the_account_is_mounted_where_it_is_wanted(
    container: Json, spec: Json, account: Json | None, *, is_mounted: bool
) -> None:
    mounts = container_of(plan_with_account(pod(container, **spec), access(account)))["mounts"]
    assert any(mount["source"].endswith(VOLUME) for mount in mounts) is is_mounted


def test_pods_without_a_way_to_the_server_have_no_token_of_it() -> None:
    container = container_of(plan_with_account(pod(serviceAccountName="default"), access({}, server=None)))
    assert "KUBERNETES_SERVICE_HOST" not in container["env"]
    assert FOLDER not in [mount["target"] for mount in container["mounts"]]
    no_mounts = Place(folder="/pods/u1", notices="/notices", boot_id="boot", mounts_refused="not permitted")
    assert container_of(plan_with_account(pod(serviceAccountName="default"), access({}), no_mounts))["mounts"] == []


def test_a_projected_token_is_for_the_audience_that_it_names() -> None:
    source = {"serviceAccountToken": {"path": "deep/vault", "audience": "vault", "expirationSeconds": 600}}
    spec = {"serviceAccountName": "robot", "automountServiceAccountToken": False}
    wanted = pod(volumes=[{"name": "v", "projected": {"sources": [source]}}], **spec)
    (volume,) = plan_with_account(wanted, access({})).volumes
    assert [(file.path, file.content) for file in volume.files] == [("deep/vault", b"for the vault")]
    outcome = podplan.plan_pod(PodFacts(wanted, "node-1", {}, ServerAccess()), Objects(), RuntimeOptions(), PLACE)
    assert outcome == NotYet("", 'volume "v": serviceaccount "robot" not found')
