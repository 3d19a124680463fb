"""Which rows lie beside a task's card: in the indexes, and bodies. Pure; a change of the card is a change of these."""

from collections.abc import Iterator
from typing import Final

from commands.vocabulary import HELD_STATES, TERMINAL_STATES
from projections.cards import TaskCard
from projections.rows import STATE_CODES, Index, body_key, index_range, tail_key

DELAYED_CODE: Final = "Y"
"""The state code of waiting tasks that became or become eligible later than they were submitted."""

PAYLOAD: Final = "p"
RESULT: Final = "r"
ERROR_DETAIL: Final = "e"
CHECKPOINT: Final = "c"


def state_code(card: TaskCard) -> str:
    """The code under which the card stands in the index of states."""
    if card["state"] == "WAITING" and card["eligible_at"] != card["submitted_at"]:
        return DELAYED_CODE
    return STATE_CODES[card["state"]]


def codes_of(state: str) -> tuple[str, ...]:
    """All codes of one state."""
    return (STATE_CODES[state], DELAYED_CODE) if state == "WAITING" else (STATE_CODES[state],)


def index_keys(card: TaskCard) -> list[bytes]:
    """The keys of all index rows of a card; the value of each is the task's id."""
    pool, sequence, kind, code = card["pool"], card["sequence"], card["kind"], state_code(card)
    tail = tail_key(card["submitted_at"], sequence)
    keys = [index_range(Index.STATE, pool, code + kind) + tail]
    if code == DELAYED_CODE:
        keys.append(index_range(Index.DELAYED, pool, kind) + tail_key(card["eligible_at"], sequence))
    if "robot" in card:
        keys.append(index_range(Index.ROBOT, pool, card["robot"]) + tail)
    if "target" in card:
        keys.append(index_range(Index.TARGET, pool, card["target"]) + tail)
    if leaves_at(card) is not None:
        keys.append(index_range(Index.ENDED, pool, "") + tail_key(card["ended_at"], sequence))
    return keys


def leaves_at(card: TaskCard) -> int | None:
    """The instant from which the days of an ended task count; None while it is open or something is still held."""
    return card["ended_at"] if card["state"] in TERMINAL_STATES and "holds" not in card else None


def same_index(before: TaskCard, after: TaskCard) -> bool:
    """Whether both cards have the same index rows; cheap, may say no where they are the same."""
    return (
        before["state"] == after["state"]
        and before["state"] in HELD_STATES
        and before["sequence"] == after["sequence"]
        and before.get("robot") == after.get("robot")
    )


def body_keys(card: TaskCard) -> Iterator[bytes]:
    """The keys of the rows of `bodies` that belong to a card."""
    pool, task = card["pool"], card["id"]
    if "payload_bytes" in card:
        yield body_key(pool, task, PAYLOAD)
    if "result_bytes" in card:
        yield body_key(pool, task, RESULT)
    if "error_detail" in card:
        yield body_key(pool, task, ERROR_DETAIL)
    for number, *_ in card.get("checkpoints", ()):
        yield body_key(pool, task, CHECKPOINT, number)
