"""Cursors of lists: opaque to clients, good for an hour, and only for the list that they come from."""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2s
from typing import Any, Final
from zlib import crc32

from commands.reasons import Refusal

CURSOR_MS: Final = 3_600_000
"""How long a cursor holds."""
CURSOR_CHARS_MAX: Final = 2_048
_VERSION: Final = 1
_NUMBER_MAX: Final = 1 << 62


def make_cursor(listing: str, key: list[Any], now_at: int) -> str:
    """The cursor of `listing` (what is listed, by which filter and order) that goes on behind `key`."""
    text = json.dumps([_VERSION, now_at, _digest(listing), key], separators=(",", ":")).encode()
    return urlsafe_b64encode(crc32(text).to_bytes(4, "big") + text).rstrip(b"=").decode("ascii")


def read_cursor(listing: str, cursor: str, shape: Sequence[type], now_at: int) -> list[Any] | Refusal:
    """The key that `cursor` goes on behind, with values of the types of `shape`.

    Refused: bad_cursor, or cursor_expired after an hour. A client may make cursors up: nothing in them is trusted.
    """
    made_at, key = _content(listing, cursor)
    fits = len(key) == len(shape) and all(type(one) is wanted for one, wanted in zip(key, shape, strict=True))
    if not fits or any(type(one) is int and abs(one) > _NUMBER_MAX for one in key):
        return Refusal("bad_cursor", "this is not a cursor of this list")
    if now_at - made_at > CURSOR_MS:
        return Refusal("cursor_expired", "this cursor is older than an hour")
    return key


def _content(listing: str, cursor: str) -> tuple[int, list[Any]]:
    """When the cursor was made and its key, which is empty where it is none of this list."""
    nothing: tuple[int, list[Any]] = (0, [])
    if len(cursor) > CURSOR_CHARS_MAX:
        return nothing
    try:
        raw = b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
            return nothing
        version, made_at, digest, key = json.loads(raw[4:])
    except (ValueError, TypeError, RecursionError):
        return nothing
    if version != _VERSION or digest != _digest(listing) or type(made_at) is not int or not isinstance(key, list):
        return nothing
    return made_at, key


def _digest(listing: str) -> str:
    return blake2s(listing.encode(), digest_size=8).hexdigest()
