"""Schedules on the command line: set, listed, looked ahead, paused, removed; and what is said where it goes wrong."""

from __future__ import annotations

import json

import pytest

from tests.fleetlog.conftest import CommandLine


def test_a_schedule_from_setting_to_removal(cli: CommandLine, pool: str) -> None:
    """Sentences for people, one object a line for scripts."""
    said = cli("schedule", "set", "nightly", "report", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    assert (said.code, said.out.strip()) == (0, "schedule nightly set: 30 2 * * * Europe/Berlin")
    said = cli("schedule", "set", "nightly", "report", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    assert said.out.strip() == "schedule nightly is so already: 30 2 * * * Europe/Berlin"
    cli("schedule", "set", "ping", "ping", "--every", "15m", "--jitter", "30s", "--payload", '{"host": "a"}')
    lines = [line.split("\t") for line in cli("schedule", "list").out.splitlines()]
    assert [line[:5] for line in lines] == [
        ["nightly", "30 2 * * * Europe/Berlin", "report", "skip", "active"],
        ["ping", "every 900 s", "ping", "skip", "active"],
    ]
    [nightly, ping] = [json.loads(line) for line in cli("schedule", "list", "--json").out.splitlines()]
    assert (ping["every_s"], ping["jitter_s"], ping["task"]["payload"]) == (900, 30, {"host": "a"})
    assert nightly["next"]["local"][11:16] == "02:30"
    assert cli("schedule", "pause", "nightly", "--reason", "holiday").out.strip() == "schedule nightly paused"
    assert cli("schedule", "pause", "nightly").out.strip() == "schedule nightly was paused already"
    ahead = cli("schedule", "next", "nightly", "--from", "2026-10-24T12:00:00Z", "--count", "2")
    assert [line.split("\t")[:2] for line in ahead.out.splitlines()] == [
        ["2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00.000Z"],
        ["2026-10-26T02:30:00+01:00", "2026-10-26T01:30:00.000Z"],
    ]
    assert "fleetlog schedule resume nightly" in ahead.err
    assert cli("schedule", "resume", "nightly").out.strip() == "schedule nightly resumed"
    assert len(cli("schedule", "next", "nightly", "--json").out.splitlines()) == 10
    assert cli("schedule", "rm", "nightly", "--reason", "moved").out.strip() == "schedule nightly removed"
    assert "no_such_schedule" in cli("schedule", "next", "nightly").err
    told = cli("events", "--where", "schedule=nightly").out.splitlines()
    assert [line.split("\t")[4] for line in told][-1] == "schedule nightly deleted: moved"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--cron", "61 * * * *"], 1, "the minute of the cron pattern '61 * * * *' cannot be read"),
        (["--cron", "0 0 30 2 *"], 1, "never_fires"),
        (["--cron", "0 0 * * *", "--zone", "Europe/Bremen"], 1, "'Europe/Bremen' is no time zone"),
        (["--every", "500ms"], 1, "every_s: an interval is at least one second"),
        (["--every", "60s", "--jitter", "60s"], 1, "the jitter must be shorter than 60 s"),
        (["--every", "60s", "--zone", "UTC"], 1, "a time zone belongs to a cron pattern"),
        (["--every", "often"], 2, "--every 'often' is no span of time"),
        (["--every", "60s", "--cron", "* * * * *"], 2, "Give --every 60s or --cron"),
        ([], 2, "Give --every 60s or --cron"),
        (["--every", "60s", "--lost-wait", "5"], 2, "--lost-wait belongs to --on-lost wait"),
        (["--every", "60s", "--lease", "1"], 1, "lease_too_short"),
    ],
)
def test_i1_what_is_wrong_is_said_in_a_sentence(
    cli: CommandLine, pool: str, words: list[str], code: int, says: str
) -> None:
    """I1: with the field and what to do; no traceback."""
    said = cli("schedule", "set", "bad", "report", *words)
    assert said.code == code, said
    assert says in said.err
    assert "Traceback" not in said.err
    assert cli("schedule", "list").out == ""
