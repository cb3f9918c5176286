"""Bodies in protobuf, encoded here as a typed Go client encodes them."""

from __future__ import annotations

import base64
import struct

import pytest

from kyu.server.decode import protobuf
from kyu.server.errors import StatusError


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    result = b""
    while value > 127:
        result += bytes([value & 127 | 128])
        value >>= 7
    return result + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return block(field, value.encode())


def body(api_version: str, kind: str, *parts: bytes) -> bytes:
    return b"k8s\x00" + block(1, text(1, api_version), text(2, kind)) + block(2, *parts) + text(4, "")


def test_all_fields_of_a_config_map_are_read() -> None:
    metadata = block(1, text(1, "a"), block(11, text(1, "k"), text(2, "v")), text(14, "x/f"))
    data = [
        block(2, text(1, "one"), text(2, "1")),
        block(2, text(1, "empty")),
        block(3, text(1, "b"), block(2, b"\xff")),
    ]
    assert protobuf.decode(body("v1", "ConfigMap", metadata, *data, number(4, 1))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"k": "v"}, "finalizers": ["x/f"]},
        "data": {"one": "1", "empty": ""},
        "binaryData": {"b": base64.b64encode(b"\xff").decode()},
        "immutable": True,
    }


def test_a_job_with_everything_that_has_a_form_of_its_own() -> None:
    requests = block(2, text(1, "cpu"), block(2, text(1, "500m")))
    probe = block(10, block(1, block(2, text(1, "/z"), block(2, number(1, 1), text(3, "http")))))
    container = block(2, text(1, "c"), text(2, "img"), text(4, "--x"), text(4, "--y"), block(8, requests), probe)
    volume = block(1, text(1, "v"), block(2, block(2)))
    template = block(6, block(1), block(2, volume, container, text(3, "Never")))
    created = block(8, number(1, 1767225600), number(2, 0))
    decoded = protobuf.decode(
        body("batch/v1", "Job", block(1, text(1, "j"), created), block(2, number(1, -1), template))
    )
    assert decoded["metadata"] == {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert decoded["spec"]["parallelism"] == -1
    assert decoded["spec"]["template"]["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{
            "name": "c",
            "image": "img",
            "args": ["--x", "--y"],
            "resources": {"requests": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/z", "port": "http"}},
        }],
        "restartPolicy": "Never",
    }  # fmt: skip


def test_a_word_of_another_package_is_a_text() -> None:
    read = protobuf.decode(body("scheduling.k8s.io/v1", "PriorityClass", number(2, 5), text(5, "Never")))
    assert (read["value"], read["preemptionPolicy"]) == (5, "Never")


def test_a_time_that_is_not_set_is_null() -> None:
    decoded = protobuf.decode(body("v1", "Namespace", block(1, text(1, "n"), block(8))))
    assert decoded["metadata"] == {"name": "n", "creationTimestamp": None}


def test_options_are_known_in_every_group() -> None:
    decoded = protobuf.decode(body("batch/v1", "DeleteOptions", number(1, 5), text(4, "Foreground")))
    assert (decoded["gracePeriodSeconds"], decoded["propagationPolicy"]) == (5, "Foreground")


def test_a_review_with_lists_that_are_messages() -> None:
    extra = block(5, text(1, "scopes"), block(2, text(1, "a"), text(1, "b")))
    decoded = protobuf.decode(body("authorization.k8s.io/v1", "SubjectAccessReview", block(2, text(3, "ann"), extra)))
    assert decoded["spec"] == {"user": "ann", "extra": {"scopes": ["a", "b"]}}


def test_fields_of_the_future_are_skipped() -> None:
    unknown = number(900, 1) + block(901, b"x") + varint(902 << 3 | 1) + struct.pack("<d", 1.0)
    decoded = protobuf.decode(body("v1", "Namespace", unknown, block(1, text(1, "n"))))
    assert decoded["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"k8s\x00\xff\xff\xff",
        b"k8s\x00" + block(1, text(1, "v1"), text(2, "Pod"))[:-3],
        body("v1", "Nothing"),
        body("example.com/v1", "Widget"),
        body("v1", "ConfigMap", number(1, 5)),
        body("v1", "Pod", block(1, block(8, number(1, 2**62)))),
        body("v1", "ConfigMap", block(1, block(1, b"\xff\xfe"))),
    ],
)
def test_undecodable_bodies_are_bad_requests(data: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.decode(data)
    assert caught.value.code == 400
