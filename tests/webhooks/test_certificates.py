"""The certificates of the webhooks over the years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kyu.server.auth import certificates as pairs
from kyu.webhooks import certificates
from kyu.webhooks.certificates import Material

HOST = "kyu-webhook.kueue-system.svc"
START = datetime(2026, 1, 1, tzinfo=UTC)


def is_trusted(material: Material) -> bool:
    server = material.server.certificate
    return any(pairs.is_signed_by(server, authority.certificate) for authority in material.authorities)


def test_the_material_stays_while_nothing_ends() -> None:
    made = certificates.advance(None, HOST, START)
    assert is_trusted(made)
    assert certificates.advance(made, HOST, START + timedelta(days=300)) == made


def test_another_host_gets_another_certificate() -> None:
    made = certificates.advance(None, HOST, START)
    changed = certificates.advance(made, "other.kueue-system.svc", START)
    assert changed.authorities == made.authorities
    assert changed.server != made.server


def test_a_secret_keeps_the_material() -> None:
    made = certificates.advance(None, HOST, START)
    assert certificates.from_secret({"data": certificates.to_data(made)}) == made


@pytest.mark.parametrize("damage", [{}, {"ca.crt": "!"}, {"tls.crt": ""}, {"ca.key": ""}])
def test_a_damaged_secret_counts_as_empty(damage: dict[str, str]) -> None:
    data = certificates.to_data(certificates.advance(None, HOST, START))
    assert certificates.from_secret({"data": {**data, **damage} if damage else {}}) is None


def test_there_is_no_gap_in_twelve_years() -> None:
    """At each moment the API server trusts the certificate: by the bundle of now, and by the one of the step before."""
    material = certificates.advance(None, HOST, START)
    now = START
    while now < START + timedelta(days=12 * 365):
        now += (
            timedelta(minutes=30) if len(material.authorities) > 1 and needs_care(material, now) else timedelta(days=9)
        )
        following = certificates.advance(material, HOST, now)
        trusted = (material, following)
        assert all(is_trusted(Material(known.authorities, following.server)) for known in trusted), now
        assert following.server.ends > now
        material = following
    assert material.authorities[0].begins > START


def needs_care(material: Material, now: datetime) -> bool:
    return now < material.authorities[-1].begins + certificates.SETTLE * 2


def test_the_bundle_is_written_once() -> None:
    configuration = {"metadata": {"resourceVersion": "7"}, "webhooks": [{"name": "a", "clientConfig": {"service": {}}}]}
    patch = certificates.bundle_patch(configuration, "bundle")
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["webhooks"] == [{"name": "a", "clientConfig": {"service": {}, "caBundle": "bundle"}}]
    assert certificates.bundle_patch({**configuration, **patch}, "bundle") == {}


def test_the_bundle_of_a_definition() -> None:
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {}}}}
    patch = certificates.bundle_patch({"metadata": {}, "spec": {"conversion": conversion}}, "bundle")
    assert patch == {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "bundle"}}}}}
    assert certificates.bundle_patch({"metadata": {}, "spec": {"conversion": {"strategy": "None"}}}, "bundle") == {}
