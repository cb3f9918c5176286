"""
Certificates as PEM: an authority of one's own, and certificates for servers that it signs.

Called by: server/auth/tls.py, webhooks/certificates.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEW_BEFORE = timedelta(days=30)
# A client whose clock is late must accept a new certificate.
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def begins(self) -> datetime:
        return self.parsed.not_valid_before_utc

    @property
    def ends(self) -> datetime:
        return self.parsed.not_valid_after_utc


def make_authority(name: str, now: datetime) -> KeyPair:
    """Make an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def make_server(authority: KeyPair, hosts: Iterable[str], now: datetime) -> KeyPair:
    """Make the certificate of a server that clients reach under these names or addresses."""
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [general_name(host) for host in hosts]
    builder = (
        _builder(_name("kyu"), authority.parsed.subject, key.public_key(), now, CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _signed(builder, key, signer)


def is_good(certificate: bytes, host: str, now: datetime) -> bool:
    """Return whether a certificate is readable, serves the host, and does not end soon."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return parsed.not_valid_after_utc - now > RENEW_BEFORE and general_name(host) in names


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    try:
        parsed, signer = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
        parsed.verify_directly_issued_by(signer)
    except Exception:
        return False
    return True


def fault_of(pair: KeyPair, authority: bytes) -> str:
    """Return why a certificate and its key cannot be used; empty if the authority has signed them and they fit."""
    try:
        certificate = pair.parsed
    except ValueError:
        return "the certificate cannot be read"
    try:
        key = serialization.load_pem_private_key(pair.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "the key cannot be read"
    if not is_signed_by(pair.certificate, authority):
        return "the certificate is not the one that was signed"
    return "" if certificate.public_key() == key.public_key() else "the key does not fit the certificate"


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate, private)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
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
