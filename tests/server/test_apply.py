"""Server-side apply and managedFields: the owners of fields after each write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api.meta import Json
from kyu.server.errors import StatusError
from kyu.server.fieldmanager import manager as managed
from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.manager import FieldManager
from kyu.server.fieldmanager.objects import merged_order
from kyu.server.schema.node import Schema

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHELF = Schema({
    "type": "object",
    "properties": {
        "metadata": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
        "spec": {
            "type": "object",
            "properties": {
                "height": {"type": "integer"},
                "plain": {"type": "array", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "nested": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "books": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["title", "edition"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "title": {"type": "string"},
                            "edition": {"type": "integer", "default": 1},
                            "owner": {"type": "string"},
                        },
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"full": {"type": "boolean"}}},
    },
})  # fmt: skip


def apply(
    live: Json | None, manager: str, spec: Json, *, force: bool = False, now: datetime = NOON, **more: Any
) -> Json:
    config = {"apiVersion": "lib/v1", "kind": "Shelf", "metadata": {"name": "s"}, "spec": spec, **more}
    return managed.apply(SHELF, live, config, FieldManager(manager, "lib/v1", now), force=force)


def update(live: Json | None, manager: str, spec: Json, **metadata: Any) -> Json:
    new = {"metadata": {"name": "s", "uid": "1", **metadata}, "spec": spec}
    return managed.track_update(SHELF, live, new, FieldManager(manager, "lib/v1", NOON))


def owned(obj: Json) -> dict[str, Json]:
    """Return the fields of each manager; a star marks managers that did not apply."""
    entries = obj["metadata"].get("managedFields", [])
    return {entry["manager"] + "*" * (entry["operation"] == "Update"): entry["fieldsV1"] for entry in entries}


def test_an_applier_owns_exactly_the_fields_of_its_configuration() -> None:
    shelf = apply(None, "ann", {"height": 3, "plain": ["x"], "whole": {"k": "v"}, "nested": {}})
    leaves: Json = {"f:height": {}, "f:plain": {}, "f:whole": {}, "f:nested": {}}
    assert owned(shelf) == {"ann": {"f:spec": leaves}}
    assert shelf["metadata"]["managedFields"][0]["time"] == "2026-01-01T12:00:00Z"


def test_items_of_a_list_are_owned_by_their_keys_with_defaults() -> None:
    shelf = apply(None, "ann", {"books": [{"title": "t"}]})
    key = 'k:{"edition":1,"title":"t"}'
    assert owned(shelf) == {"ann": {"f:spec": {"f:books": {key: {".": {}, "f:title": {}}}}}}


def test_keys_of_a_map_and_unknown_fields_are_owned_one_by_one() -> None:
    config = {"free": {"deep": {"x": 1}}}
    shelf = apply(None, "ann", config)
    assert owned(shelf)["ann"] == {"f:spec": {"f:free": {"f:deep": {".": {}, "f:x": {}}}}}


def test_fields_that_an_applier_drops_are_removed() -> None:
    shelf = apply(None, "ann", {"height": 3, "nested": {"a": "1"}, "books": [{"title": "t"}, {"title": "u"}]})
    shelf = apply(shelf, "ann", {"height": 3, "books": [{"title": "u"}]})
    assert shelf["spec"] == {"height": 3, "books": [{"title": "u"}]}


def test_fields_of_another_owner_stay() -> None:
    shelf = apply(None, "ann", {"height": 3, "nested": {"a": "1"}})
    shelf = apply(shelf, "bob", {"nested": {"a": "1", "b": "2"}})
    shelf = apply(shelf, "ann", {"height": 3})
    assert shelf["spec"] == {"height": 3, "nested": {"a": "1", "b": "2"}}
    assert owned(shelf)["ann"] == {"f:spec": {"f:height": {}}}


def test_the_last_owner_takes_an_unowned_neighbour_with_it() -> None:
    shelf = apply(None, "ann", {"height": 3, "nested": {"a": "1"}})
    shelf["spec"]["nested"]["b"] = "a default without an owner"
    assert apply(shelf, "ann", {"height": 3})["spec"] == {"height": 3}


def test_an_emptied_map_becomes_null() -> None:
    shelf = apply(None, "ann", {"height": 3, "nested": {"a": "1"}})
    assert apply(shelf, "ann", {"height": 3, "nested": {}})["spec"] == {"height": 3, "nested": None}


def test_another_value_for_an_owned_field_is_a_conflict() -> None:
    shelf = apply(None, "ann", {"height": 3, "books": [{"title": "t", "owner": "ann"}]})
    with pytest.raises(StatusError) as caught:
        apply(shelf, "bob", {"height": 4, "books": [{"title": "t", "owner": "bob"}]})
    fields = [cause["field"] for cause in caught.value.status()["details"]["causes"]]
    assert fields == ['.spec.books[edition=1,title="t"].owner', ".spec.height"]
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "ann":\n- .spec.books[edition=1,title="t"].owner\n- .spec.height'
    )


def test_a_plain_writer_is_named_with_its_version_in_a_conflict() -> None:
    shelf = update(None, "ctl", {"height": 3})
    with pytest.raises(StatusError) as caught:
        apply(shelf, "bob", {"height": 4})
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "ctl" using lib/v1: .spec.height'


def test_force_takes_value_and_ownership() -> None:
    shelf = apply(None, "ann", {"height": 3, "plain": ["x"]})
    shelf = apply(shelf, "bob", {"height": 4}, force=True)
    assert shelf["spec"]["height"] == 4
    assert owned(shelf) == {"ann": {"f:spec": {"f:plain": {}}}, "bob": {"f:spec": {"f:height": {}}}}


def test_an_apply_that_only_joins_owners_gets_no_time() -> None:
    shelf = apply(apply(None, "ann", {"height": 3}), "bob", {"height": 3})
    times = {entry["manager"]: entry.get("time") for entry in shelf["metadata"]["managedFields"]}
    assert times == {"ann": "2026-01-01T12:00:00Z", "bob": None}


def test_entries_stand_by_operation_then_time_then_name() -> None:
    shelf = apply(None, "zoe", {"height": 3})
    shelf = apply(shelf, "ann", {"plain": ["a"]})
    shelf = update(shelf, "bob", {"height": 3, "plain": ["a"], "free": {"x": 1}})
    assert list(owned(shelf)) == ["ann", "zoe", "bob*"]
    # Entries are sorted by time before name.
    shelf = apply(shelf, "ann", {"plain": ["b"]}, now=NOON + timedelta(seconds=1))
    assert list(owned(shelf)) == ["zoe", "ann", "bob*"]


def test_an_apply_that_changes_nothing_is_settled_whatever_the_time() -> None:
    shelf = apply(None, "ann", {"height": 3})
    again = apply(shelf, "ann", {"height": 3}, now=NOON + timedelta(hours=1))
    assert managed.is_settled(shelf, again)
    joined = apply(shelf, "bob", {"height": 3})
    assert not managed.is_settled(shelf, joined)


def test_fields_before_the_first_apply_have_an_owner() -> None:
    untracked = {"metadata": {"name": "s"}, "spec": {"height": 3, "plain": ["x"]}}
    with pytest.raises(StatusError, match="before-first-apply"):
        apply(untracked, "ann", {"height": 4})
    shelf = apply(untracked, "ann", {"height": 3})
    assert owned(shelf) == {
        "ann": {"f:spec": {"f:height": {}}},
        "before-first-apply*": {"f:spec": {".": {}, "f:height": {}, "f:plain": {}}},
    }


def test_status_and_spec_have_entries_of_their_own() -> None:
    shelf = apply(None, "ann", {"height": 3}, status={"full": True})
    assert "status" not in shelf
    config = {"metadata": {"name": "s"}, "spec": {"height": 9}, "status": {"full": True}}
    writer = FieldManager("ann", "lib/v1", NOON, "status", managed.resets_of(SHELF, "status"))
    shelf = managed.apply(SHELF, shelf, config, writer, force=False)
    assert (shelf["spec"], shelf["status"]) == ({"height": 3}, {"full": True})
    entries = {entry.get("subresource", ""): entry["fieldsV1"] for entry in shelf["metadata"]["managedFields"]}
    assert entries == {"": {"f:spec": {"f:height": {}}}, "status": {"f:status": {"f:full": {}}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"height": "x"}, ".spec.height: expected numeric (int or float), got string"),
        ({"books": [{"title": "t"}, {"title": "t"}]}, '.spec.books: duplicate entries for key [edition=1,title="t"]'),
        ({"plain": {}}, ".spec.plain: expected list, got &{map[]}"),
        ({"x": 1, "height": "y"}, ".spec.x: field not declared in schema"),
        ({"books": [{"owner": "ann"}]}, None),
        (
            {"height": "x", "nested": {"c": "1"}},
            "errors:\n  .spec.height: expected numeric (int or float), got string"
            "\n  .spec.nested.c: field not declared in schema",
        ),
    ],
)
def test_values_that_do_not_fit_the_schema_cannot_be_applied(spec: Json, expected: str | None) -> None:
    if expected is None:
        assert apply(None, "ann", spec)["spec"] == spec
        return
    with pytest.raises(StatusError) as caught:
        apply(None, "ann", spec)
    assert caught.value.code == 500
    assert caught.value.message == f"failed to create typed patch object (/s; lib/v1, Kind=Shelf): {expected}"


def test_nothing_cannot_be_an_item_of_a_set() -> None:
    text = "element 1: associative list without keys has an element that's an explicit null"
    with pytest.raises(StatusError, match=text):
        apply(None, "ann", {}, metadata={"name": "s", "finalizers": ["x.com/a", None]})


def test_a_plain_writer_owns_what_it_changed() -> None:
    shelf = update(None, "one", {"height": 3, "nested": {"a": "1"}}, labels={"l": "1"})
    everything: Json = {".": {}, "f:height": {}, "f:nested": {".": {}, "f:a": {}}}
    assert owned(shelf) == {"one*": {"f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:spec": everything}}
    shelf = update(shelf, "two", {"height": 4, "nested": {"a": "1", "b": "2"}}, labels={"l": "1"})
    assert owned(shelf)["two*"] == {"f:spec": {"f:height": {}, "f:nested": {"f:b": {}}}}
    assert owned(shelf)["one*"]["f:spec"] == {".": {}, "f:nested": {".": {}, "f:a": {}}}


def test_a_value_that_becomes_a_map_is_owned_with_its_fields() -> None:
    shelf = update(None, "one", {"free": {"a": 1, "b": {"c": 1}}})
    shelf = update(shelf, "two", {"free": {"a": {"d": [1], "e": {}}, "b": 2}})
    assert owned(shelf) == {
        "one*": {"f:spec": {".": {}, "f:free": {}}},
        "two*": {"f:spec": {"f:free": {"f:a": {".": {}, "f:d": {}, "f:e": {}}, "f:b": {}}}},
    }


def test_items_with_the_same_keys_are_owned_without_their_fields() -> None:
    twice = [{"title": "t", "edition": 1}, {"title": "t", "edition": 1, "owner": "o"}]
    shelf = update(None, "one", {"books": twice})
    assert owned(shelf)["one*"]["f:spec"]["f:books"] == {".": {}, 'k:{"edition":1,"title":"t"}': {}}
    shelf = update(shelf, "two", {"books": twice[:1]})
    assert owned(shelf)["two*"] == {"f:spec": {"f:books": {'k:{"edition":1,"title":"t"}': {}}}}


def test_a_removed_field_has_no_owner() -> None:
    shelf = update(update(None, "one", {"height": 3, "plain": ["x"]}), "two", {"height": 3})
    assert owned(shelf) == {"one*": {"f:spec": {".": {}, "f:height": {}}}}


def test_a_plain_write_that_changes_nothing_leaves_no_trace() -> None:
    shelf = update(None, "one", {"height": 3})
    assert update(shelf, "two", {"height": 3}) == shelf


@pytest.mark.parametrize("given", [[], [{}]])
def test_a_client_can_end_the_tracking(given: list[Json]) -> None:
    shelf = update(update(None, "one", {"height": 3}), "two", {"height": 4}, managedFields=given)
    assert "managedFields" not in shelf["metadata"]
    assert "managedFields" not in update(shelf, "two", {"height": 5})["metadata"]
    assert set(owned(apply(shelf, "ann", {"height": 4}))) == {"ann", "before-first-apply*"}


def test_a_client_can_replace_the_entries_but_not_with_nonsense() -> None:
    shelf = update(None, "one", {"height": 3})
    entry = {"manager": "ann", "operation": "Apply", "apiVersion": "lib/v1", "fieldsType": "FieldsV1"}
    valid = {**entry, "fieldsV1": {"f:spec": {"f:height": {}}}}
    assert owned(update(shelf, "two", {"height": 3}, managedFields=[valid])) == {"ann": valid["fieldsV1"]}
    for nonsense in ({**valid, "operation": "Bogus"}, {**valid, "fieldsV1": {"x": {}}}, {**valid, "apiVersion": ""}):
        assert set(owned(update(shelf, "two", {"height": 3}, managedFields=[nonsense]))) == {"one*"}


def test_the_oldest_entries_are_merged_into_one() -> None:
    shelf = update(None, "w00", {"free": {}})
    for number in range(1, 12):
        spec = {"free": {f"k{n}": n for n in range(number)}}
        shelf = update(shelf, f"w{number:02}", spec)
    managers = [entry["manager"] for entry in shelf["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert "w11" in managers


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ("ab", "c", "abc"),
        ("abc", "cb", "acb"),
        ("axb", "ba", "xba"),
        ("axby", "nbm", "axnbym"),
        ("abcz", "bac", "bzac"),
    ],
)
def test_the_order_of_a_merged_list(live: str, applied: str, expected: str) -> None:
    assert "".join(merged_order(live, applied)) == expected


def test_kubectl_takes_over_what_it_applied_on_the_client() -> None:
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    last = '{"spec":{"height":3,"plain":["x"]}}'
    shelf = update(None, "kubectl-client-side-apply", {"height": 3, "plain": ["y"]}, annotations={annotation: last})
    with pytest.raises(StatusError, match=r"using lib/v1: \.spec\.height"):
        apply(shelf, "other", {"height": 4})
    with pytest.raises(StatusError, match=r"using lib/v1: \.spec\.plain"):
        apply(shelf, "kubectl", {"height": 4, "plain": ["z"]})
    taken = apply(shelf, "kubectl", {"height": 4})
    assert taken["spec"] == {"height": 4, "plain": ["y"]}
    applied = '{"apiVersion":"lib/v1","kind":"Shelf","metadata":{"name":"s"},"spec":{"height":4}}\n'
    assert taken["metadata"]["annotations"] == {annotation: applied}


NAMES = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
SETS: st.SearchStrategy[Json] = st.recursive(
    st.just({}),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=3)
        | st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda node: {**node, ".": {}})
    ),
    max_leaves=8,
)
ROOTS = st.dictionaries(NAMES, SETS, max_size=3)


@given(ROOTS, ROOTS)
def test_set_operations_on_fields_are_those_of_sets(left: Json, right: Json) -> None:
    """Set operations on fields are those of sets of paths, and leave their operands unchanged."""
    mine, theirs = set(sets.paths(left)), set(sets.paths(right))
    before = repr((left, right))
    assert set(sets.paths(sets.union(left, right))) == mine | theirs
    assert set(sets.paths(sets.difference(left, right))) == mine - theirs
    assert set(sets.paths(sets.intersection(left, right))) == mine & theirs
    assert repr((left, right)) == before


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "height": st.integers(0, 3),
        "plain": st.lists(st.sampled_from(["x", "y"]), max_size=2),
        "nested": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), min_size=1),
        "books": st.lists(
            st.fixed_dictionaries({"title": st.sampled_from(["t", "u", "v"])}, optional={"owner": st.just("me")}),
            min_size=1,
            unique_by=lambda book: book["title"],
        ),
    },
).filter(bool)


@given(SPECS, SPECS)
def test_an_apply_alone_makes_exactly_its_configuration(first: Json, second: Json) -> None:
    """With one manager and no defaults, an apply replaces, and a second apply changes nothing."""
    shelf = apply(apply(None, "ann", first), "ann", second)
    assert _ordered(shelf.get("spec", {})) == _ordered(second)
    assert managed.is_settled(shelf, apply(shelf, "ann", second))


def _ordered(spec: Json) -> Json:
    if "books" in spec:
        spec = {**spec, "books": sorted(spec["books"], key=lambda book: str(book["title"]))}
    return spec
