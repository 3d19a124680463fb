"""Cursors of lists: opaque, bound to what was asked, good for an hour."""

import base64
import time
from typing import Any, Final

from pydantic_core import from_json, to_json

from commands.ids import content_digest
from robot_gateway.problems import refuse

HOLDS_S: Final = 3600


def make_cursor(asked: Any, state: Any) -> str:
    """The cursor that goes on from `state` in the list that `asked` (any JSON) stands for."""
    content = to_json({"t": int(time.time()), "q": content_digest(asked)[:16], "s": state})
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def read_cursor(asked: Any, cursor: str) -> Any:
    """The state in a cursor. Raises RefusedRequest: bad_cursor, cursor_expired."""
    try:
        found = from_json(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        made_at, query, state = found["t"], found["q"], found["s"]
    except (ValueError, KeyError, TypeError):
        raise refuse("bad_cursor", "this is not a cursor that a list gave") from None
    if query != content_digest(asked)[:16]:
        raise refuse("bad_cursor", "the cursor belongs to a list with other parameters")
    if not isinstance(made_at, int) or not -60 <= time.time() - made_at <= HOLDS_S:
        raise refuse("cursor_expired", "the cursor is older than an hour")
    return state
