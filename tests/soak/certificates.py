"""Certificates of a soak's brokers: one authority, as many certificates as the nemesis asks for. One per soak."""

from __future__ import annotations

import ssl
from itertools import count
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from names import NAME

from aiokprod.testing.kafka_cluster import TlsFiles


class Certificates:
    """A certificate authority for the brokers and clients of a soak."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self._numbers = count()
        self._authority.cert_pem.write_to_path(folder / "authority.pem")
        first = self.issue()
        self.files = TlsFiles(authority=folder / "authority.pem", broker_certificate=first, client_certificate=first)

    def issue(self) -> Path:
        """Write a new key (in PKCS 8, the only form that Kafka reads) and a certificate for it into one file."""
        made = self._authority.issue_cert(NAME)
        key = load_pem_private_key(made.private_key_pem.bytes(), password=None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self._folder / f"broker-{next(self._numbers)}.pem"
        path.write_bytes(pem + b"".join(each.bytes() for each in made.cert_chain_pems))
        return path


def is_shown(path: Path, address: tuple[str, int]) -> bool:
    """Return whether the server at this address shows this certificate."""
    shown = ssl.get_server_certificate(address, timeout=10.0)
    return "".join(shown.split()) in "".join(path.read_text(encoding="ascii").split())
