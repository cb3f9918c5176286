"""
One certificate authority per control plane, and certificates of it for servers and for users.

A user is a certificate: its common name is the user's name and its organizations are the groups, as Kubernetes reads
them. Keys are elliptic (P-256), as they cost no time to make; only those of authorities are RSA, because Kueue's
certificate rotation reads no other.

Called by: controlplane.py, kueue.py.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

VALIDITY = datetime.timedelta(days=365)
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: x509.Certificate
    key: PrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )


def authority(common_name: str) -> KeyPair:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = name(common_name)
    builder = (
        unsigned(subject, subject, key, signer=key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(SIGNS_CERTIFICATES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def server(issuer: KeyPair, hosts: Sequence[str]) -> KeyPair:
    """A certificate for some host names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        unsigned(name(hosts[0]), issuer.certificate.subject, key, signer=issuer.key)
        .add_extension(x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return KeyPair(builder.sign(issuer.key, hashes.SHA256()), key)


def user(issuer: KeyPair, user_name: str, groups: Sequence[str]) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = unsigned(name(user_name, groups), issuer.certificate.subject, key, signer=issuer.key).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    return KeyPair(builder.sign(issuer.key, hashes.SHA256()), key)


def unsigned(subject: x509.Name, issuer: x509.Name, key: PrivateKey, *, signer: PrivateKey) -> x509.CertificateBuilder:
    """What all have in common; Python 3.13 takes no certificate that does not name the key of its signer."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name(attributes)


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
