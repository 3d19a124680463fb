"""Units: milliseconds of the log become seconds and RFC 3339 outside, and back."""

import pytest

from robot_gateway.wire import instant_ms, instant_text, setting_outside, settings_in, to_http


def test_a_card_in_http_units() -> None:
    """Names in `_ms` become `_s`, instants become text, what people gave stays as it is."""
    card = {
        "id": "t1",
        "pool": "p",
        "state": "WAITING",
        "submitted_at": 1_700_000_000_250,
        "not_before": 1_700_000_000_000,
        "accept_by": 0,
        "caused_by": "command:x",
        "lease_ms": 15_000,
        "waited_ms": 1_234,
        "retry": {"failures_max": 3, "first_ms": 1000, "factor": 2.0, "max_ms": 300_000},
        "deadlines": {"run": {"ms": 500, "then": "dead"}, "start": {"at": 1_700_000_000_000, "then": "alarm"}},
        "passing": "higher",
        "labels": {"started_at": "1", "x_ms": "2"},
        "payload": {"at": 5, "took_ms": 7},
        "excluded": {"r_at": 1_700_000_000_000},
        "missed": [2, 1_700_000_000_000],
        "checkpoints": [[1, 2, 1_700_000_000_000]],
        "note": {"json": "reading"},
        "holds": [{"attempt": 1, "robot": "r", "until": 1_700_000_000_000}],
        "error": {"type": "E", "message": {"json": "no"}, "at": 1_700_000_000_000},
        "schedule": {"id": "s", "instant": 1_700_000_000_000},
    }

    assert to_http(card) == {
        "id": "t1",
        "pool": "p",
        "state": "WAITING",
        "submitted_at": "2023-11-14T22:13:20.250Z",
        "not_before": "2023-11-14T22:13:20.000Z",
        "accept_by": "1970-01-01T00:00:00.000Z",
        "caused_by": "command:x",
        "lease_s": 15,
        "waited_s": 1.234,
        "retry": {"failures_max": 3, "first_s": 1, "factor": 2.0, "max_s": 300},
        "deadlines": {"run": {"s": 0.5, "then": "dead"}, "start": {"at": "2023-11-14T22:13:20.000Z", "then": "alarm"}},
        "pass": "higher",
        "labels": {"started_at": "1", "x_ms": "2"},
        "payload": {"at": 5, "took_ms": 7},
        "excluded": {"r_at": "2023-11-14T22:13:20.000Z"},
        "missed": {"windows": 2, "last_window_at": "2023-11-14T22:13:20.000Z"},
        "checkpoints": [{"number": 1, "attempt": 2, "saved_at": "2023-11-14T22:13:20.000Z"}],
        "note": "reading",
        "holds": [{"attempt": 1, "robot": "r", "until": "2023-11-14T22:13:20.000Z"}],
        "error": {"type": "E", "message": "no", "at": "2023-11-14T22:13:20.000Z"},
        "schedule": {"id": "s", "instant": "2023-11-14T22:13:20.000Z"},
    }


def test_ids_as_names_are_not_mistaken_for_instants() -> None:
    """A robot's card has objects by task id, whatever the ids look like."""
    card = {"attempts": {"x_at": [1, 2]}, "holds": {"t_ms/1": 1}, "counts": {"done_at": 5}}

    assert to_http(card) == card


@pytest.mark.parametrize("ms", [0, 1, 999, 1_700_000_000_001, 4_102_444_800_000, 253_402_300_799_999])
def test_instants_survive_the_way_out_and_in(ms: int) -> None:
    """To the millisecond."""
    assert instant_ms(instant_text(ms)) == ms


@pytest.mark.parametrize("text", ["soon", "2026-13-01T00:00:00Z", "2026-11-30", "2026-11-30T09:15:00"])
def test_what_is_no_instant_is_told_how_to_write_one(text: str) -> None:
    """In words that do not speak of Python."""
    with pytest.raises(ValueError, match="an instant is written like 2026-11-30T09:15:00Z, with a zone"):
        instant_ms(text)


def test_an_instant_beyond_all_calendars_is_still_text() -> None:
    """An instant that Python's calendar does not reach must not fail a whole list."""
    assert instant_text(2**53) == "9999-12-31T23:59:59.999Z"


def test_settings_have_names_of_their_own_outside() -> None:
    """Seconds outside, milliseconds in the log; unknown names and values that are no number are refused there."""
    assert settings_in({"window_s": 0.5, "pass": "all", "failures_max": 3, "windw_s": 1, "lease_s": "x"}) == {
        "window_ms": 500,
        "passing": "all",
        "failures_max": 3,
        "windw_s": 1,
        "lease_ms": "x",
    }
    assert setting_outside("backoff_first_ms") == "backoff_first_s"
    assert setting_outside("passing") == "pass"
    assert setting_outside("queue_max") == "queue_max"
