"""Built-in kinds: decoding, defaults, and validation of creates and updates."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.server.builtin import table
from kyu.server.builtin.kind import BuiltinKind
from kyu.server.builtin.pods import pods
from kyu.server.errors import StatusError
from kyu.server.json_values import clone
from kyu.server.schema.typed import TypeMismatch
from kyu.server.validation import metadata as builtin_metadata


def row(group: str, kind: str) -> BuiltinKind:
    return next(each for each in table.KINDS if (each.kind.group, each.kind.kind) == (group, kind))


def read(group: str, kind: str, obj: Json) -> Json:
    return row(group, kind).read(clone(obj))[0]


def created(group: str, kind: str, obj: Json) -> Json:
    """Return the object as it would be stored, without admission."""
    stored = read(group, kind, obj)
    stored["metadata"].setdefault("uid", "u-1")
    if row(group, kind).kind.namespaced:
        stored["metadata"].setdefault("namespace", "default")
    row(group, kind).default(stored)
    row(group, kind).prepare_create(stored)
    return stored


def faults(group: str, kind: str, obj: Json) -> list[str]:
    return [str(error) for error in row(group, kind).validate_create(created(group, kind, obj))]


def update_faults(group: str, kind: str, old: Json, new: Json) -> list[str]:
    changed = read(group, kind, new)
    changed["metadata"] = {**old["metadata"], **changed["metadata"]}
    row(group, kind).default(changed)
    row(group, kind).prepare_update(changed, old, "")
    return [error.field for error in row(group, kind).validate_update(changed, old, "")]


def pod(**spec: Any) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img:1"}], **spec}}


def job(template: Json | None = None, **spec: Any) -> Json:
    inner = {"containers": [{"name": "c", "image": "img:1"}], "restartPolicy": "Never"}
    return {"metadata": {"name": "j"}, "spec": {"template": template or {"spec": inner}, **spec}}


class Cluster:
    """A ClusterLookup with the priority classes of a test."""

    def __init__(self, *classes: Json) -> None:
        self._classes = {each["metadata"]["name"]: each for each in classes}

    def priority_class(self, name: str) -> Json | None:
        return self._classes.get(name)

    def has_service_account(self, namespace: str, name: str) -> bool:
        return (namespace, name) == ("staffed", "default")

    def default_priority_class(self) -> Json | None:
        return next((each for each in self._classes.values() if each.get("globalDefault")), None)


# Decoding


def test_unknown_fields_are_named_with_their_path_and_dropped() -> None:
    body = pod(foo=1)
    body["spec"]["containers"][0]["imagee"] = "x"
    decoded, unknown = row("", "Pod").read(body)
    assert unknown == ["spec.containers[0].imagee", "spec.foo"]
    assert "foo" not in decoded["spec"]


def test_empty_values_disappear_or_appear_as_the_type_has_it() -> None:
    decoded = read("", "ConfigMap", {"metadata": {"name": "a", "labels": {}, "annotations": None}, "data": {"n": None}})
    assert decoded == {"metadata": {"name": "a"}, "data": {"n": ""}}
    event = read("", "Event", {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "count": 0})
    assert event["eventTime"] is None
    assert event["reportingComponent"] == ""
    assert "count" not in event


def test_quantities_and_times_take_their_canonical_form() -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1024Mi"}, "limits": {"cpu": 2}}
    decoded = read("", "Pod", pod(containers=[{"name": "c", "image": "i", "resources": resources}]))
    assert decoded["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1500m", "memory": "1Gi"},
        "limits": {"cpu": "2"},
    }
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T01:00:00.000000+01:00"}}
    assert read("coordination.k8s.io", "Lease", lease)["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("ConfigMap", {"data": {"k": 5}}),
        ("ConfigMap", {"data": ["k"]}),
        ("ConfigMap", {"metadata": "x"}),
        ("Secret", {"data": {"k": "!!!"}}),
        ("Secret", {"data": {"k": "ü"}}),
        ("Pod", {"spec": {"priority": 2**40}}),
        ("Pod", {"spec": {"hostNetwork": "yes"}}),
        ("Pod", {"spec": {"overhead": {"cpu": "many"}}}),
        ("Pod", {"metadata": {"creationTimestamp": "noon"}}),
    ],
)
def test_a_value_of_the_wrong_type_makes_a_body_unreadable(kind: str, body: Json) -> None:
    with pytest.raises(TypeMismatch):
        read("", kind, body)


def test_every_served_kind_can_be_read_filled_in_and_prepared() -> None:
    for each in table.KINDS:
        obj, unknown = each.read({"metadata": {"name": "x", "uid": "u"}})
        each.default(obj)
        each.prepare_create(obj)
        assert unknown == []
        assert obj["metadata"].get("generation") == (1 if each.generation else None), each.kind


# Pods


@pytest.mark.parametrize(
    ("group", "kind", "status"),
    [
        ("apps", "Deployment", {}),
        ("batch", "CronJob", {}),
        ("", "ResourceQuota", {}),
        ("apps", "StatefulSet", {"availableReplicas": 0, "replicas": 0}),
        ("", "ConfigMap", None),
    ],
)
def test_a_new_object_has_the_empty_status_of_its_kind(group: str, kind: str, status: Json | None) -> None:
    """An empty status is shown, and the status of the request is ignored."""
    body: Json = {"metadata": {"name": "x"}}
    if status is not None:
        body["status"] = {"replicas": 7}
    assert created(group, kind, body).get("status") == status


def test_the_defaults_of_a_pod() -> None:
    stored = created("", "Pod", pod())
    assert stored["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = stored["spec"]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == (
        "Always", "ClusterFirst", "default-scheduler", 30,
    )  # fmt: skip
    assert spec["containers"][0]["terminationMessagePath"] == "/dev/termination-log"


def test_limits_fill_requests_and_decide_the_quality_of_service() -> None:
    def stored(resources: Json) -> Json:
        return created("", "Pod", pod(containers=[{"name": "c", "image": "i", "resources": resources}]))

    both = stored({"limits": {"cpu": "1", "memory": "1Gi"}})
    assert both["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert both["status"]["qosClass"] == "Guaranteed"
    assert stored({"requests": {"cpu": "1"}})["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("h:80/a", "Always"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_when_an_image_is_pulled(image: str, policy: str) -> None:
    assert pods.pull_policy(image) == policy


def test_volumes_and_probes_are_filled_in() -> None:
    probe = {"httpGet": {"port": 80}}
    volumes = [{"name": "a"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/x"}}]
    spec = created("", "Pod", pod(containers=[{"name": "c", "image": "i", "livenessProbe": probe}], volumes=volumes))[
        "spec"
    ]
    assert [sorted(volume) for volume in spec["volumes"]] == [
        ["emptyDir", "name"],
        ["name", "secret"],
        ["hostPath", "name"],
    ]
    assert spec["volumes"][1]["secret"]["defaultMode"] == 420
    assert spec["containers"][0]["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
    }  # fmt: skip


def test_gates_hold_a_pod_back() -> None:
    stored = created("", "Pod", pod(schedulingGates=[{"name": "x/y"}]))
    (condition,) = stored["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


def test_admission_gives_a_pod_its_priority_and_tolerations() -> None:
    high = {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}
    stored = created("", "Pod", pod(priorityClassName="high", tolerations=[{"key": "node.kubernetes.io/not-ready"}]))
    pods.admit_pod(stored, Cluster(high))
    assert (stored["spec"]["priority"], stored["spec"]["preemptionPolicy"]) == (7, "Never")
    keys = [each["key"] for each in stored["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def test_a_pod_runs_as_the_default_account_of_its_namespace_if_there_is_one() -> None:
    for namespace, account in (("staffed", "default"), ("empty", None)):
        stored = created("", "Pod", pod())
        stored["metadata"]["namespace"] = namespace
        pods.admit_pod(stored, Cluster())
        assert stored["spec"].get("serviceAccountName") == account


def test_a_default_class_counts_for_pods_that_name_none() -> None:
    stored = created("", "Pod", pod())
    pods.admit_pod(stored, Cluster({"metadata": {"name": "usual"}, "value": 3, "globalDefault": True}))
    assert (stored["spec"]["priorityClassName"], stored["spec"]["priority"]) == ("usual", 3)


@pytest.mark.parametrize("spec", [{"priorityClassName": "none"}, {"priority": 5}])
def test_a_priority_that_no_class_gives_is_forbidden(spec: Json) -> None:
    with pytest.raises(StatusError) as caught:
        pods.admit_pod(created("", "Pod", pod(**spec)), Cluster())
    assert caught.value.code == 403


def container(**more: Any) -> Json:
    return {"containers": [{"name": "c", "image": "i", **more}]}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "containers", "Required value"),
        (container(image=""), "containers[0].image", "Required value"),
        (container(name="c_c"), "containers[0].name", 'Invalid value: "c_c": a lowercase RFC 1123 label must'),
        ({"containers": [{"name": "c", "image": "i"}] * 2}, "containers[1].name", 'Duplicate value: "c"'),
        (
            {"restartPolicy": "Maybe"},
            "restartPolicy",
            'Unsupported value: "Maybe": supported values: "Always", "OnFailure"',
        ),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds", "Invalid value: 0: must be between 1 and 2147483647"),
        (
            container(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
            "containers[0].volumeMounts[0].name",
            'Not found: "v"',
        ),
        (
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"tolerations": [{"operator": "Equal"}]},
            "tolerations[0].operator",
            'Invalid value: "Equal": operator must be Exists when `key` is empty',
        ),
    ],
)
def test_validation_of_pods(spec: Json, field: str, message: str) -> None:
    (fault,) = faults("", "Pod", pod(**spec))
    assert fault.startswith(f"spec.{field}: {message}")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"restartPolicy": "Never"}, "spec"),
        ({"nodeName": "n"}, "spec"),
        ({"containers": [{"name": "c", "image": "img:2"}]}, None),
        ({"activeDeadlineSeconds": 10}, None),
        ({"activeDeadlineSeconds": 90}, "spec.activeDeadlineSeconds"),
        ({"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "new", "operator": "Exists"}]}, None),
        ({"tolerations": []}, "spec.tolerations"),
        ({"schedulingGates": [{"name": "x/other"}]}, "spec.schedulingGates[0].name"),
    ],
)
def test_mutable_fields_of_a_pod(change: Json, field: str | None) -> None:
    base = {"activeDeadlineSeconds": 60, "tolerations": [{"key": "k", "operator": "Exists"}]}
    old = created("", "Pod", pod(**base))
    found = update_faults("", "Pod", old, pod(**{**base, **change}))
    assert found == ([] if field is None else [field])


def test_a_gated_pod_may_still_be_steered() -> None:
    gate = [{"name": "x/y"}]
    old = created("", "Pod", pod(schedulingGates=gate, nodeSelector={"a": "1"}))
    assert update_faults("", "Pod", old, pod(schedulingGates=gate, nodeSelector={"a": "1", "b": "2"})) == []
    assert update_faults("", "Pod", old, pod(nodeSelector={"a": "2"})) == ["spec.nodeSelector"]


# Jobs


def test_the_defaults_of_a_job() -> None:
    stored = created("batch", "Job", job())
    spec = stored["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["completionMode"]) == (
        1,
        1,
        6,
        "NonIndexed",
    )
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/controller-uid"] == "u-1"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert stored["metadata"]["labels"] == labels
    assert stored["status"] == {}
    assert "enableServiceLinks" not in spec["template"]["spec"]


def test_completions_stay_open_for_a_work_queue() -> None:
    assert "completions" not in created("batch", "Job", job(parallelism=3))["spec"]


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"parallelism": -1, "completions": -2}, ["spec.parallelism", "spec.completions"]),
        ({"backoffLimitPerIndex": 1}, ["spec.backoffLimitPerIndex"]),
        ({"selector": {"matchLabels": {"a": "b"}}}, ["spec.selector", "spec.template.metadata.labels"]),
        ({"completionMode": "Odd"}, ["spec.completionMode"]),
    ],
)
def test_validation_of_jobs(spec: Json, fields: list[str]) -> None:
    stored = created("batch", "Job", job(**spec))
    assert [error.field for error in row("batch", "Job").validate_create(stored)] == fields


def test_a_job_must_say_whether_it_restarts() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert faults("batch", "Job", job(template)) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


def changed_job(old: Json, **spec: Any) -> Json:
    return {**old, "spec": {**old["spec"], **spec}}


def test_a_job_may_be_steered_only_while_it_is_suspended_and_not_started() -> None:
    waiting = created("batch", "Job", job(suspend=True))
    template = clone(waiting["spec"]["template"])
    template["spec"]["nodeSelector"] = {"pool": "a"}
    started = changed_job(waiting, template=template, suspend=False)
    assert update_faults("batch", "Job", waiting, started) == []
    running = {**waiting, "spec": {**waiting["spec"], "suspend": False}}
    assert update_faults("batch", "Job", running, started) == ["spec.template"]
    begun = {**waiting, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    assert update_faults("batch", "Job", begun, started) == ["spec.template.spec"]


def test_mutable_fields_of_a_job() -> None:
    old = created("batch", "Job", job(completions=3))
    assert update_faults("batch", "Job", old, changed_job(old, parallelism=2, backoffLimit=1, suspend=True)) == []
    assert update_faults("batch", "Job", old, changed_job(old, completions=4)) == ["spec.completions"]
    elastic = created("batch", "Job", job(completions=3, parallelism=3, completionMode="Indexed"))
    assert update_faults("batch", "Job", elastic, changed_job(elastic, completions=5, parallelism=5)) == []
    assert update_faults("batch", "Job", elastic, changed_job(elastic, completions=5)) == ["spec.completions"]


def test_generation_counts_changes_of_the_spec_only() -> None:
    old = created("batch", "Job", job())
    for spec, generation in (({}, 1), ({"suspend": True}, 2)):
        new = clone(changed_job(old, **spec))
        new["metadata"]["labels"] = {"new": "label"}
        row("batch", "Job").prepare_update(new, old, "")
        assert new["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ({"active": 1}, []),
        ({"active": -1}, ["status.active"]),
        ({"conditions": [{"type": "Complete", "status": "True"}], "startTime": "2026-01-01T00:00:00Z"},
         ["status.completionTime", "status.conditions"]),
        ({"conditions": [{"type": "Failed", "status": "True"}], "startTime": "2026-01-01T00:00:00Z", "active": 1},
         ["status.conditions", "status.active"]),
        ({"completionTime": "2026-01-01T00:00:00Z"}, ["status.completionTime"]),
    ],
)  # fmt: skip
def test_validation_of_the_status_of_jobs(status: Json, fields: list[str]) -> None:
    old = created("batch", "Job", job())
    found = row("batch", "Job").validate_update({**old, "status": status}, old, "status")
    assert [error.field for error in found] == fields


# Others


def test_a_secret_folds_its_text_and_keeps_its_type() -> None:
    old = created("", "Secret", {"metadata": {"name": "s"}, "stringData": {"k": "v"}, "data": {"d": "eA=="}})
    assert (old["type"], old["data"]) == ("Opaque", {"d": "eA==", "k": "dg=="})
    assert "stringData" not in old
    assert update_faults("", "Secret", old, {"metadata": {"name": "s"}, "type": "other"}) == ["type"]


def test_immutable_objects_stay_immutable() -> None:
    old = created("", "ConfigMap", {"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": True})
    assert update_faults("", "ConfigMap", old, {"metadata": {"name": "a"}, "data": {"k": "2"}, "immutable": True}) == [
        "data"
    ]
    assert update_faults("", "ConfigMap", old, {"metadata": {"name": "a"}, "data": {"k": "1"}}) == ["immutable"]


def test_a_namespace_has_its_name_as_a_label() -> None:
    stored = created("", "Namespace", {"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "other"}}})
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert (stored["spec"], stored["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


def test_an_event_has_two_faces() -> None:
    newer = row("events.k8s.io", "Event")
    assert newer.convert is not None
    core = {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "m", "count": 2, "type": "Normal",
        "reportingComponent": "", "reportingInstance": "",
    }  # fmt: skip
    shown = newer.convert(core, newer.stored_version, "v1")
    assert shown == {
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod"}, "note": "m", "deprecatedCount": 2, "type": "Normal",
    }  # fmt: skip
    assert newer.convert(shown, "v1", newer.stored_version) == core


def test_a_new_node_is_tainted_and_can_allocate_what_it_has() -> None:
    stored = created("", "Node", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}})
    assert stored["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert stored["status"]["allocatable"] == {"cpu": "4"}


def test_a_priority_class_keeps_its_value() -> None:
    low = {"metadata": {"name": "low"}, "value": 1}
    old = created("scheduling.k8s.io", "PriorityClass", low)
    assert old["preemptionPolicy"] == "PreemptLowerPriority"
    assert update_faults("scheduling.k8s.io", "PriorityClass", old, {**low, "value": 2}) == ["value"]
    assert len(faults("scheduling.k8s.io", "PriorityClass", {**low, "value": 2_000_000_000})) == 1


def test_the_rules_of_metadata() -> None:
    def found(**metadata: Any) -> list[str]:
        errors = builtin_metadata.validate_metadata({"metadata": metadata}, namespaced=True)
        return [error.field for error in errors]

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    good = {"name": "a.b-c", "namespace": "n"}
    assert found(**good, labels={"x.io/k": "v"}, ownerReferences=[owner], finalizers=["x.io/f", "orphan"]) == []
    assert found(namespace="n") == ["metadata.name"]
    assert found(name="A_b", namespace="n") == ["metadata.name"]
    assert found(**good, labels={"bad key": "v", "k": "bad value"}) == ["metadata.labels"] * 2
    assert found(**good, ownerReferences=[owner, owner]) == ["metadata.ownerReferences"]
    assert found(**good, ownerReferences=[{**owner, "uid": ""}]) == ["metadata.ownerReferences.uid"]
    assert found(**good, finalizers=["a/b/c"]) == ["metadata.finalizers"]
    assert found(**good, annotations={"k": "x" * 300_000}) == ["metadata.annotations"]


def test_a_finalizer_of_a_built_in_kind_needs_a_domain() -> None:
    obj = {"metadata": {"name": "a", "finalizers": ["kubernetes", "plain"]}}
    (fault,) = faults("", "ConfigMap", obj)
    assert fault.startswith('metadata.finalizers[1]: Invalid value: "plain": name is neither a standard finalizer name')


def test_immutable_metadata() -> None:
    old = {"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "t", "finalizers": ["x/a"]}}
    new = {"metadata": {**old["metadata"], "uid": "2", "finalizers": ["x/a", "x/b"]}}
    errors = builtin_metadata.validate_metadata_update(new, old, builtin_metadata.USUAL)
    assert {error.field for error in errors} == {"metadata.uid", "metadata.finalizers"}
    assert builtin_metadata.validate_metadata_update(old, old, builtin_metadata.USUAL) == []
