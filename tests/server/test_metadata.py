"""Metadata: the quick check of custom objects agrees with the decoder."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kyu.api.meta import Json
from kyu.server import metadata as server_metadata
from kyu.server.crd import custom_metadata
from kyu.server.schema import typed
from kyu.server.schema.published import object_meta

TIMES = [
    "2026-01-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-01-31T23:59:59.5Z", "2026-01-31T23:59:59+01:00", "soon",
    "20260131T235959.123Z", "2026-W01-1T00:00:00Z", "2026-01-31 23:59:59Z",
]  # fmt: skip
texts = st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.text("xy", max_size=2), st.integers(), st.none()))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.just(2**63),
    st.text("xy", max_size=2),
    st.sampled_from(TIMES),
    texts,
)
FIELDS = [*object_meta().properties, "bogus"]
metadata = st.dictionaries(st.sampled_from([name for name in FIELDS if name != "managedFields"]), values)


def read_new(given_metadata: Any) -> tuple[Json, list[str]]:
    return custom_metadata.read(given_metadata, {})


def outcome(read: Any, given_metadata: Json) -> Any:
    try:
        return read(given_metadata)
    except typed.TypeMismatch as error:
        return str(error)


@given(metadata)
@example({"creationTimestamp": TIMES[0], "labels": {"a": "x"}, "generation": 1})
def test_the_quick_reading_is_that_of_the_type(body: Json) -> None:
    slow = outcome(lambda each: typed.decode(object_meta(), each, "ObjectMeta"), body)
    assert outcome(read_new, body) == slow


@pytest.mark.parametrize("text", TIMES)
def test_times_are_canonical_or_looked_at(text: str) -> None:
    test = {"name": "x", "creationTimestamp": text}
    slow = outcome(lambda each: typed.decode(object_meta(), each, "ObjectMeta"), test)
    assert outcome(read_new, test) == slow


def test_managed_fields_are_passed_by() -> None:
    given_metadata = {"name": "x", "labels": {}, "managedFields": [{"odd": 1}]}
    assert read_new(given_metadata) == ({"name": "x", "managedFields": [{"odd": 1}]}, [])


@pytest.mark.parametrize("entries", ["x", [1], [{}, 1]])
def test_managed_fields_are_entries(entries: object) -> None:
    with pytest.raises(typed.TypeMismatch, match=r"managedFields of type"):
        read_new({"name": "x", "managedFields": entries})


def test_metadata_shared_with_the_stored_object_is_not_decoded_again() -> None:
    stored: Json = {"name": "x", "finalizers": ["example.com/a"]}
    assert custom_metadata.read({**stored, "labels": {"a": "b"}}, stored) == ({**stored, "labels": {"a": "b"}}, [])
    assert custom_metadata.read({**stored, "odd": 1}, stored) == (stored, ["odd"])
    assert custom_metadata.read({"name": None}, stored) == ({}, [])


def test_uids_are_random_uuids() -> None:
    found = [uuid.UUID(server_metadata.new_uid()) for _ in range(64)]
    assert {(each.version, each.variant) for each in found} == {(4, uuid.RFC_4122)}
    assert len(set(found)) == 64


def test_normalized_metadata_keeps_numbers_and_drops_empty_values() -> None:
    given_metadata = {"finalizers": [], "odd": 1, "deletionGracePeriodSeconds": 0, "labels": {}, "uid": "", "name": "x"}
    normalized = server_metadata.normalize({"spec": 1, "kind": "K", "metadata": given_metadata})
    assert list(normalized["metadata"].items()) == [("name", "x"), ("deletionGracePeriodSeconds", 0), ("odd", 1)]
    assert list(normalized) == ["metadata", "spec"]
