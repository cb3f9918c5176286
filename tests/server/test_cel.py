"""The quick yes of CEL rules: it never says yes where the library does not, and says yes to simple rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.server.schema import cel, cel_quick

pytestmark = pytest.mark.skipif(not cel.IS_AVAILABLE, reason="there is no CEL library for this platform")

scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "x", "True"]), st.just(1.0))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
operands = st.sampled_from(["self", "self.a", "self.b.c", "oldSelf.a", "1", "'x'", "true", "self.a.size()", "v"])
atoms = st.one_of(
    st.sampled_from(["has(self.a)", "has(self.a.b)", "has(oldSelf.c)", "self.a in [1, 2]", "self.b in ['x']"]),
    st.builds("{} {} {}".format, operands, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), operands),
)
rules = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("!({})".format, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner),
        st.builds("({})".format, inner),
        st.builds("self.a.{}(v, {})".format, st.sampled_from(["all", "exists"]), inner),
    ),
    max_leaves=4,
)


@given(rules, values, values)
def test_a_quick_yes_is_a_yes_of_the_library(source: str, value: Any, old: Any) -> None:
    program = cel_quick.compile_rule(source)
    if program is None or not cel_quick.is_certainly_true(program, value, old):
        return
    try:
        compiled = cel.compile_rule({"rule": source}).program
    except cel.RuleError:
        # The rule names an unknown variable in a part that the quick check skips. Its definition is rejected.
        return
    activation = cel.environment().Activation({"self": value, "oldSelf": old, "oldValues": []})
    assert compiled.eval(activation).value() is True


@pytest.mark.parametrize(
    "source",
    [
        "!has(self.minimum) || self.minimum <= self.count",
        "self.items.all(i, has(i.key) || i.operator == 'Exists')",
        "self.items.exists(i, i.key == 'b' && i.operator != \"Equal\")",
        "self.items.size() == 2 && self.items.size() <= 2",
        "oldSelf.items == self.items",
        "self.name in ['x', 'y']",
        "!(has(self.missing) && self.missing.deeper == 1)",
    ],
)
def test_plain_rules_pass_at_a_glance(source: str) -> None:
    items = [{"key": "a", "operator": "Equal"}, {"key": "b", "operator": "Exists"}]
    value = {"count": 3, "name": "y", "items": items}
    program = cel_quick.compile_rule(source)
    assert program is not None
    assert cel_quick.is_certainly_true(program, value, {"items": items})


@pytest.mark.parametrize(
    "source",
    [
        "self.a + 1 == 2",
        "self.?a.orValue(1) == 1",
        "self.a == null",
        "self.a[0] == 1",
        "has(self)",
        "a ? b : c",
        "'\\n'",
    ],
)
def test_other_rules_are_left_to_the_library(source: str) -> None:
    assert cel_quick.compile_rule(source) is None


def test_missing_fields_and_other_types_are_left_to_the_library() -> None:
    program = cel_quick.compile_rule("self.a == 1 || true")
    assert program is not None
    assert [cel_quick.is_certainly_true(program, value, None) for value in ({"a": 2}, {"a": True}, {}, 7)] == [
        True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("self.list.all(i, i == 1) && has(self.a)", False),
        ("!(self.list.exists(i, i == 1) && has(self.a)) || has(self.b)", True),
        ("!(has(self.a) && self.list.exists(i, i == 1) && has(self.b)) || self.a.b == 1", True),
    ],
)
def test_operands_that_walk_lists_come_last(source: str, wanted: bool) -> None:
    """An operand that would raise is not evaluated if another one decides."""
    program = cel_quick.compile_rule(source)
    assert program is not None
    assert program({"list": 1}, None) is wanted


def test_operands_without_has_come_last() -> None:
    program = cel_quick.compile_rule("!(has(self.a) && self.list.exists(i, i == 1)) || self.a.b == 1 || has(self.c)")
    assert program is not None
    assert program({"list": 1}, None) is True
    assert program({"list": 1, "a": {}, "c": 1}, None) is True
