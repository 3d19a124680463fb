"""Values of options that cannot be, and tokens: refused in our words, with what to do."""

from __future__ import annotations

import pytest

from fleetlog.cli import run
from robot_gateway.sdk import shell
from robot_gateway.sdk.errors import Unauthenticated


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


class Refused:
    """A robot whose token nobody knows."""

    def run(self, _: float) -> None:
        raise Unauthenticated("the token is unknown or has expired")


def test_a_robot_that_is_refused_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As every other verb does."""
    monkeypatch.setattr(shell, "shell_robot", lambda *_, **__: Refused())
    assert run(["robot", "--id", "r1", "--kind", "a=cat"]) == 1
    assert (
        "robot r1 ended: the token is unknown or has expired: name the file that holds your token with "
        "--token-file FILE. [unauthenticated]" in capsys.readouterr().err
    )
