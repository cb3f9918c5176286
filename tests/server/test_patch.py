"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.server.builtin import table
from kyu.server.errors import StatusError
from kyu.server.json_values import clone
from kyu.server.verbs.json_patch import json_patch, merge_patch
from kyu.server.verbs.strategic_merge import strategic_patch


def deployment_schema() -> Any:
    return next(each.schema for each in table.KINDS if each.kind.kind == "Deployment")


def pod(*containers: Json, **spec: Any) -> Json:
    return {"spec": {"template": {"spec": {"containers": list(containers), **spec}}}}


def patched_pod(original: Json, patch: Json) -> Json:
    before = clone(original)
    result: Json = strategic_patch(deployment_schema(), original, patch)["spec"]["template"]["spec"]
    assert original == before, "the original was changed"
    return result


def test_merge_patch_deletes_by_null_and_replaces_lists() -> None:
    original = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merge_patch(original, {"a": {"b": None, "c": [3], "e": {"f": None, "g": 1}}}) == {
        "a": {"c": [3], "e": {"g": 1}},
        "d": 1,
    }
    assert original == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


def test_merge_patch_sets_lists_without_the_nulls_of_their_maps() -> None:
    patch = {"a": [None, {"b": None, "c": {"d": None}}, [{"e": None}]]}
    assert merge_patch({"a": [{"b": 1}]}, patch) == {"a": [None, {"c": {}}, [{}]]}


def test_merge_patch_must_be_an_object() -> None:
    with pytest.raises(StatusError) as caught:
        merge_patch({}, [1])
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/list/1", "value": "x"}], {"list": ["a", "x", "b"], "m": {"k/e": 1}}),
        ([{"op": "add", "path": "/list/-", "value": "x"}], {"list": ["a", "b", "x"], "m": {"k/e": 1}}),
        ([{"op": "remove", "path": "/m/k~1e"}], {"list": ["a", "b"], "m": {}}),
        ([{"op": "replace", "path": "/m/new", "value": 2}], {"list": ["a", "b"], "m": {"k/e": 1, "new": 2}}),
        ([{"op": "replace", "path": "/list/-1", "value": "z"}], {"list": ["a", "z"], "m": {"k/e": 1}}),
        ([{"op": "move", "from": "/list/0", "path": "/first"}], {"list": ["b"], "m": {"k/e": 1}, "first": "a"}),
        ([{"op": "copy", "from": "/m", "path": "/n"}], {"list": ["a", "b"], "m": {"k/e": 1}, "n": {"k/e": 1}}),
        ([{"op": "replace", "path": "", "value": {"a": 1}}, {"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ([{"op": "copy", "from": "/none", "path": "/n"}], {"list": ["a", "b"], "m": {"k/e": 1}, "n": None}),
        ([{"op": "add", "path": "m/n", "value": 2}], {"list": ["a", "b"], "m": {"k/e": 1}, "n": 2}),
        ([{"op": "test", "path": "/m/none", "value": None}], {"list": ["a", "b"], "m": {"k/e": 1}}),
        ([], {"list": ["a", "b"], "m": {"k/e": 1}}),
    ],
)
def test_operations_of_a_json_patch_are_applied_in_order(operations: list[Json], expected: Json) -> None:
    assert json_patch({"list": ["a", "b"], "m": {"k/e": 1}}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "test", "path": "/one", "value": True},
        {"op": "copy", "from": "/list/0", "path": "/x"},
        {"op": "frob", "path": "/one"},
        {"op": "add", "path": "one", "value": 1},
        None,
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operation: Json | None) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({"one": 1, "list": []}, [operation])
    assert (caught.value.code, caught.value.details) == (422, {})


@pytest.mark.parametrize("operations", [{}, [1], [{"path": 1}]])
def test_invalid_json_patches_are_bad_requests(operations: Any) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({}, operations)
    assert caught.value.code == 400


def test_items_merge_by_their_key_and_keep_their_place() -> None:
    original = pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"})
    result = patched_pod(original, pod({"name": "b", "image": "2"}))
    assert result["containers"] == [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]


def test_new_items_come_before_those_that_the_patch_does_not_name() -> None:
    result = patched_pod(pod({"name": "a"}), pod({"name": "n"}))
    assert [each["name"] for each in result["containers"]] == ["n", "a"]
    result = patched_pod(pod({"name": "a"}, {"name": "b"}), pod({"name": "b"}, {"name": "n"}))
    assert [each["name"] for each in result["containers"]] == ["a", "b", "n"]


def test_an_order_may_be_given() -> None:
    patch = {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}}}
    result = patched_pod(pod({"name": "a"}, {"name": "b"}), patch)
    assert [each["name"] for each in result["containers"]] == ["b", "a"]


def test_directives_on_items_of_a_list() -> None:
    original = pod({"name": "a"}, {"name": "b"})
    assert patched_pod(original, pod({"name": "a", "$patch": "delete"}))["containers"] == [{"name": "b"}]
    assert patched_pod(original, pod({"$patch": "replace"}, {"name": "c"}))["containers"] == [{"name": "c"}]


def test_lists_without_a_key_are_replaced_and_sets_are_joined() -> None:
    original = pod({"name": "a", "args": ["x"]}, tolerations=[{"key": "k"}])
    result = patched_pod(original, pod({"name": "a", "args": ["y"]}, tolerations=[]))
    assert result == {"containers": [{"name": "a", "args": ["y"]}], "tolerations": []}
    metadata = {"metadata": {"finalizers": ["x/a", "x/b"]}}
    joined = strategic_patch(deployment_schema(), metadata, {"metadata": {"finalizers": ["x/c", "x/b"]}})
    assert joined["metadata"]["finalizers"] == ["x/c", "x/a", "x/b"]


def test_values_leave_a_list_by_name() -> None:
    metadata = {"metadata": {"finalizers": ["x/a", "x/b"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}}
    assert strategic_patch(deployment_schema(), metadata, patch) == {"metadata": {"finalizers": ["x/b"]}}


def test_maps_are_replaced_deleted_or_cut_by_directives() -> None:
    labels = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    schema = deployment_schema()
    assert strategic_patch(schema, labels, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}) == {
        "metadata": {"labels": {"c": "3"}}
    }
    assert strategic_patch(schema, labels, {"metadata": {"labels": {"$patch": "delete"}}}) == {"metadata": {}}
    assert strategic_patch(schema, {}, {"metadata": {"$patch": "replace", "labels": {"c": "3"}}}) == {}
    original = pod({"name": "a"}, volumes=[{"name": "v", "emptyDir": {}}])
    patch = pod(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}])
    assert patched_pod(original, patch)["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_an_item_without_its_key_is_an_error() -> None:
    with pytest.raises(StatusError) as caught:
        patched_pod(pod({"name": "a"}), pod({"image": "x"}))
    assert caught.value.code == 500


@pytest.mark.parametrize(
    "directive", ["$retainKeys", "$setElementOrder/finalizers", "$deleteFromPrimitiveList/finalizers"]
)
def test_a_directive_needs_a_list(directive: str) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_patch(deployment_schema(), {"metadata": {"finalizers": ["x/a"]}}, {"metadata": {directive: 5}})
    assert caught.value.code == 400
