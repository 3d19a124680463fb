"""How a verb ends when it cannot do what was asked: one sentence that says what to do, and an exit code."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
"""Refused, or found wrong."""
WRONG_USAGE: Final = 2
NO_ANSWER: Final = 3
"""Nobody answered, or the time was over."""
INTERRUPTED: Final = 130


class Problem(Exception):
    """Ends a verb; the message is for the user. `exit_code` is one of those above."""

    def __init__(self, text: str, exit_code: int = REFUSED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def wrong_usage(text: str) -> Problem:
    """The verb was called in a way that cannot be meant."""
    return Problem(text, WRONG_USAGE)


def no_answer(text: str) -> Problem:
    """Nobody answered in time."""
    return Problem(text, NO_ANSWER)
