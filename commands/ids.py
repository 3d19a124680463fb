"""Deterministic ids and digests: the same cause always gives the same event id (UUIDv5, RFC 9562 section 5.5)."""

import json
import uuid
from hashlib import sha1, sha256
from typing import Any, Final

NAMESPACE: Final = uuid.UUID("6f9a1c1e-6d0e-5b0a-9a53-2d6f2f2f7c11")
"""The namespace of all Fleetlog ids; part of the format."""
ZERO_HASH: Final = bytes(32)
"""What stands before the first event of a pool in its chain."""

_SORTED: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def name_id(*parts: str | int) -> str:
    """The UUIDv5 whose name is `parts` joined by newlines."""
    digest = bytearray(sha1(NAMESPACE.bytes + "\n".join(map(str, parts)).encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def chain_hash(previous: bytes, value: bytes) -> bytes:
    """The pool's hash after the event stored as `value`: SHA-256 of the 32 bytes before and the stored bytes."""
    return sha256(previous + value).digest()


def boot_of(message_id: str) -> str:
    """The program's life that said a message: robots' message ids are `<boot id>.<counter>`."""
    return message_id.rpartition(".")[0]


def content_digest(content: Any) -> str:
    """SHA-256 (hex) of JSON-like `content`, independent of the order of keys."""
    return sha256(_SORTED.encode(content).encode("utf-8", "surrogatepass")).hexdigest()


def jitter_share(task: str, attempt: int) -> float:
    """A number in [0, 1) that depends on task and attempt alone: chance without a random source."""
    return int.from_bytes(sha256(f"{task}\n{attempt}".encode()).digest()[:8], "big") / 2**64
