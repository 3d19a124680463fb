"""Cursors of lists: opaque to clients, good for an hour, and only for the list that they come from."""

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from typing import Any, Final
from zlib import crc32

from commands.reasons import Refusal

CURSOR_MS: Final = 3_600_000
"""How long a cursor holds."""
CURSOR_CHARS_MAX: Final = 2_048
_VERSION: Final = 1


def make_cursor(listing: str, key: list[Any], now_at: int) -> str:
    """The cursor of `listing` (what is listed, by which filter and order) that goes on behind `key`."""
    text = json.dumps([_VERSION, now_at, _digest(listing), key], separators=(",", ":")).encode()
    return urlsafe_b64encode(crc32(text).to_bytes(4, "big") + text).rstrip(b"=").decode("ascii")


def read_cursor(listing: str, cursor: str, now_at: int) -> list[Any] | Refusal:
    """The key that `cursor` goes on behind; bad_cursor, or cursor_expired after an hour."""
    bad = Refusal("bad_cursor", "this is not a cursor of this list")
    if len(cursor) > CURSOR_CHARS_MAX or not cursor.isascii():
        return bad
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        return bad
    if len(raw) < 5 or crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
        return bad
    version, made_at, digest, key = json.loads(raw[4:])
    if version != _VERSION or digest != _digest(listing):
        return bad
    if now_at - made_at > CURSOR_MS:
        return Refusal("cursor_expired", "this cursor is older than an hour")
    return list(key)


def _digest(listing: str) -> str:
    return blake2s(listing.encode(), digest_size=8).hexdigest()
