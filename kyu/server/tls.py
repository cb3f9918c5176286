"""
The certificate of the server: an own authority and a certificate for this machine, made at the first start.

Clients trust the authority, which stays for ten years; the server's certificate is made anew when it is about to end or
when the server gets another address, and no kubeconfig has to change for it.

Called by: app.py, endpoints.py.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificate:
    authority: Path
    certificate: Path
    key: Path


def ensure(directory: Path, host: str, now: datetime) -> Certificate:
    """The files in the directory, made or renewed where needed. The host is one that clients will ask for."""
    paths = Certificate(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    authority_key = directory / "ca.key"
    if not (paths.authority.exists() and authority_key.exists()):
        _make_authority(paths.authority, authority_key, now)
        paths.certificate.unlink(missing_ok=True)
    if not _is_good(paths.certificate, host, now):
        _make_certificate(paths, authority_key, host, now)
    return paths


def _make_authority(path: Path, key_path: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"kyu {now:%Y-%m-%d}")
    builder = (
        _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write(key_path, _private(key))
    _write(path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _make_certificate(paths: Certificate, authority_key: Path, host: str, now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(paths.authority.read_bytes())
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name("kyu"), authority.subject, key.public_key(), now, CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(_alternatives(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    _write(paths.key, _private(key))
    _write(paths.certificate, builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _is_good(path: Path, host: str, now: datetime) -> bool:
    if not path.exists():
        return False
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        return False
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return certificate.not_valid_after_utc - now > RENEW_BEFORE and _general_name(host) in names


def _alternatives(host: str) -> list[x509.GeneralName]:
    names = ["localhost", "127.0.0.1", "::1", host]
    return [_general_name(name) for name in dict.fromkeys(names)]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Some minutes back, for clients whose clock is late.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    """Never readable by others, not even for a moment; whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def now() -> datetime:
    return datetime.now(UTC)
