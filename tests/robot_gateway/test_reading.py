"""What is read of a message that is refused: which one it was, as far as that can be read."""

import pytest

from robot_gateway.reading import id_in


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
