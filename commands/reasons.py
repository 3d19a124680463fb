"""The closed list of reasons for a "no": HTTP status, whether asking again as it is may help, and the remedy.

Every refusal on HTTP, WebSocket, SDK and command line carries one of these words. A status of 0 marks a word that
exists on robot sessions only.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """One word of the list: its HTTP `status`, whether it is `retryable` unchanged, and a sentence of `remedy`."""

    word: str
    status: int
    retryable: bool
    remedy: str


_TABLE: Final = """
malformed_json          400 -  Send one JSON object in UTF-8; NaN and Infinity are not JSON.
bad_cursor              400 -  Use the `next` value of the list you are reading, unchanged.
bad_filter              400 -  Write parts like state=DEAD kind=weld* older=2h, joined by spaces.
unknown_position        400 -  Use a position that this log gave you; after a restore, start without one.
protocol_version        400 -  Ask for the subprotocol fleetlog.robot.v1 (robots) or fleetlog.submit.v1 (submitters).
unauthenticated         401 -  Send `Authorization: Bearer TOKEN` with a token that `fleetlog token list` shows.
forbidden               403 -  Use a token whose role, pools and robots cover this.
no_such_route           404 -  See /docs for the paths of this version.
no_such_pool            404 -  Create it with `fleetlog pool create NAME`, or correct the name.
no_such_task            404 -  Check the id and the pool; ended tasks leave the tables after 30 days, the history stays.
no_such_robot           404 -  Check the id and the pool; a robot exists from its first hello on.
no_such_schedule        404 -  Check the schedule's name and the pool.
no_such_target          404 -  See `fleetlog targets`; a target exists while it has tasks.
no_such_limit           404 -  Check the limit's scope and name.
no_such_bulk            404 -  Ask for a bulk id that this gateway gave you.
method_not_allowed      405 -  See /docs for the methods of this path.
id_conflict             409 -  This id belongs to a task with other content; choose a new id.
command_id_conflict     409 -  This command id was used for something else; send a new Idempotency-Key.
wrong_state             409 -  The task's state does not allow this verb; the answer lists those it allows.
too_many_lanes          409 -  Use fewer different combinations of requirement and kind in one pool.
token_stale             409 -  Repeat the dry run and use its token.
robot_has_attempts      409 -  Drain the robot and wait, or release its attempts first.
clock_trusted           409 -  The clock is trusted; there is nothing to accept.
not_frozen              409 -  The pool is not frozen; there is nothing to unfreeze.
not_in_error            409 -  The robot is not in ERROR; there is nothing to clear.
two_programs            409 -  Two programs use this robot id: stop one, then `fleetlog clear ROBOT`.
cursor_expired          410 -  Start the list again; a cursor holds for an hour.
no_session              410 -  Say hello again.
too_large               413 -  Put the data into a store and send a reference to it.
unsupported_media_type  415 -  Send `Content-Type: application/json`.
wrong_gateway           421 *  Say hello at this gateway; the session lives on another.
invalid_field           422 -  Correct the named field.
unknown_field           422 -  Remove or rename the named field.
lease_too_short         422 -  Ask for a lease of at least three heartbeat windows of the pool.
never_fires             422 -  Correct the schedule: no instant matches it.
deadline_passed         422 -  Give a deadline in the future.
reason_required         422 -  Give a reason; it is recorded.
impossible_settings     422 -  Change the settings as the sentence says.
gateway_busy            429 *  Send again after the given time.
too_fast                429 *  Send more slowly.
queue_full              429 *  Wait until the queue is shorter, or raise queue_max of the pool.
quarantined             500 -  The input was set aside; report it with topic, partition and offset.
internal                500 *  A fault of Fleetlog; report it with the request id.
behind                  503 *  The tables have not yet reached this position; ask again.
log_unavailable         503 *  The log does not answer; nothing is lost, send again later.
not_ready               503 *  This process is not ready; /readyz says why.
no_answer               504 *  No answer in time; ask again with the same command id.
unknown_type              0 -  Send a message type that the protocol knows.
hello_first               0 -  Say hello before anything else.
superseded                0 -  A newer session of this robot took over; end this one.
slots_in_use              0 *  Finish attempts first; the new number of slots is below those in use.
withdrawn                 0 -  The assignment was withdrawn; forget it.
not_current               0 -  A newer attempt exists or the task has ended; stop this one.
not_yours                 0 -  This attempt belongs to another robot.
not_accepted              0 -  Accept the assignment first.
already_accepted          0 -  The assignment was accepted; complete, fail or stop it instead.
unknown_task              0 -  No such task is known; forget it.
"""

REASONS: Final[dict[str, Reason]] = {}
for _line in _TABLE.strip().splitlines():
    _word, _status, _star, _remedy = _line.split(None, 3)
    REASONS[_word] = Reason(_word, int(_status), _star == "*", _remedy)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A "no" as a value: a `reason` of the list, a `text` for people, and what it is about.

    `field` is a JSON pointer into what was asked, `retry_after_ms` a time to come back, `extra` what the reason
    promises beside (for `wrong_state` the allowed verbs).
    """

    reason: str
    text: str
    field: str | None = None
    retry_after_ms: int | None = None
    extra: dict[str, object] | None = None

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"{self.reason} is not in the list of reasons")

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return REASONS[self.reason].retryable
