"""The front proxy: which ConfigMap names it, and which users its headers name."""

from __future__ import annotations

import pytest

from kyu.api.meta import Json
from kyu.server.exchange import User
from kyu.visibility.front_proxy import common_names, encode_header, read_proxy

DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
}


def header(*values: str) -> str:
    """Return the value of a header that is sent several times, as a connection joins it."""
    return ",".join(encode_header(value.encode()).decode("latin-1") for value in values)


@pytest.mark.parametrize(
    ("user", "groups"),
    [("ann", ()), ("ann", ("staff", "system:authenticated")), ("änne, 50%2C", ("cn=a,ou=system:masters", "100%25"))],
)
def test_the_user_is_the_one_of_the_headers(user: str, groups: tuple[str, ...]) -> None:
    proxy = read_proxy({"data": DATA})
    assert proxy is not None
    headers = {"x-remote-user": header(user), "x-remote-group": header(*groups)}
    assert proxy.find_user(headers) == User(user, groups)


def test_a_request_without_a_user_has_none() -> None:
    proxy = read_proxy({"data": DATA})
    assert proxy is not None
    assert proxy.find_user({"x-remote-group": "system:masters"}) is None


@pytest.mark.parametrize(
    "config_map",
    [None, {}, {"data": {}}, {"data": {**DATA, "requestheader-allowed-names": "front-proxy-client"}}],
)
def test_without_settings_there_is_no_proxy(config_map: Json | None) -> None:
    assert read_proxy(config_map) is None


def test_the_name_of_a_certificate_is_its_common_name() -> None:
    subject = ((("organizationName", "system:masters"),), (("commonName", "front-proxy-client"),))
    assert common_names({"subject": subject}) == {"front-proxy-client"}
