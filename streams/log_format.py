"""The format number of a log: which one this software knows, and how it may be raised.

A process writes only what belongs to a log's number, whatever it could write, so that any release can be rolled back
until `fleetlog log raise-format`; a process that meets a higher number stops with a sentence.
"""

from commands.settings import FORMAT
from streams.port import LogMisconfigured


def newest() -> int:
    """The newest format that this software knows."""
    return FORMAT


def check_known(number: int, where: str) -> None:
    """Refuses a log that newer software writes. Raises LogMisconfigured."""
    if number > FORMAT:
        raise LogMisconfigured(
            f"The log {where} has format {number}, this Fleetlog knows formats up to {FORMAT}: install a newer one."
        )


def check_raise(number: int, to: int) -> None:
    """Refuses what is no raise of a log with format `number`. Raises LogMisconfigured."""
    if to < number:
        raise LogMisconfigured(f"The log has format {number} already; a format is never lowered.")
    if to > FORMAT:
        raise LogMisconfigured(
            f"This Fleetlog knows formats up to {FORMAT}, not {to}: install a newer one, in every process, first."
        )
