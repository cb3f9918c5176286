"""Validation of pod specs, rule by rule: the fields of the errors, and the warnings."""

from __future__ import annotations

import pytest

from kyu.api.meta import Json
from kyu.server.builtin.pods import pods, warnings
from kyu.server.builtin.pods.rules import validate_new_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SHELL = {"exec": {"command": ["true"]}}


def pod(**spec: object) -> Json:
    containers = [{"name": "main", "image": "busybox:1"}]
    made: Json = {"metadata": {"name": "a"}, "spec": {"containers": containers, **spec}}
    pods.default_pod(made)
    return made


def with_container(**container: object) -> Json:
    return pod(containers=[{"name": "main", "image": "busybox:1", **container}], volumes=[{"name": "v"}])


def with_volume(**source: object) -> Json:
    return pod(volumes=[{"name": "v", **source}])


def with_variable(**source: object) -> Json:
    return with_container(env=[{"name": "A", "valueFrom": source}])


def blamed(made: Json) -> list[str]:
    return [fault.field for fault in validate_new_pod(made)]


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (with_variable(fieldRef={"fieldPath": "metadata.name"}), []),
        (with_variable(fieldRef={"fieldPath": "metadata.labels"}), ["fieldRef.fieldPath"]),
        (with_variable(fieldRef={"fieldPath": "metadata.labels['no key']"}), ["fieldRef"]),
        (with_variable(fieldRef={"fieldPath": "metadata.name", "apiVersion": "v2"}), ["fieldRef.fieldPath"]),
        (with_variable(resourceFieldRef={"resource": "limits.cpu", "divisor": "1m"}), []),
        (with_variable(resourceFieldRef={"resource": "limits.cpu", "divisor": "3"}), ["resourceFieldRef.divisor"]),
        (with_variable(resourceFieldRef={"resource": "disks"}), ["resourceFieldRef.resource"]),
        (with_variable(secretKeyRef={"name": "s", "key": ""}), ["secretKeyRef.key"]),
        (with_variable(configMapKeyRef={"name": "", "key": "k"}), ["configMapKeyRef.name"]),
    ],
)
def test_references_of_environment_variables(made: Json, fields: list[str]) -> None:
    assert blamed(made) == [f"spec.containers[0].env[0].valueFrom.{field}" for field in fields]


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        ({"env": [{"name": "A", "valueFrom": {}}]}, ["env[0].valueFrom"]),
        ({"envFrom": [{}]}, ["envFrom"]),
        ({"envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]}, ["envFrom"]),
        ({"envFrom": [{"configMapRef": {"name": ""}}]}, ["envFrom[0].configMapRef.name"]),
        ({"ports": [{"containerPort": 80, "name": "a--b"}]}, ["ports[0].name"]),
        ({"ports": [{"containerPort": 80, "hostPort": 70000}]}, ["ports[0].hostPort"]),
        (
            {"ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}]},
            ["ports[1].hostPort"],
        ),
        ({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "../a"}]}, ["volumeMounts.subPath"]),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}]},
            ["volumeMounts.mountPropagation"],
        ),
        ({"volumeDevices": [{"name": "v", "devicePath": "/x"}]}, ["volumeDevices[0].name"]),
        ({"resources": {"requests": {"hugepages-2Mi": "4Mi"}}}, ["resources.limits", "resources"]),
        ({"resources": {"claims": [{"name": "x"}]}}, ["resources.claims[0]"]),
        ({"resizePolicy": [{"resourceName": "x", "restartPolicy": "NotRequired"}]}, ["resizePolicy"]),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            ["securityContext.seccompProfile.localhostProfile"],
        ),
        ({"securityContext": {"procMount": "Unmasked"}}, ["securityContext.procMount"]),
        ({"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}, ["securityContext"]),
        ({"restartPolicyRules": [{"action": "Restart"}]}, ["restartPolicy"]),
    ],
)  # fmt: skip
def test_rules_of_a_container(container: Json, fields: list[str]) -> None:
    assert blamed(with_container(**container)) == [f"spec.containers[0].{field}" for field in fields]


@pytest.mark.parametrize(
    ("probe", "fields"),
    [
        (SHELL, []),
        ({"httpGet": {"port": 80, "scheme": "FTP"}}, ["httpGet.scheme"]),
        ({"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": ""}]}}, ["httpGet.httpHeaders"]),
        ({"tcpSocket": {"port": "123"}}, ["tcpSocket.port"]),
        ({"grpc": {"port": 0}}, ["grpc.port"]),
        ({"exec": {"command": []}}, ["exec.command"]),
        ({**SHELL, "tcpSocket": {"port": 1}}, ["tcpSocket"]),
        ({**SHELL, "successThreshold": 2}, ["successThreshold"]),
        ({**SHELL, "periodSeconds": -1}, ["periodSeconds"]),
        ({**SHELL, "terminationGracePeriodSeconds": 0}, ["terminationGracePeriodSeconds"]),
    ],
)
def test_rules_of_a_probe(probe: Json, fields: list[str]) -> None:
    assert blamed(with_container(livenessProbe=dict(probe))) == [
        f"spec.containers[0].livenessProbe.{field}" for field in fields
    ]


def test_a_hook_does_not_sleep_longer_than_the_pod_is_given_to_end() -> None:
    def sleeping(seconds: int) -> Json:
        return with_container(lifecycle={"preStop": {"sleep": {"seconds": seconds}}})

    assert blamed(sleeping(30)) == []
    assert blamed(sleeping(31)) == ["spec.containers[0].lifecycle.preStop.sleep"]


def test_an_init_container_is_probed_only_if_it_stays() -> None:
    init = {"name": "i", "image": "i", "readinessProbe": dict(SHELL)}
    assert blamed(pod(initContainers=[dict(init)])) == ["spec.initContainers[0].readinessProbe"]
    assert blamed(pod(initContainers=[{**init, "restartPolicy": "Always"}])) == []


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ({"emptyDir": {"sizeLimit": "-1"}}, ["emptyDir.sizeLimit"]),
        ({"configMap": {"name": "c"}, "emptyDir": {}}, ["configMap"]),
        ({"hostPath": {"path": "/x", "type": "Pipe"}}, ["hostPath.type"]),
        ({"hostPath": {"path": "/a/../b"}}, ["hostPath.path"]),
        ({"configMap": {"name": ""}}, ["configMap.name"]),
        ({"configMap": {"name": "x", "defaultMode": 512}}, ["configMap.defaultMode"]),
        ({"configMap": {"name": "x", "items": [{"key": "k", "path": "..x"}]}}, ["configMap.items[0].path"]),
        ({"secret": {"secretName": "x", "items": [{"key": "", "path": "p"}]}}, ["secret.items[0].key"]),
        ({"downwardAPI": {"items": [{"path": "p"}]}}, ["downwardAPI"]),
        (
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.nodeName"}}]}},
            ["downwardAPI.fieldRef.fieldPath"],
        ),
        (
            {"projected": {"sources": [{"configMap": {"name": "a"}, "secret": {"name": "b"}}]}},
            ["projected.sources[0]"],
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ["projected.sources[0].serviceAccountToken"],
        ),
        ({"persistentVolumeClaim": {"claimName": ""}}, ["persistentVolumeClaim.claimName"]),
        ({"nfs": {"server": "s", "path": "p"}}, ["nfs.path"]),
        ({"csi": {"driver": "A B"}}, ["csi.driver"]),
        ({"image": {"reference": "x", "pullPolicy": "X"}}, ["image.pullPolicy"]),
        ({"ephemeral": {}}, ["ephemeral.volumeClaimTemplate"]),
    ],
)  # fmt: skip
def test_rules_of_a_volume(source: Json, fields: list[str]) -> None:
    assert blamed(with_volume(**source)) == [f"spec.volumes[0].{field}" for field in fields]


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"tolerations": [{"key": "a", "value": "b c"}]}, ["tolerations[0].operator"]),
        ({"hostAliases": [{"ip": "x", "hostnames": ["a_b"]}]}, ["hostAliases[0].ip", "hostAliases[0].hostnames[0]"]),
        ({"dnsConfig": {"nameservers": ["x"]}}, ["dnsConfig.nameservers[0]"]),
        ({"dnsConfig": {"searches": ["a b"]}}, ["dnsConfig.searches[0]"]),
        ({"dnsPolicy": "None", "dnsConfig": {}}, ["dnsConfig.nameservers"]),
        ({"hostUsers": False, "hostNetwork": True}, ["hostNetwork"]),
        ({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1}}, ["securityContext.runAsUser"]),
        ({"securityContext": {"sysctls": [{"name": "a b"}]}}, ["securityContext.sysctls[0].name"]),
        ({"securityContext": {"supplementalGroups": [1, -1]}}, ["securityContext.supplementalGroups[1]"]),
        ({"securityContext": {"fsGroupChangePolicy": "X"}}, ["securityContext.fsGroupChangePolicy"]),
        ({"resources": {"requests": {"ephemeral-storage": "1"}}}, ["resources.requests[ephemeral-storage]"]),
        ({"resourceClaims": [{"name": "c"}]}, ["resourceClaims[0]"]),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}},
            [f"affinity.nodeAffinity.{PREFERRED}[0].weight"],
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "a", "matchLabelKeys": ["x"]}]}}},
            [f"affinity.podAffinity.{REQUIRED}[0].matchLabelKeys"],
        ),
        (
            {"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
            ]},
            ["topologySpreadConstraints[0].minDomains"],
        ),
    ],
)  # fmt: skip
def test_rules_of_a_spec(spec: Json, fields: list[str]) -> None:
    assert blamed(pod(**spec)) == [f"spec.{field}" for field in fields]


def warned(made: Json, old: Json | None = None) -> list[str]:
    return [text.partition(":")[0] for text in warnings.pod_warnings(made, old)]


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (pod(), []),
        (pod(nodeSelector={"beta.kubernetes.io/os": "linux"}), ["spec.nodeSelector[beta.kubernetes.io/os]"]),
        (with_volume(gitRepo={"repository": "x"}), ["spec.volumes[0].gitRepo"]),
        (pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]), ["spec.imagePullSecrets[1].name"]),
        (
            with_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            ["spec.containers[0].env[1]"],
        ),
        (with_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]), []),
        (with_container(ports=[{"containerPort": 80}, {"containerPort": 80}]), ["spec.containers[0].ports[1]"]),
        (
            with_container(resources={"requests": {"memory": "100m"}}),
            ["spec.containers[0].resources.requests[memory]"],
        ),
    ],
)
def test_warnings_about_pods(made: Json, fields: list[str]) -> None:
    assert warned(made) == fields


def test_a_name_that_is_no_host_name_is_warned_of_once() -> None:
    made = pod()
    made["metadata"]["name"] = "a.b"
    assert warned(made) == ["metadata.name"]
    assert warned(made, made) == []


def test_templates_are_warned_of_when_they_change() -> None:
    warn = warnings.template_warnings("spec.template", is_named_after=True)
    template = pod(nodeSelector={"beta.kubernetes.io/os": "linux"})
    old = {"metadata": {"name": "a.b", "generation": 1}, "spec": {"template": template}}
    new = {**old, "metadata": {"name": "a.b", "generation": 2}}
    path = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]"
    assert [text.partition(":")[0] for text in warn(old, None)] == ["metadata.name", path]
    assert list(warn(old, old)) == []
    assert [text.partition(":")[0] for text in warn(new, old)] == [path]


@pytest.mark.parametrize(
    ("resources", "quality"),
    [({"requests": {"cpu": "1"}}, "Burstable"), ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed")],
)
def test_pod_resources_decide_the_qos_class(resources: Json, quality: str) -> None:
    assert pods.qos_class(pod(resources=resources)["spec"]) == quality


@pytest.mark.parametrize(
    ("whole", "fields"),
    [
        ({"requests": {"cpu": "2"}}, []),
        ({"requests": {"memory": "1Gi"}}, []),
        ({"requests": {"cpu": "1500m"}}, ["spec.resources.requests[cpu]"]),
        ({"limits": {"cpu": "2"}}, ["spec.containers[1].resources.limits"]),
        ({"limits": {"cpu": "1"}}, ["spec.resources.requests[cpu]", "spec.containers[1].resources.limits"]),
    ],
)
def test_a_pod_requests_no_less_than_its_containers(whole: Json, fields: list[str]) -> None:
    containers = [
        {"name": "a", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}},
        {"name": "b", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}},
    ]
    assert blamed(pod(containers=containers, resources=whole)) == fields
