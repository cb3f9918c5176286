"""Messages that only their recipient can read."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from kyu.bus import envelopes, sealing, signing
from kyu.bus.envelopes import NotOpened

CONTENT = {"objects": {"Secret/token": {"data": {"token": "aHVudGVyMg=="}}}}


@pytest.fixture(name="keys")
def make_keys(tmp_path: Path) -> tuple[signing.Signer, signing.Signer, signing.Signer]:
    """A control plane, the runner of a pool, and another user of the NATS server."""
    sender, runner, eve = (signing.load_or_make(tmp_path / name) for name in ("sender", "runner", "eve"))
    return sender, runner, eve


def test_both_forms_of_a_key_belong_together(keys: tuple[signing.Signer, ...]) -> None:
    for signer in keys:
        public = sealing.raw_bytes(signer.exchange_key().public_key())
        assert sealing.raw_bytes(sealing.exchange_key(signer.public_key)) == public


def test_a_known_pair_of_keys() -> None:
    """The first vector of libsodium's test of the conversion (ed25519_convert)."""
    ed25519 = bytes.fromhex("b5076a8474a832daee4dd5b4040983b6623b5f344aca57d4d6ee4baf3f259e6e")
    x25519 = "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    assert sealing.raw_bytes(sealing.exchange_key(base64.b64encode(ed25519).decode())).hex() == x25519


def test_only_the_recipient_reads_a_letter(keys: tuple[signing.Signer, ...]) -> None:
    sender, runner, eve = keys
    letter = envelopes.new_letter("create", CONTENT, 1000.0)
    payload = envelopes.seal(letter, "pool", sender, to=runner.public_key)
    assert b"token" not in payload
    assert b"hunter" not in base64.b64decode(msgspec.json.decode(payload)["body"])
    assert envelopes.unseal(payload, "pool", [sender.public_key], runner) == (letter, sender.public_key)
    for reader in (sender, eve):
        with pytest.raises(NotOpened, match="another key"):
            envelopes.unseal(payload, "pool", None, reader)


def test_a_letter_cannot_be_signed_by_another_sender(keys: tuple[signing.Signer, ...]) -> None:
    sender, runner, eve = keys
    sealed = msgspec.json.decode(
        envelopes.seal(envelopes.new_letter("create", CONTENT, 1000.0), "pool", sender, to=runner.public_key)
    )
    forged = {**sealed, "key": eve.public_key, "signature": eve.sign(b"pool\0" + sealed["body"].encode())}
    with pytest.raises(NotOpened, match="another key"):
        envelopes.unseal(msgspec.json.encode(forged), "pool", None, runner)
    opened = {**sealed, "encrypted": False}
    with pytest.raises(NotOpened, match="cannot be read"):
        envelopes.unseal(msgspec.json.encode(opened), "pool", None, runner)


@pytest.mark.parametrize(
    "key",
    [b"", b"short", bytes(32), (1).to_bytes(32, "little")],
    ids=["empty", "short", "of order 4", "neutral"],
)
def test_an_unusable_key_encrypts_nothing(key: bytes) -> None:
    with pytest.raises(signing.BadKey):
        sealing.encrypt(b"x", base64.b64encode(key).decode(), b"")
