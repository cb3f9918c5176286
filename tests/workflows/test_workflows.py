"""Scheduler plugins: settings of every kind, refusals, and the parsing and merging of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes

from kyu.api.meta import Json
from kyu.bench import plugins
from kyu.kinds import fields, metadata
from kyu.workflows import plugin, queueconfig, rules, support, yunikorn
from kyu.workflows.kueue import KueuePlugin
from kyu.workflows.queueconfig import Gang, JobSettings, QueueConfig, QueueConfigError
from kyu.workflows.submission import Submission
from kyu.workflows.task import Task, safe_name
from tests.support.case_files import read_documents

FOLDER = Path(__file__).parent.parent / "cases" / "workflows"
SETTINGS = (FOLDER / "queueconfig.yaml").read_text()
CASES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "queueconfig.yaml")
KUEUE, YUNIKORN = plugin.load(QueueConfig("kueue")), plugin.load(QueueConfig("yunikorn"))
TASK = Task("acme", "e1")
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}},
}


def rendered(scheduler: plugin.SchedulerPlugin, task: Task, obj: object) -> plugin.Rendered:
    result = plugin.render(scheduler, task, obj)
    assert isinstance(result, plugin.Rendered), str(result)
    return result


def refused(scheduler: plugin.SchedulerPlugin, task: Task, obj: Json) -> str:
    result = plugin.render(scheduler, task, obj)
    assert isinstance(result, plugin.NotRendered), "it should have been refused"
    return str(result)


def settings_of(result: plugin.Rendered) -> dict[str, str]:
    return {applied.setting.where: applied.setting.value for applied in result.applied}


def groups_of(result: plugin.Rendered) -> list[Json]:
    """Return the task groups, which must be the same on all pods."""
    texts = {a.setting.value for a in result.applied if a.setting.key == yunikorn.TASK_GROUPS}
    assert len(texts) == 1
    groups: list[Json] = json.loads(texts.pop())
    return groups


@pytest.mark.parametrize("scheduler", [KUEUE, YUNIKORN], ids=["kueue", "yunikorn"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, scheduler: plugin.SchedulerPlugin) -> None:
    obj, want = read_documents(path)
    given: dict[str, Any] = {"organization": "acme", "execution_id": "e1", **want.get("task", {})}
    task, wanted = Task(**given), want[scheduler.name]
    if "refused" in wanted:
        assert wanted["refused"] in refused(scheduler, task, obj)
        return
    result = rendered(scheduler, task, obj)
    if "groups" in wanted:
        assert groups_of(result) == wanted["groups"]
    if "only" in wanted:
        assert settings_of(result) == wanted["only"]
    assert wanted.get("set", {}).items() <= settings_of(result).items()
    for note in wanted.get("notes", []):
        assert any(note in text for text in result.notes)


def test_the_settings_of_the_proposal_are_read_as_they_stand() -> None:
    config = queueconfig.parse(SETTINGS)
    assert config == QueueConfig(
        "yunikorn",
        jobs=(JobSettings("ray", Gang(60, "Hard"), False), JobSettings("spark", Gang(30, "Hard"), True)),
    )


def test_the_job_of_the_proposal_lands_in_its_queue() -> None:
    ray: Json = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "head"}]}}}},
    }
    scheduler = plugin.load(queueconfig.parse(SETTINGS))
    task = Task("organization1", "f3ab", user="user1", groups=("lab",))
    labels, annotations = scheduler.get_group_labels(Submission(task, ray))
    assert labels == {yunikorn.APP_ID: "ray-f3ab", yunikorn.QUEUE: "root.organization1.ray"}
    assert json.loads(annotations[yunikorn.USER_INFO]) == {"user": "user1", "groups": ["lab"]}
    pod = rendered(scheduler, task, ray).object["spec"]["headGroupSpec"]["template"]
    assert pod["spec"]["schedulerName"] == "yunikorn"
    on_pod = pod["metadata"]["annotations"]
    assert on_pod[yunikorn.PARAMETERS] == "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard"
    assert on_pod[yunikorn.ALLOW_PREEMPTION] == "false"
    assert on_pod[yunikorn.TASK_GROUP_NAME] == "headgroup"


def test_unknown_types_use_the_default_queue_when_types_are_listed() -> None:
    scheduler = plugin.load(queueconfig.parse(SETTINGS))
    labels, _ = scheduler.get_group_labels(Submission(TASK, JOB))
    assert labels[yunikorn.QUEUE] == "root.acme.default"


def test_queue_templates() -> None:
    text = "queueconfig: {scheduler: kueue, queue: '{type}', jobs: [{type: job, queue: '{project}-{type}'}]}"
    scheduler = plugin.load(queueconfig.parse(text))
    labels, _ = scheduler.get_group_labels(Submission(Task("acme", "e", project="p1"), JOB))
    assert labels == {metadata.QUEUE_NAME: "p1-job"}
    assert "no project is given" in refused(scheduler, TASK, JOB)
    relative = plugin.load(QueueConfig("yunikorn", queue="{organization}.{type}"))
    labels, _ = relative.get_group_labels(Submission(TASK, JOB))
    assert labels[yunikorn.QUEUE] == "root.acme.job", "without root, YuniKorn would take the dots for part of a name"


def test_a_long_queue_path_is_an_annotation_for_yunikorn_and_shortened_for_kueue() -> None:
    task = Task("o" * 60, "e1")
    settings = settings_of(rendered(YUNIKORN, task, JOB))
    assert settings[f"spec.template.metadata.annotations[{yunikorn.QUEUE}]"] == f"root.{'o' * 60}.job"
    queue = settings_of(rendered(KUEUE, task, JOB))[f"metadata.labels[{metadata.QUEUE_NAME}]"]
    assert len(queue) <= metadata.MAX_LABEL_VALUE
    assert queue != settings_of(rendered(KUEUE, Task("o" * 61, "e1"), JOB))[f"metadata.labels[{metadata.QUEUE_NAME}]"]


TOP = "queueconfig:\n  scheduler: kueue\n  "
ENTRY = TOP + "jobs:\n  - type: a\n    "
BAD_SETTINGS = [
    ("a: [\n}", 2, "did not find expected"),
    ("other: 1", 1, "there is no section queueconfig"),
    ("queueconfig: []", 1, "must be a mapping"),
    ("queueconfig:\n  jobs: []", 1, "scheduler is missing: write one of kueue, yunikorn"),
    ("queueconfig:\n  scheduler: yunicorn", 2, "did you mean yunikorn?"),
    (TOP + "job: []", 3, "there is no setting 'job': did you mean jobs?"),
    (TOP + "jobs: {a: 1}", 3, "must be a list"),
    (TOP + "jobs:\n  - ray", 4, "must be a mapping with type"),
    (TOP + "jobs:\n  - gangscheduling: ''", 4, "type is missing"),
    (TOP + "jobs:\n  - type: a\n  - type: a", 5, "'a' stands twice"),
    (ENTRY + "allow-preemption: 'no'", 5, "without quotes"),
    (ENTRY + "allow-Preemption: no", 5, "did you mean allow-preemption?"),
    (ENTRY + "gangscheduling: 3", 5, "must be a text such as"),
    (ENTRY + "gangscheduling: gangSchedulingStyle = hard", 5, "no space"),
    (ENTRY + "gangscheduling: style=hard", 5, "would ignore 'style'"),
    (ENTRY + "gangscheduling: gangSchedulingStyle=firm", 5, "Hard or Soft"),
    (ENTRY + "gangscheduling: placeholderTimeoutInSeconds=1m", 5, "seconds"),
    (TOP + "queue: root.{org}", 3, "there is no {org}: did you mean organization?"),
    (TOP + "queue: 'root.{'", 3, "write names in braces"),
]


@pytest.mark.parametrize(("text", "line", "part"), BAD_SETTINGS, ids=[part for _, _, part in BAD_SETTINGS])
def test_a_bad_file_is_an_error_with_line_and_remedy(text: str, line: int, part: str) -> None:
    with pytest.raises(QueueConfigError) as caught:
        queueconfig.parse(text, "settings.yaml")
    message = str(caught.value).splitlines()[0]
    assert message.startswith(f"settings.yaml: line {line}: ")
    assert part in message


def test_all_faults_of_a_file_are_told_at_once() -> None:
    text = "queueconfig:\n  scheduler: slurm\n  jobs:\n  - type: a\n    gangscheduling: x=1\n  - {}"
    with pytest.raises(QueueConfigError) as caught:
        queueconfig.parse(text)
    assert [problem.line for problem in caught.value.problems] == [2, 5, 6]


def test_every_row_of_the_table_is_what_the_plugins_do() -> None:
    for row in support.ROWS:
        obj = plugins.sample(row.api_version, row.kind)
        places = {a.setting.where for a in rendered(KUEUE, TASK, obj).applied}
        match row.kueue:
            case support.LABEL | support.ARRAY:
                assert places == {f"metadata.labels[{metadata.QUEUE_NAME}]"}, row.kind
            case support.JOB_LABEL:
                assert places in (
                    {f"spec.jobLabels[{metadata.QUEUE_NAME}]"},
                    {f"spec.jobTemplate.metadata.labels[{metadata.QUEUE_NAME}]"},
                ), row.kind
            case support.GROUP:
                found = Submission(TASK, obj).roles
                assert isinstance(found, list)
                assert len(places) == 3 * len(found), row.kind
            case _:
                pytest.fail(f"the table says {row.kueue!r}, which no test looks at")
        if row.yunikorn == support.WITHOUT_TEMPLATES:
            assert "no template" in refused(YUNIKORN, TASK, obj)
        else:
            first = groups_of(rendered(YUNIKORN, TASK, obj))[0]["name"]
            assert first in row.yunikorn or row.yunikorn.startswith("each"), row.kind
        assert rendered(KUEUE, TASK, obj).object["metadata"]["name"] == "x"


def test_a_users_own_value_is_an_error_unless_a_choice_is_made() -> None:
    obj = fields.with_value(JOB, ("metadata", "labels"), {metadata.QUEUE_NAME: "mine", "team": "blue"})
    assert "is 'mine' in the object and should be 'acme.job'" in refused(KUEUE, TASK, obj)
    kept = plugin.render(KUEUE, TASK, obj, on_conflict="keep")
    assert isinstance(kept, plugin.Rendered)
    assert kept.object == obj
    assert [(a.outcome, a.present) for a in kept.applied] == [("kept the object's", "mine")]
    replaced = plugin.render(KUEUE, TASK, obj, on_conflict="replace")
    assert isinstance(replaced, plugin.Rendered)
    assert metadata.labels_of(replaced.object) == {metadata.QUEUE_NAME: "acme.job", "team": "blue"}
    assert [(a.outcome, a.present) for a in replaced.applied] == [("replaced the object's", "mine")]


@pytest.mark.parametrize(("api_version", "kind"), [("batch/v1", "Job"), ("flux-framework.org/v1alpha2", "MiniCluster")])
def test_a_request_that_is_no_quantity_is_refused_with_its_role(api_version: str, kind: str) -> None:
    obj = plugins.sample(api_version, kind)
    holder = obj["spec"] if kind == "MiniCluster" else obj["spec"]["template"]["spec"]
    holder["containers"][0]["resources"]["requests"]["cpu"] = "much"
    role = "flux" if kind == "MiniCluster" else "main"
    assert f"a request cannot be read: {role}: 'much' is not a quantity" in refused(YUNIKORN, TASK, obj)


def test_older_labels_that_no_longer_count_are_told() -> None:
    obj = fields.with_value(JOB, ("spec", "template", "metadata", "labels"), {"queue": "root.mine"})
    assert any("ignores the label queue" in note for note in rendered(YUNIKORN, TASK, obj).notes)


def test_kueue_ignores_kinds_that_are_switched_off() -> None:
    scheduler = KueuePlugin(QueueConfig("kueue"), frameworks=["pod"])
    assert "batch/job is not among its frameworks" in refused(scheduler, TASK, JOB)


def test_settings_that_kueue_has_no_use_for_are_told() -> None:
    config = QueueConfig("kueue", jobs=(JobSettings("job", Gang(60, "Hard"), True),))
    notes = rendered(plugin.load(config), TASK, JOB).notes
    assert [note.split()[0] for note in notes] == ["gangscheduling", "allow-preemption"]


@pytest.mark.parametrize(
    ("task", "part"),
    [
        (Task("acme", "e", user="7up"), "'7up'"),
        (Task("acme", "e", user="a", groups=("x y",)), "'x y'"),
    ],
)
def test_users_that_yunikorn_would_deny_are_refused(task: Task, part: str) -> None:
    assert part in refused(YUNIKORN, task, JOB)


def test_the_application_id_is_stable_over_retries_and_new_for_an_attempt() -> None:
    def application(execution_id: str) -> str:
        return Submission(Task("acme", execution_id), JOB).application_id

    assert application("n0-0") == application("n0-0") == "job-n0-0"
    assert len({application("n0-0"), application("n0-1"), application("N0-0"), application("n0.0")}) == 4


def test_typed_objects_are_taken_too() -> None:
    container = kubernetes.V1Container(name="c", image_pull_policy="Always")
    template = kubernetes.V1PodTemplateSpec(spec=kubernetes.V1PodSpec(containers=[container]))
    typed = kubernetes.V1Job(
        api_version="batch/v1",
        kind="Job",
        metadata=kubernetes.V1ObjectMeta(name="j"),
        spec=kubernetes.V1JobSpec(template=template, ttl_seconds_after_finished=9),
    )
    result = rendered(KUEUE, TASK, typed).object
    assert result["spec"]["ttlSecondsAfterFinished"] == 9
    assert result["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    with pytest.raises(TypeError, match="pass a dictionary"):
        plugin.render(KUEUE, TASK, "not an object")


def test_other_plugins_come_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "volcano_plugin"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from kyu.workflows.kueue import KueuePlugin\n"
        "class Volcano(KueuePlugin):\n"
        "    name = 'volcano'\n"
        "def broken(config):\n"
        "    raise AssertionError('kyu must not take another plugin of this name')\n"
    )
    info = tmp_path / "volcano_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: volcano-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kyu.schedulers]\nvolcano = volcano_plugin:Volcano\nkueue = volcano_plugin:broken\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(plugin.schedulers()) >= {"volcano", "kueue", "yunikorn"}
    config = queueconfig.parse("queueconfig: {scheduler: volcano}", schedulers=plugin.schedulers())
    assert plugin.load(config).name == "volcano"
    assert plugin.load(QueueConfig("kueue")).name == "kueue"


BAD_VALUES = [
    ("yunikorn", {}, {yunikorn.APP_ID: "a"}, "in annotations"),
    ("yunikorn", {yunikorn.APP_ID: "a b"}, {}, "app-id"),
    ("yunikorn", {yunikorn.QUEUE: "acme.ray"}, {}, "must be root"),
    ("yunikorn", {}, {yunikorn.USER_INFO: "acme.user1"}, "must be JSON"),
    ("yunikorn", {}, {yunikorn.USER_INFO: '{"user":"a","groups":["-"]}'}, "no legal name"),
    ("yunikorn", {}, {yunikorn.TASK_GROUP_NAME: "a"}, "without"),
    ("yunikorn", {}, {yunikorn.ALLOW_PREEMPTION: "yes"}, "true or false"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: "[]", yunikorn.TASK_GROUP_NAME: "a"}, "JSON list"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: '[{"name":"a","minMember":0,"minResource":{}}]'}, "minMember"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: '[{"name":"a","minMember":1}]'}, "minResource must be set"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: '[{"name":"a","minMember":1,"minResource":{"cpu":"-1"}}]'}, "negative"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: '[{"name":"a","minMember":9,"minResource":{"cpu":"9E"}}]'}, "be counted"),
    ("yunikorn", {}, {yunikorn.TASK_GROUPS: '[{"name":"a","minMember":1,"minResource":{},"size":1}]'}, "ignored"),
    ("kueue", {metadata.QUEUE_NAME: "A_b"}, {}, "lower case"),
    ("kueue", {metadata.POD_GROUP_NAME: "g"}, {}, "without"),
    ("kueue", {metadata.POD_GROUP_NAME: "g", metadata.POD_GROUP_TOTAL_COUNT: "2"}, {}, "in labels"),
    ("kueue", {metadata.POD_GROUP_NAME: "g"}, {metadata.POD_GROUP_TOTAL_COUNT: "0"}, "above 0"),
]


@pytest.mark.parametrize(("scheduler", "labels", "annotations", "part"), BAD_VALUES)
def test_rules_find_what_a_scheduler_would_ignore(
    scheduler: str, labels: dict[str, str], annotations: dict[str, str], part: str
) -> None:
    meta = {"labels": labels, "annotations": annotations}
    found = rules.refusals(scheduler, {"metadata": meta}, {("metadata", key): values for key, values in meta.items()})
    assert any(part in refusal.reason for refusal in found)


def test_a_pod_must_be_in_one_of_the_groups() -> None:
    groups = '[{"name":"a","minMember":1,"minResource":{}}]'
    annotations = {yunikorn.TASK_GROUPS: groups, yunikorn.TASK_GROUP_NAME: "b"}
    found = rules.refusals("yunikorn", {}, {("metadata", "annotations"): annotations})
    assert [refusal.reason.rpartition(": ")[2] for refusal in found] == ["it is not among the task groups"]


def test_the_benchmark_renders_every_kind_that_is_not_refused() -> None:
    rows = list(plugins.run(quick=True))
    assert [row.name for row in rows[: len(support.ROWS)]] == [row.kind for row in support.ROWS]
    refused_ones = [row.name for row in rows if "refuses" in row.value]
    assert refused_ones == [row.kind for row in support.ROWS if row.yunikorn == support.WITHOUT_TEMPLATES]
    assert all(row.ratio for row in rows[-2:]), "one figure for each scheduler"


def test_names_that_look_hashed_are_hashed_again() -> None:
    """So no name can equal the safe name of another."""
    assert safe_name(safe_name("Acme Corp")) != safe_name("Acme Corp")
    assert safe_name("acme") == "acme"
