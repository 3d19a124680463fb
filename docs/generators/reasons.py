"""docs/reference/reasons.md: every "no" that Fleetlog says."""

from typing import Final

from commands.reasons import REASONS, Reason
from docs.generators.markdown import code, page, table
from robot_gateway.sdk.errors import class_name

INTRODUCTION: Final = """
Every "no" carries one of these words: over HTTP as `reason` of a problem, to robots in `refused`, in Python as a
class of its own below `FleetlogError`, on the command line in brackets at the end of the sentence. **Retry**: the same
request may succeed later, unchanged; `retry_after_s` says when, where that is known. A running gateway serves each row
at `/v1/problems/{reason}`.

`late` is not a refusal: it is an `ack`.
"""
OF_SESSIONS: Final = "These exist on robot sessions only."


def reasons_page() -> str:
    """docs/reference/reasons.md."""
    over_http = [reason for reason in REASONS.values() if reason.status]
    of_sessions = [reason for reason in REASONS.values() if not reason.status]
    return page(
        "Reasons",
        INTRODUCTION,
        "## Over HTTP and everywhere",
        table(("reason", "status", "retry", "what to do", "Python"), [_row(reason) for reason in over_http]),
        "## To robots",
        OF_SESSIONS,
        table(
            ("reason", "retry", "what to do", "Python"),
            [(code(r.word), _retry(r), r.remedy, code(class_name(r.word))) for r in of_sessions],
        ),
    )


def _row(reason: Reason) -> tuple[str, ...]:
    return code(reason.word), str(reason.status), _retry(reason), reason.remedy, code(class_name(reason.word))


def _retry(reason: Reason) -> str:
    return "yes" if reason.retryable else ""
