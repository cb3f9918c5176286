"""Label and field selectors: matches, and the words of errors."""

from __future__ import annotations

import pytest

from kyu.server import selectors
from kyu.server.builtin import table
from kyu.server.builtin.kind import BuiltinKind
from kyu.server.errors import StatusError
from kyu.server.selectors import FieldLabels, custom_labels, parse_fields, parse_labels

LABELS = {"app": "web", "tier": "", "size": "10", "kueue.x-k8s.io/queue-name": "main"}


@pytest.mark.parametrize(
    "text",
    [
        "", "app=web", "app==web", "app!=db", "none!=x", "app in (web, db)", "app notin (db)", "none notin (x)", "app",
        "!none", "size>9", "size<11", "tier=", "tier in ()", "tier in (a,)", " app = web , size > 3 ",
        "kueue.x-k8s.io/queue-name in (main),app", "app in (web),!none", "! none",
    ],
)  # fmt: skip
def test_a_label_selector_that_matches(text: str) -> None:
    assert parse_labels(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    ["app=db", "app!=web", "none", "!app", "size>10", "app>3", "none=x", "app in ()", "app,none", "app notin (web)"],
)
def test_a_label_selector_that_does_not_match(text: str) -> None:
    assert not parse_labels(text).matches(LABELS)


def test_an_object_without_labels_has_none() -> None:
    assert parse_labels("!app").matches(None)
    assert not parse_labels("app").matches(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
    ],
)
def test_errors_of_label_selectors(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(text)
    assert (caught.value.code, caught.value.message) == (400, message)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("-a=b", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be'),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must",
        ),
        ("a/b/c", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of'),
    ],
)
def test_keys_and_values_are_checked(text: str, part: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(text)
    assert caught.value.message.startswith(part)


def row(group: str, kind: str) -> BuiltinKind:
    return next(each for each in table.KINDS if (each.kind.group, each.kind.kind) == (group, kind))


def test_field_selectors_of_pods() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}}
    labels = row("", "Pod").field_labels
    for text in ("spec.nodeName=x", "status.phase!=Failed,metadata.name==p", "spec.hostNetwork=false", "status.podIP="):
        assert parse_fields(text, labels).matches(pod), text
    assert not parse_fields("spec.nodeName=x,status.phase=Failed", labels).matches(pod)


def test_field_selectors_of_other_kinds() -> None:
    assert parse_fields("status.successful=3", row("batch", "Job").field_labels).matches({"status": {"succeeded": 3}})
    assert parse_fields("status.successful=0", row("batch", "Job").field_labels).matches({"status": {}})
    event = {"involvedObject": {"kind": "Pod"}, "source": {"component": "kyu"}}
    assert parse_fields("involvedObject.kind=Pod,source=kyu", row("", "Event").field_labels).matches(event)
    assert parse_fields("spec.color=red", custom_labels((".spec.color",), namespaced=True)).matches(
        {"spec": {"color": "red"}}
    )


def test_the_terms_of_equality_can_be_looked_up() -> None:
    selector = parse_fields("metadata.name=a,metadata.namespace!=b", FieldLabels())
    assert selector.equal == {"metadata.name": "a"}


def test_escaped_characters_in_a_value() -> None:
    assert parse_fields(r"metadata.name=a\,b\=c", FieldLabels()).matches({"metadata": {"name": "a,b=c"}})


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        (
            "spec.x=1",
            FieldLabels(),
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("spec.x=1", custom_labels((), namespaced=True), "field label not supported: spec.x"),
        ("spec.x=1", FieldLabels({}, table.JOB_REFUSAL), 'field label "spec.x" not supported for Job'),
        ("bogus", FieldLabels(), "invalid selector: 'bogus'; can't understand 'bogus'"),
        (r"metadata.name=a\b", FieldLabels(), r"invalid field selector: invalid escape sequence: \b"),
        ("metadata.name=a=b", FieldLabels(), "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_errors_of_field_selectors(text: str, labels: FieldLabels, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_fields(text, labels)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_a_value_is_read_as_text() -> None:
    assert selectors.at("a.b")({"a": {"b": True}}) == "true"
    assert selectors.at("a.b")({"a": {"b": 3}}) == "3"
    assert selectors.at("a.b")({"a": "x"}) == ""


@pytest.mark.parametrize("values", [[f"v{number}" for number in range(3_000)], ["v"] * 3_000])
def test_too_many_values_of_a_label_are_refused(values: list[str]) -> None:
    with pytest.raises(StatusError, match="at most"):
        parse_labels(f"k in ({','.join(values)})")
    assert parse_labels(f"k in ({','.join(values[:1_000])})")
