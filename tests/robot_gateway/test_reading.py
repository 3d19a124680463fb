"""What is read of a message that is refused: which one it was, as far as that can be read."""

import pytest

from robot_gateway.reading import id_in, read_message


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"id": "a.1", "result": "\\ud800"}', "a.1"),  # what a language with UTF-16 strings sends for half a pair
        (b'{"id": "a.1", "x": NaN}', "a.1"),
        (b'{"id": "a.1", "id": "a.2"}', "a.2"),
        (b'{"id": "\\ud800"}', None),
        (b'{"id": ""}', None),
        (b'{"id": "' + b"x" * 65 + b'"}', None),
        (b'{"id": 1}', None),
        (b"[]", None),
        (b'{"id": "a.1"', None),
        (b'{"id": "a.1", "x": ' + b"9" * 10_000 + b"}", None),
        (b'{"id": "a.1", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", None),
        (b"\xff", None),
    ],
)
def test_the_id_of_a_refused_message(raw: bytes, found: str | None) -> None:
    """A breach elsewhere in the message does not hide its id: whoever sent it must know which message to mend."""
    assert id_in(raw) == found


HEAD = b'{"id": "a.1", "epoch": 3, "seq": 1, "task": "t", "attempt": 1, '


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (HEAD + b'"type": "checkpoint", "number": %d, "value": 1}', "/number"),
        (HEAD + b'"type": "stopped", "why": "stop", "checkpoint": {"number": %d, "value": 1}}', "/checkpoint/number"),
        (
            HEAD + b'"type": "fail", "class": "fatal", "error": {"type": "", "message": ""}, "retry_after_ms": %d}',
            "/retry_after_ms",
        ),
        (b'{"type": "ready", "id": "a.1", "epoch": 3, "seq": %d, "n": 1}', "/seq"),
        (b'{"type": "ready", "id": "a.1", "epoch": %d, "seq": 1, "n": 1}', "/epoch"),
        (
            b'{"type": "hello", "id": "a.1", "slots": 1, "capabilities": [], "holding": [], "inline_max_bytes": %d}',
            "/inline_max_bytes",
        ),
    ],
)
def test_numbers_are_those_that_every_reader_can_hold(raw: bytes, field: str) -> None:
    """Up to 2^53-1, like the integers of bodies: what is stored is read by programs in any language."""
    message, refusal = read_message(raw % (2**53 - 1))
    assert (message is not None, refusal) == (True, None)

    message, refusal = read_message(raw % 2**53)
    assert message is None
    assert refusal is not None
    assert (refusal.reason, refusal.field) == ("invalid_field", field)
