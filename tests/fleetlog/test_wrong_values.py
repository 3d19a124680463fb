"""Values of options that cannot be: refused in our words, not in those of a library."""

from __future__ import annotations

import pytest

from fleetlog.cli import run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "k", "--priority", "12"], "invalid value for '--priority': write 9 or less; see"),
        (["submit", "k", "--priority", "high"], "invalid value for '--priority': write a whole number; see"),
        (["tasks", "--timeout", "0"], "invalid value for '--timeout': write 0.1 or more; see"),
        (["submit", "k", "--on-lost", "gone"], "invalid value for '--on-lost': 'gone' is not one of 'requeue', "),
    ],
)
def test_wrong_values(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that says what to write."""
    assert run(arguments) == 2
    assert said in capsys.readouterr().err
