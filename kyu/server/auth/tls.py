"""
The certificate of the embedded server: an authority of its own and a certificate for this machine, kept as files.

Clients trust the authority, which is valid for ten years. The server's certificate is made anew before it ends and when
the server gets another address, so no kubeconfig has to change.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kyu.server.auth import certificates
from kyu.server.auth.certificates import KeyPair

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files that a TLS server needs, and the authority that its clients trust."""

    authority: Path
    certificate: Path
    key: Path


def ensure(directory: Path, host: str, now: datetime) -> Certificate:
    """Return the files in the directory, made or renewed where needed, for clients that ask for the host."""
    paths = Certificate(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    authority_key = directory / "ca.key"
    if not (paths.authority.exists() and authority_key.exists()):
        made = certificates.make_authority(f"kyu {now:%Y-%m-%d}", now)
        write_private(authority_key, made.key)
        write_private(paths.authority, made.certificate)
        paths.certificate.unlink(missing_ok=True)
    if not _is_good(paths, host, now):
        authority = KeyPair(paths.authority.read_bytes(), authority_key.read_bytes())
        made = certificates.make_server(authority, dict.fromkeys((*LOCAL_HOSTS, host)), now)
        write_private(paths.key, made.key)
        write_private(paths.certificate, made.certificate)
    return paths


def _is_good(paths: Certificate, host: str, now: datetime) -> bool:
    if not (paths.certificate.exists() and paths.key.exists()):
        return False
    server = KeyPair(paths.certificate.read_bytes(), paths.key.read_bytes())
    is_whole = not certificates.fault_of(server, paths.authority.read_bytes())
    return is_whole and certificates.is_good(server.certificate, host, now)


def authority_problem(directory: Path) -> str:
    """Return why the authority of a folder cannot be used; empty if it can, or if there is none yet."""
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if not certificate.exists() and not key.exists():
        return ""
    for path in (certificate, key):
        if not path.exists():
            return f"{path} is missing"
    authority = KeyPair(certificate.read_bytes(), key.read_bytes())
    fault = certificates.fault_of(authority, authority.certificate)
    return f"{certificate} and {key.name}: {fault}" if fault else ""


def write_private(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Other users cannot read it at any moment."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def now() -> datetime:
    return datetime.now(UTC)
