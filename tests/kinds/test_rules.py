"""What is refused of jobs, pods and their topology annotations; partial admission; pod groups."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.kinds import fields, metadata, pod_group, requests, table, templates
from kyu.kinds.job_set import JobSet
from kyu.kinds.kind import Context
from kyu.kinds.pod_group import Incomplete
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, TemplateConflict
from tests.support import manifests

JOB_KIND = table.find({"apiVersion": "batch/v1", "kind": "Job"})
POD_KIND = table.find({"apiVersion": "v1", "kind": "Pod"})
CONTEXT = Context()


def job(
    annotations: dict[str, str] | None = None,
    template: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    meta = {"labels": labels or {}, "annotations": annotations or {}}
    return manifests.job(queue="main", metadata=meta, pod_annotations=template, **{"parallelism": 4, **spec})


def running(obj: Json) -> Json:
    return fields.with_value(obj, ("spec", "suspend"), False)


def errors(obj: Json, old: Json | None = None, context: Context = CONTEXT) -> list[str]:
    kind = table.find(obj)
    assert kind is not None
    return [str(error) for error in kind.validate(obj, old, context)]


def test_a_plain_job_is_fine_and_one_without_a_queue_is_not_our_business() -> None:
    assert errors(job()) == []
    assert errors(job(labels={metadata.QUEUE_NAME: ""}, annotations={metadata.JOB_MIN_PARALLELISM: "x"})) == []


@pytest.mark.parametrize(
    "obj",
    [
        job({metadata.JOB_MIN_PARALLELISM: "3"}),
        job({metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}, completionMode="Indexed", completions=4),
        job({metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "false"}),
        job({metadata.ELASTIC_JOB: "true"}),
        job({metadata.ADMISSION_GATED_BY: "a.io/x,a.io/y"}, labels={metadata.MAX_EXEC_TIME_SECONDS: "1"}),
        job(template={metadata.SLICE_REQUIRED_TOPOLOGY: "rack", metadata.SLICE_SIZE: "4"}),
    ],
)
def test_the_edges_of_what_is_allowed(obj: Json) -> None:
    assert errors(obj) == []


ON_CREATE: list[tuple[Json, str]] = [
    (job(labels={metadata.QUEUE_NAME: "Main_1"}), "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value"),
    (job(labels={metadata.PREBUILT_WORKLOAD: "A"}), "prebuilt-workload-name]: Invalid value"),
    (job(labels={metadata.MAX_EXEC_TIME_SECONDS: "0"}), "1 or more"),
    (job({metadata.ADMISSION_GATED_BY: "gate"}), "must be a domain-prefixed path"),
    (job({metadata.ADMISSION_GATED_BY: "a.io/x,a.io/x"}), "must not name a gate twice"),
    (job({metadata.JOB_MIN_PARALLELISM: "4"}), "a number from 1 to 3"),
    (job({metadata.JOB_MIN_PARALLELISM: "2", metadata.ELASTIC_JOB: "true"}), "is not admitted in part"),
    (job({metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}, completions=4), "completionMode Indexed only"),
    (
        job({metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}, completionMode="Indexed", completions=3),
        "to be the same number",
    ),
    (job({metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "yes"}), "must be true or false"),
    (job({metadata.ELASTIC_JOB: "true"}, {metadata.REQUIRED_TOPOLOGY: "rack"}), "unconstrained topology"),
    (job(template={metadata.REQUIRED_TOPOLOGY: "rack", metadata.PREFERRED_TOPOLOGY: "rack"}), "more than one of"),
    (job(template={metadata.REQUIRED_TOPOLOGY: "a rack"}), "podset-required-topology]: Invalid value"),
    (job(template={metadata.UNCONSTRAINED_TOPOLOGY: "1"}), "must be true or false"),
    (job(template={metadata.SLICE_REQUIRED_TOPOLOGY: "rack"}), "slice size is required"),
    (job(template={metadata.SLICE_SIZE: "2"}), "may not be set without a slice topology"),
    (job(template={metadata.SLICE_REQUIRED_TOPOLOGY: "rack", metadata.SLICE_SIZE: "0"}), "greater than or equal to 1"),
    (job(template={metadata.SLICE_REQUIRED_TOPOLOGY: "rack", metadata.SLICE_SIZE: "5"}), "pod set count 4"),
    (job(template={metadata.SLICE_CONSTRAINTS: "{}"}), "must be a JSON list"),
    (
        job(template={metadata.SLICE_CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"b","size":3}]'}),
        "must divide the outer size 4",
    ),
    (
        job(template={metadata.SLICE_CONSTRAINTS: '[{"topology":"a","size":4},{"topology":"a","size":2}]'}),
        "must not name a topology twice",
    ),
    (job(template={metadata.POD_SET_GROUP_NAME: "1"}), "must not be a number"),
    (job(template={metadata.POD_SET_GROUP_NAME: "g"}), "needs a required or preferred topology"),
    (
        job(template={metadata.POD_SET_GROUP_NAME: "g", metadata.REQUIRED_TOPOLOGY: "r"}),
        "a group has 2 pod sets, not 1",
    ),
]


@pytest.mark.parametrize(("obj", "part"), ON_CREATE, ids=[part for _, part in ON_CREATE])
def test_jobs_that_are_refused(obj: Json, part: str) -> None:
    assert any(part in error for error in errors(obj)), errors(obj)


LIMIT = {metadata.MAX_EXEC_TIME_SECONDS: "9"}
QUEUE_B = {metadata.QUEUE_NAME: "b"}
PRIORITY = {metadata.PRIORITY_CLASS: "high"}
MINIMUM = {metadata.JOB_MIN_PARALLELISM: "2"}
ON_CHANGE: list[tuple[str, Json, Json, str]] = [
    ("queue of a running job", running(job()), running(job(labels=QUEUE_B)), "field is immutable"),
    ("queue of a suspended job", job(), job(labels=QUEUE_B), ""),
    ("priority removed", job(labels=PRIORITY), job(), "cannot be removed"),
    ("priority added while it runs", running(job()), running(job(labels=PRIORITY)), "cannot be set while the job runs"),
    ("priority added while it waits", job(), job(labels=PRIORITY), ""),
    ("time limit of a running job", running(job()), running(job(labels=LIMIT)), "immutable"),
    ("elastic switched on", job(), job({metadata.ELASTIC_JOB: "true"}), "immutable"),
    ("a gate added", job(), job({metadata.ADMISSION_GATED_BY: "a.io/x"}), "cannot be added after creation"),
    ("a gate removed", job({metadata.ADMISSION_GATED_BY: "a.io/x"}), job(), ""),
    ("parallelism in part", running(job(MINIMUM)), running(job(MINIMUM, parallelism=5)), "partly admitted job"),
    ("admitted with the fewest pods", job(MINIMUM), running(job(MINIMUM, parallelism=2)), ""),
    ("a minimum that is too high", job(), job(MINIMUM, parallelism=2), "a number from 1 to 1"),
    ("parallelism in whole", running(job()), running(job(parallelism=5)), ""),
]  # fmt: skip


@pytest.mark.parametrize(("what", "old", "new", "part"), ON_CHANGE, ids=[what for what, _, _, _ in ON_CHANGE])
def test_what_of_a_job_may_change_and_when(what: str, old: Json, new: Json, part: str) -> None:
    found = errors(new, old)
    assert any(part in error for error in found) if part else found == []


def test_an_app_wrapper_has_pods_where_it_says() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
    wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "template": template}

    def wrapper(*components: Json) -> Json:
        meta = {"name": "x", "labels": {metadata.QUEUE_NAME: "q"}}
        spec = {"suspend": True, "components": list(components)}
        return {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": meta, "spec": spec}

    assert errors(wrapper({"template": wrapped, "podSets": [{"path": "template.template"}]})) == []
    for empty in (wrapper(), wrapper({"template": {"apiVersion": "v1", "kind": "ConfigMap"}})):
        assert "has no pods to be queued" in errors(empty)[0]
    (lost,) = errors(wrapper({"template": wrapped, "podSets": [{"path": "template.spec"}]}))
    assert lost.startswith("spec.components[0].podSets[0].path: Invalid value")


def test_a_queue_cannot_be_emptied_where_a_default_exists() -> None:
    emptied = job(labels={metadata.QUEUE_NAME: ""})
    assert "cannot be emptied" in errors(emptied, job(), Context(has_default_queue=True))[0]


def test_only_some_kinds_are_elastic_or_prebuilt() -> None:
    obj = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {
            "name": "x",
            "labels": {metadata.QUEUE_NAME: "q"},
            "annotations": {metadata.ELASTIC_JOB: "true", metadata.PREBUILT_WORKLOAD: "w"},
        },
        "spec": {"jaxReplicaSpecs": {}, "runPolicy": {"suspend": True}},
    }
    assert [error.rpartition(": ")[2] for error in errors(obj)] == [
        "JAXJob does not support prebuilt workloads",
        "JAXJob cannot be elastic",
    ]


def test_the_topology_request_of_a_job() -> None:
    assert JOB_KIND is not None
    asked = {metadata.REQUIRED_TOPOLOGY: "rack", metadata.SLICE_REQUIRED_TOPOLOGY: "host", metadata.SLICE_SIZE: "2"}
    pod_set = JOB_KIND.pod_sets(job(template=asked))[0]
    assert pod_set.to_json()["topologyRequest"] == {
        "required": "rack",
        "podSetSliceRequiredTopology": "host",
        "podSetSliceSize": 2,
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }
    assert JOB_KIND.pod_sets(job())[0].topology_request is None


def test_partial_admission_shrinks_and_stop_restores() -> None:
    assert JOB_KIND is not None
    equal = {metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true", **MINIMUM}
    obj = job(equal, completionMode="Indexed", completions=4)
    original = JOB_KIND.pod_sets(obj)
    assert (original[0].count, original[0].min_count) == (4, 2)
    patch = JOB_KIND.start_patch(obj, [PodSetInfo("main", 3)])
    assert patch == {"spec": {"parallelism": 3, "completions": 3, "suspend": False}}
    shrunk = {**obj, "spec": {**obj["spec"], "parallelism": 3, "completions": 3}}
    assert JOB_KIND.restore_patch(shrunk, original) == {"spec": {"parallelism": 4, "completions": 4}}


def test_labels_of_the_job_controller_are_no_wish_of_the_user() -> None:
    assert JOB_KIND is not None
    own = {"job-name": "j", "batch.kubernetes.io/controller-uid": "u", "team": "blue"}
    obj = fields.with_value(job(), ("spec", "template", "metadata", "labels"), own)
    original = JOB_KIND.pod_sets(obj)
    assert metadata.labels_of(original[0].template) == {"team": "blue"}
    assert JOB_KIND.restore_patch(obj, original) == {}


def test_the_workload_of_the_flux_job() -> None:
    assert JOB_KIND is not None
    uid = "bdc16301-7681-4666-9b67-e59b0743de9d"
    name = metadata.workload_name(JOB_KIND.kind, "flux-sample-kueue-6sd5z", uid)
    assert name == "job-flux-sample-kueue-6sd5z-4c7dc"
    assert len(metadata.workload_name(JOB_KIND.kind, "x" * 253, "u")) == 253


def test_merging_conflicts_name_the_place() -> None:
    template = {"metadata": {"labels": {"a": "1"}}, "spec": {}}
    result = templates.merged(template, PodSetInfo("main", 1, labels={"a": "2"}))
    assert str(result) == "pod set main: label 'a' is '1' in the job, and admission needs '2'"
    assert templates.merged(template, PodSetInfo("main", 1, labels={"a": "1"})) == template
    assert JOB_KIND is not None
    assert str(JOB_KIND.start_patch(job(), [])) == "the job has the pod sets ['main'], its Workload []"


def pod(
    name: str,
    phase: str = "Pending",
    *,
    cpu: str = "1",
    gated: bool = False,
    created: int = 0,
    total: int = 2,
    **marks: str,
) -> Json:
    """Return a pod of the group `g`. Other keywords are annotations of Kueue."""
    annotations = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in marks.items()}
    meta = {
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        "labels": {metadata.QUEUE_NAME: "main", metadata.POD_GROUP_NAME: "g"},
        "annotations": {**annotations, metadata.POD_GROUP_TOTAL_COUNT: str(total)},
    }
    gates = [metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE] if gated else []
    return manifests.pod(name, cpu=cpu, phase=phase, gates=gates, metadata=meta)


def counts(found: list[PodSetTemplate] | Incomplete) -> list[int]:
    assert not isinstance(found, Incomplete), str(found)
    return sorted(pod_set.count for pod_set in found)


def test_a_group_waits_for_all_its_members() -> None:
    assert "fewer runnable pods than expected" in str(pod_group.pod_sets([pod("a", gated=True)]))
    assert counts(pod_group.pod_sets([pod("a", gated=True), pod("b", gated=True)])) == [2]
    assert counts(pod_group.pod_sets([pod("a"), pod("b", cpu="2"), pod("c", total=2, created=9)])) == [1, 1]
    assert counts(pod_group.pod_sets([pod("a", total=3), pod("b", total=3, cpu="2"), pod("c", total=3)])) == [1, 2]


def test_a_fast_group_is_composed_from_its_first_pod() -> None:
    first = pod("a", gated=True, total=5, pod_group_fast_admission="true")
    assert counts(pod_group.pod_sets([first])) == [5]


def test_members_must_agree() -> None:
    assert "different 'kueue.x-k8s.io/pod-group-total-count' values: 2!=3" in str(
        pod_group.pod_sets([pod("a"), pod("b", total=3)])
    )
    other = fields.with_value(pod("b"), ("metadata", "labels", metadata.QUEUE_NAME), "other")
    assert "pods 'a' and 'b' has different queue names: main!=other" in str(pod_group.pod_sets([pod("a"), other]))


def test_a_failed_member_is_replaced_unless_the_group_says_no() -> None:
    members = [pod("a", "Succeeded"), pod("b", "Failed")]
    role = pod_group.role(members[0])
    assert pod_group.finished(members) is None
    assert pod_group.missing_pods(members, {role: 2}) == {role: 1}
    final = [pod("a", "Succeeded"), pod("b", "Failed", retriable_in_group="false")]
    end = pod_group.finished(final)
    assert end is not None
    assert (end.success, end.message) == (False, "Pods succeeded: 1/2.")
    replaced = [*members, pod("c", "Succeeded")]
    end = pod_group.finished(replaced)
    assert end is not None
    assert end.success


def test_a_serving_group_never_finishes_and_gives_nothing_back() -> None:
    members = [pod("a", "Succeeded", pod_group_serving="true"), pod("b", "Succeeded", pod_group_serving="true")]
    assert pod_group.finished(members) is None
    assert pod_group.reclaimable_pods(members) == {}


def test_surplus_members_go_waiting_and_newest_first() -> None:
    members = [
        pod("old", created=1),
        pod("new", created=2),
        pod("gated", gated=True, created=0),
        pod("newest", created=3),
    ]
    assert pod_group.excess_pods(members, [pod_group.pod_set(members[0], 2)]) == ["newest", "gated"]


@pytest.mark.parametrize("fast", [{}, {"pod_group_fast_admission": "true"}])
def test_a_member_that_is_larger_than_its_role_is_surplus(fast: dict[str, str]) -> None:
    small, large = (pod(name, gated=True, created=number, **fast) for number, name in enumerate(("small", "large")))
    pod_set = pod_group.pod_set(small, 2)
    large["spec"] = {**large["spec"], "containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]}
    large["metadata"]["annotations"][metadata.ROLE_HASH] = pod_group.role(small)
    assert pod_group.excess_pods([small, large], [pod_set]) == ["large"]
    if fast:
        large["metadata"]["annotations"][metadata.ROLE_HASH] = "another"
        assert pod_group.excess_pods([small, large], [pod_set]) == ["large"]


def test_readiness_and_reclaim_of_a_group() -> None:
    ready = pod("b", "Running")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert not pod_group.pods_ready([pod("a"), ready])
    assert pod_group.pods_ready([pod("a", "Succeeded"), ready])
    done = pod("a", "Succeeded")
    assert pod_group.reclaimable_pods([done, ready]) == {pod_group.role(done): 1}


def test_a_started_pod_keeps_the_topology_gate_only_if_it_has_a_place() -> None:
    assert POD_KIND is not None
    stored = POD_KIND.defaults(pod("a"), Context())
    names = [gate["name"] for gate in stored["spec"]["schedulingGates"]]
    assert names == [metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE]
    assert metadata.MANAGED in stored["metadata"]["finalizers"]
    free = POD_KIND.start_patch(stored, [PodSetInfo("main", 1)])
    assert free == {"spec": {"schedulingGates": None}}
    placed = POD_KIND.start_patch(stored, [PodSetInfo("main", 1, scheduling_gates=(metadata.TOPOLOGY_GATE,))])
    assert placed == {"spec": {"schedulingGates": [{"name": metadata.TOPOLOGY_GATE}]}}
    conflict = POD_KIND.start_patch(stored, [PodSetInfo("main", 1, labels={metadata.QUEUE_NAME: "other"})])
    assert isinstance(conflict, TemplateConflict)


POD_ERRORS: list[tuple[str, tuple[str, ...], object, str]] = [
    ("a managed mark that is not true", ("labels", metadata.MANAGED), "false", 'may only be "true"'),
    ("a group without its size", ("annotations", metadata.POD_GROUP_TOTAL_COUNT), None, "must be set together"),
    ("a size without a group", ("labels", metadata.POD_GROUP_NAME), None, "must be set together"),
    ("a size that is no number", ("annotations", metadata.POD_GROUP_TOTAL_COUNT), "two", "whole number"),
    ("a fast mark that is not true", ("annotations", metadata.POD_GROUP_FAST_ADMISSION), "no", "supported values"),
    ("a workload of another name", ("labels", metadata.PREBUILT_WORKLOAD), "w", "equal to the name of the pod group"),
]


@pytest.mark.parametrize(("what", "path", "value", "part"), POD_ERRORS, ids=[what for what, _, _, _ in POD_ERRORS])
def test_pods_that_are_refused(what: str, path: tuple[str, ...], value: object, part: str) -> None:
    obj = fields.with_value(pod("a"), ("metadata", *path), value)
    if value is None:
        del obj["metadata"][path[0]][path[1]]
    assert any(part in error for error in errors(obj)), errors(obj)


def test_changes_of_a_pod_that_are_refused() -> None:
    renamed = fields.with_value(pod("a"), ("metadata", "labels", metadata.POD_GROUP_NAME), "h")
    assert any("pod-group-name" in error and "immutable" in error for error in errors(renamed, pod("a")))
    assert any("cannot be taken back" in error for error in errors(pod("a"), pod("a", retriable_in_group="false")))


def test_a_copy_of_a_pod_loses_the_workload_of_the_pod() -> None:
    copy = fields.with_value(pod("a"), ("metadata", "annotations", metadata.WORKLOAD), "pod-a-12345")
    assert POD_KIND is not None
    assert metadata.WORKLOAD not in metadata.annotations_of(POD_KIND.defaults(copy, CONTEXT))


def test_pods_of_a_queued_parent_are_gated_without_a_finalizer() -> None:
    assert POD_KIND is not None
    plain: Json = {
        "metadata": {"name": "web-1", "annotations": {metadata.POD_SUSPENDING_PARENT: "deployment"}},
        "spec": {"containers": []},
    }
    stored = POD_KIND.defaults(plain, Context(owner_is_managed=True))
    assert POD_KIND.is_suspended(stored)
    assert "finalizers" not in stored["metadata"]


def kind_errors(kind: str, api_version: str, spec: Json, old_spec: Json | None = None) -> list[str]:
    meta = {"name": "x", "labels": {metadata.QUEUE_NAME: "q"}}
    obj: Json = {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}
    return errors(obj, None if old_spec is None else {**obj, "spec": old_spec})


CLUSTER: Json = {"headGroupSpec": {"template": {}}}
TEMPLATE: Json = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
BIGGER: Json = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
BY_KIND: list[tuple[str, str, Json, Json | None, str]] = [
    ("RayJob", "ray.io/v1", {"rayClusterSpec": CLUSTER}, None, "gives its cluster back"),
    ("RayJob", "ray.io/v1", {"rayClusterSpec": CLUSTER, "clusterSelector": {"a": "b"}}, None, "may not stand beside"),
    ("RayCluster", "ray.io/v1", {**CLUSTER, "enableInTreeAutoscaling": True}, None, "only if elastic"),
    ("RayCluster", "ray.io/v1", {**CLUSTER, "workerGroupSpecs": [{"groupName": "head"}]}, None, "is reserved"),
    ("RayCluster", "ray.io/v1", {**CLUSTER, "workerGroupSpecs": [{}] * 18}, None, "at most 18"),
    ("SparkApplication", "sparkoperator.k8s.io/v1beta2", {"mode": "client"}, None, "only cluster mode"),
    ("SparkApplication", "sparkoperator.k8s.io/v1beta2", {"driver": {"memory": "much"}}, None, "amount of memory"),
    ("StatefulSet", "apps/v1", {"replicas": 3}, {"replicas": 2}, "only change to or from 0"),
    ("StatefulSet", "apps/v1", {"template": BIGGER}, {"template": TEMPLATE}, "immutable"),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"replicas": 1_000_001}, None, "between 0 and 1000000"),
    (
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        {"leaderWorkerTemplate": {"size": 3}},
        {"leaderWorkerTemplate": {"size": 2}},
        "immutable",
    ),
    ("MiniCluster", "flux-framework.org/v1alpha2", {"size": 2, "maxSize": 1, "containers": [{}]}, None, "maxSize 1"),
]


@pytest.mark.parametrize(("kind", "api_version", "spec", "old_spec", "part"), BY_KIND)
def test_rules_of_one_kind(kind: str, api_version: str, spec: Json, old_spec: Json | None, part: str) -> None:
    found = kind_errors(kind, api_version, spec, old_spec)
    assert any(part in error for error in found), found


def test_requests_of_a_pod() -> None:
    def container(cpu: str, **more: Any) -> Json:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    together = {"containers": [container("1"), container("500m")]}
    assert requested(together) == {"cpu": "1500m"}
    assert requested({**together, "initContainers": [container("2"), container("1")]}) == {"cpu": "2"}
    sidecar = container("1", restartPolicy="Always")
    assert requested({**together, "initContainers": [sidecar, container("1")]}) == {"cpu": "2500m"}
    assert requested({**together, "initContainers": [sidecar, container("2")]}) == {"cpu": "3"}
    whole = {"resources": {"requests": {"cpu": "4", "example.com/x": "1"}}, "overhead": {"cpu": "250m"}}
    assert requested({**together, **whole}) == {"cpu": "4250m"}
    assert requested({"containers": [{"resources": {"limits": {"memory": "1Gi"}}}]}) == {"memory": "1Gi"}


def requested(spec: Json) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in requests.pod_requests({"spec": spec}).items()}


@pytest.mark.parametrize(
    ("policy", "counted", "reclaimable"),
    [
        ({}, 0, {"a": 2}),
        ({"maxRestarts": 1}, 0, {}),
        ({"maxRestarts": 1}, 1, {"a": 2}),
        ({"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}, 0, {}),
    ],
)
def test_a_job_set_that_may_restart_gives_nothing_back(policy: Json, counted: int, reclaimable: dict[str, int]) -> None:
    job = {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 2}}}
    done = [{"name": "a", "succeeded": 1}]
    obj = {
        "spec": {"replicatedJobs": [job], "failurePolicy": policy},
        "status": {"restartsCountTowardsMax": counted, "replicatedJobsStatus": done},
    }
    assert JobSet().reclaimable_pods(obj) == reclaimable
