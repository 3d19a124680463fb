"""What `fleetlog doctor` says of the command for alarms."""

import pytest

from fleetlog.composition import room
from fleetlog.doctor import _alarm
from fleetlog.settings import Settings


@pytest.mark.parametrize(
    ("command", "verdict", "said"),
    [
        (None, "ok", "no alarm.command: watch /readyz and /metrics, or the lines of the gateway"),
        ("cat >> /dev/null", "ok", "alarms go to cat"),
        ("if true; then cat; fi", "ok", "alarms go to if"),
        ("TO=ann mail-it", "ok", "alarms go to TO=ann"),
        ("no-such-program-at-all --now", "bad", "alarm.command begins with no-such-program-at-all, which is not found"),
    ],
)
def test_the_doctor_finds_the_alarm_command(command: str | None, verdict: str, said: str) -> None:
    """Programs, words of the shell and variables are found; what is not there is named, and nothing is run."""
    finding = _alarm(Settings.model_validate({"alarm": {"command": command}}))
    assert (finding.what, finding.verdict) == ("alarm", verdict)
    assert finding.text.startswith(said)


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0.0 MiB"), (15_000_000, "14.3 MiB"), (2**30, "1.0 GiB"), (28_000_000_000, "26.1 GiB")],
)
def test_room_on_a_disk_is_said_in_words(size: int, said: str) -> None:
    """In a unit in which a small disk does not look like none."""
    assert room(size) == said
