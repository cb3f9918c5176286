"""The names of a CustomResourceDefinition: the first definition keeps a name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kyu.api.meta import Json
from kyu.server.crd import names as crd_names

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OVEN = {"plural": "ovens", "singular": "oven", "shortNames": ["ov"], "kind": "Oven", "listKind": "OvenList"}
STOVE = {"plural": "stoves", "singular": "stove", "shortNames": ["st"], "kind": "Stove", "listKind": "StoveList"}
NONE = {"plural": "", "kind": ""}


def told(status: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def definition(names: Json, status: Json | None = None) -> Json:
    return {"spec": {"names": names, "versions": [{"name": "v1", "storage": True}]}, "status": status or {}}


def test_free_names_are_given() -> None:
    acceptance = crd_names.accept(OVEN, NONE, [STOVE])
    assert acceptance.is_complete
    assert acceptance.names == OVEN


@pytest.mark.parametrize(
    ("said", "reason", "message"),
    [
        ({"singular": "stoves"}, "SingularConflict", '"stoves" is already in use'),
        ({"shortNames": ["st"]}, "ShortNamesConflict", '"st" is already in use'),
        ({"shortNames": ["st", "ov", "stove"]}, "ShortNamesConflict",
         '["st" is already in use, "stove" is already in use]'),
        ({"kind": "Stove"}, "KindConflict", '"Stove" is already in use'),
        ({"kind": "Stove", "listKind": "StoveList"}, "ListKindConflict", '"StoveList" is already in use'),
    ],
)  # fmt: skip
def test_a_name_that_another_has_is_not_given(said: Json, reason: str, message: str) -> None:
    acceptance = crd_names.accept({**OVEN, **said}, NONE, [STOVE])
    assert (acceptance.reason, acceptance.message) == (reason, message)
    assert acceptance.names["plural"] == "ovens"
    assert not any(acceptance.names.get(name) == value for name, value in said.items())


def test_a_kind_may_be_called_like_a_resource() -> None:
    assert crd_names.accept({**OVEN, "kind": "stoves"}, NONE, [STOVE]).is_complete


def test_a_name_that_was_given_stays() -> None:
    assert crd_names.accept(OVEN, OVEN, [{"shortNames": ["ov"]}]).is_complete


def test_a_kind_is_established_when_it_has_its_names() -> None:
    refused = crd_names.status_of(definition(STOVE), crd_names.accept(STOVE, NONE, [STOVE]), NOW)
    assert told(refused) == {
        "NamesAccepted": ("False", "ListKindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    later = NOW + timedelta(minutes=1)
    free = crd_names.status_of(definition(STOVE, refused), crd_names.accept(STOVE, NONE, []), later)
    assert told(free) == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
    assert free["acceptedNames"] == STOVE
    assert free["storedVersions"] == ["v1"]
    assert crd_names.status_of(definition(STOVE, free), crd_names.accept(STOVE, STOVE, []), NOW) == free


def test_a_kind_that_is_established_stays_so() -> None:
    served = crd_names.status_of(definition(OVEN), crd_names.accept(OVEN, NONE, []), NOW)
    renamed = {**OVEN, "singular": "stove"}
    status = crd_names.status_of(definition(renamed, served), crd_names.accept(renamed, OVEN, [STOVE]), NOW)
    assert told(status)["Established"] == ("True", "InitialNamesAccepted")
    assert told(status)["NamesAccepted"] == ("False", "SingularConflict")
    assert status["acceptedNames"] == OVEN
