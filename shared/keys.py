"""Ed25519 keys that are kept in files, and the proof that a node holds its own."""

import contextlib
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import ClassVar, Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from shared.errors import ConfigError, ProofFailed
from shared.ids import NodeId

PROOF_LABEL: Final = b"nexus node proof 1\x00"
"""Keeps these signatures apart from any other use of the key; the number changes with the payload's form."""
PAIRING_LABEL: Final = b"nexus node pairing 1\x00"


class PrivateKey:
    """It never leaves the machine; only `public` and signatures do."""

    kind: ClassVar[str]
    """What errors call it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key that `save` wrote.

        Raises `ConfigError` when the file is missing, is no Ed25519 key, or can be read by other users.
        """
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read()
        except OSError as exc:
            raise ConfigError(f"The {cls.kind} {path} cannot be read: {exc.strerror}.") from exc
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ConfigError(f"The {cls.kind} {path} is open to other users. Run: chmod 600 {path}")
        try:
            private = load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"{path} is not a {cls.kind}. Restore it, or remove it to get a new one.") from exc
        if not isinstance(private, Ed25519PrivateKey):
            raise ConfigError(f"{path} holds another kind of key than Ed25519.")
        return cls(private)

    @classmethod
    def load_or_generate(cls, path: Path) -> Self:
        """The key at `path`; a new one, saved there, when the file does not exist."""
        if path.exists():
            return cls.load(path)
        key = cls.generate()
        key.save(path)
        return key

    def save(self, path: Path) -> None:
        """Write the key (PEM, PKCS #8) for this user only. Whole or not at all; replaces an older file."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, payload: bytes) -> bytes:
        """Ed25519 signature (RFC 8032), 64 bytes."""
        return self._private.sign(payload)


class NodeKey(PrivateKey):
    """What a node proves itself with."""

    kind = "node key"


def proof_payload(nonce: bytes, cloud: str, hello_bytes: bytes) -> bytes:
    """What `Proof.signature` signs: label, nonce, the cloud's identity, SHA-256 of the exact `Hello` frame.

    Each part has a fixed size or its length before it, so that no two inputs give one payload.
    """
    name = cloud.encode("utf-8")
    return b"".join(
        (
            PROOF_LABEL,
            len(nonce).to_bytes(2, "big"),
            nonce,
            len(name).to_bytes(2, "big"),
            name,
            hashlib.sha256(hello_bytes).digest(),
        )
    )


def verify_proof(public_key: bytes, signature: bytes, nonce: bytes, cloud: str, hello_bytes: bytes) -> None:
    """Raise `ProofFailed` unless `signature` is the key's over `proof_payload(nonce, cloud, hello_bytes)`."""
    _verify(public_key, signature, proof_payload(nonce, cloud, hello_bytes))


def pairing_payload(device_code: str, user_code: str, verification_uri: str) -> bytes:
    """What a node signs to be paired: the code that only it knows, and what it shows to its owner.

    Whoever passes a device code of one gateway on to a node that asked another one cannot change where the owner is
    sent. Each part has its length before it.
    """
    parts = [part.encode("utf-8") for part in (device_code, user_code, verification_uri)]
    return PAIRING_LABEL + b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def verify_pairing(
    public_key: bytes, signature: bytes, device_code: str, user_code: str, verification_uri: str
) -> None:
    """Raise `ProofFailed` unless `signature` is the key's over `pairing_payload` of these."""
    _verify(public_key, signature, pairing_payload(device_code, user_code, verification_uri))


def _verify(public_key: bytes, signature: bytes, payload: bytes) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key)
        key.verify(signature, payload)
    except (InvalidSignature, ValueError) as exc:
        raise ProofFailed("The signature does not fit the node's public key. Check its key file.") from exc


def node_id(public_key: bytes) -> NodeId:
    """The node's name, derived from its public key."""
    return NodeId(hashlib.sha256(public_key).hexdigest()[:32])
