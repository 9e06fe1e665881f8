"""The node's key file and its proof."""

import hashlib
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from shared.errors import ConfigError, ProofFailed
from shared.keys import NodeKey, node_id, proof_payload, verify_proof

NONCE = bytes(range(32))


def test_a_saved_key_is_private_and_loads_again(tmp_path: Path) -> None:
    """Only its owner can read it, and no temporary file stays."""
    path = tmp_path / "nexus" / "node.key"
    key = NodeKey.generate()
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["node.key"]
    assert NodeKey.load(path).public == key.public


def test_load_or_generate_keeps_the_identity(tmp_path: Path) -> None:
    """The second start is the same node."""
    path = tmp_path / "node.key"
    assert NodeKey.load_or_generate(path).public == NodeKey.load_or_generate(path).public


def test_a_failed_save_leaves_the_old_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all."""
    path = tmp_path / "node.key"
    old = NodeKey.generate()
    old.save(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        NodeKey.generate().save(path)
    assert NodeKey.load(path).public == old.public
    assert [file.name for file in tmp_path.iterdir()] == ["node.key"]


def test_bad_key_files_are_refused_in_words(tmp_path: Path) -> None:
    """Missing, open to others, garbage, another algorithm."""
    path = tmp_path / "node.key"
    with pytest.raises(ConfigError, match="cannot be read"):
        NodeKey.load(path)
    NodeKey.generate().save(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        NodeKey.load(path)
    path.write_bytes(b"garbage")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not a node key"):
        NodeKey.load(path)
    other = generate_private_key(SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ConfigError, match="Ed25519"):
        NodeKey.load(path)


def test_a_proof_holds_for_its_own_connection_only() -> None:
    """Any change of nonce, cloud, Hello, key or signature breaks it."""
    key, other = NodeKey.generate(), NodeKey.generate()
    signature = key.sign(proof_payload(NONCE, "g", b"hello"))
    verify_proof(key.public, signature, NONCE, "g", b"hello")
    for public, signed, nonce, cloud, hello in [
        (other.public, signature, NONCE, "g", b"hello"),
        (key.public, other.sign(proof_payload(NONCE, "g", b"hello")), NONCE, "g", b"hello"),
        (key.public, signature, bytes(32), "g", b"hello"),
        (key.public, signature, NONCE, "h", b"hello"),
        (key.public, signature, NONCE, "g", b"hellp"),
        (b"short", signature, NONCE, "g", b"hello"),
        (key.public, b"", NONCE, "g", b"hello"),
    ]:
        with pytest.raises(ProofFailed):
            verify_proof(public, signed, nonce, cloud, hello)


def test_the_payload_is_fixed() -> None:
    """Byte for byte as documented, so that another language can sign it."""
    assert proof_payload(NONCE, "gateway-1", b"hello") == (
        b"nexus node proof 1\x00" + b"\x00\x20" + NONCE + b"\x00\x09gateway-1" + hashlib.sha256(b"hello").digest()
    )


def test_parts_cannot_be_shifted() -> None:
    """Lengths are part of what is signed."""
    assert proof_payload(b"ab", "c", b"") != proof_payload(b"a", "bc", b"")


def test_node_ids_are_short_hashes() -> None:
    """First 32 hexadecimal digits of SHA-256."""
    assert node_id(bytes(32)) == "66687aadf862bd776c8fc18b8e9f8e20"
