"""How a row says that a rule is broken, and messages whose missing fields are a broken rule, not a fault of ours."""

import json
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")
SHOWN_MAX: Final = 300
"""Characters of a message that are shown; a result may have 256 KiB."""


class Broken(AssertionError):
    """A rule of the protocol is broken. `expected`: what should have come; `came`: what did instead."""

    def __init__(self, expected: str, came: object) -> None:
        self.expected = expected
        self.came = came if isinstance(came, str) else brief(came)
        super().__init__(f"expected {expected}; {self.came} came")


class NotReady(Exception):
    """Nothing can be played; the message is one sentence that says what to do."""


class CannotStart(NotReady):
    """The command that is to start the robot is wrong."""


class Unreachable(NotReady):
    """No gateway answers."""


class Message(dict[str, Any]):
    """A JSON object that was received; asking for a field that it lacks raises Broken."""

    def __missing__(self, name: str) -> NoReturn:
        raise Broken(f"a field {name!r}", self)


def read_message(text: str | bytes | bytearray) -> Any:
    """The JSON that was received, its objects as Message. Raises Broken where it is none."""
    try:
        return json.loads(text, object_hook=Message)
    except ValueError:
        raise Broken("JSON", text) from None


def must(holds: object, expected: str, came: object) -> None:
    """Raises Broken unless it holds."""
    if not holds:
        raise Broken(expected, came)


def same(came: object, expected: object, what: str = "") -> None:
    """Raises Broken unless both are equal; `what` names them."""
    must(came == expected, f"{what} {brief(expected)}".strip(), came)


def brief(value: object) -> str:
    """A value as it is shown to people: on one line, cut where it is long."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def until(condition: Callable[[], T], expected: str, patience_s: float, came: Callable[[], object] = lambda: None) -> T:
    """Waits until `condition` gives something true, and gives it. Raises Broken, with what `came` tells by then."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise Broken(expected, came() or f"nothing of that kind in {patience_s:g} s")
