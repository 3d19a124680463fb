"""What is told to somebody: the records of `outcomes`, short-lived, addressed by the header `to`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One answer or message for gateway `to` (a header, not part of the value).

    `of`: the command id that is answered. `robot`, `epoch`: the session that `message` is for. `position`: the
    sequence of the pool up to which the answer is true. `message`: for a command `{"status": "accepted" | "refused",
    ...}` (`answer` or the refusal's fields), for a robot a gateway message or a `session_note` that the gateway
    keeps for itself (`draining`, `heartbeat_every_ms`, `window_ms`, `closed` with a close code).
    """

    v: Literal[1] = 1
    pool: str
    of: str | None = None
    robot: str | None = None
    epoch: int | None = None
    position: int | None = None
    message: dict[str, Any]


_CODEC: Final[TypeAdapter[Outcome]] = TypeAdapter(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    """The value of a record on `outcomes`."""
    return _CODEC.dump_json(outcome, exclude_none=True)


def decode_outcome(value: bytes) -> Outcome:
    """The outcome in a record of `outcomes`; raises pydantic.ValidationError."""
    return _CODEC.validate_json(value)
