"""Schedules as HTTP shows them: what was set, what became of it, and when it fires next."""

from itertools import islice
from typing import Any

from commands.instants import instants_after, local_text
from commands.schedules import firing_due_at, firing_id
from projections.cards import ScheduleCard
from robot_gateway.wire import instant_text, to_http


def schedule_resource(card: ScheduleCard, now: int, with_bodies: bool) -> dict[str, Any]:
    """A schedule in HTTP units; `next` is its next firing, absent while it is paused. Viewers get no payload."""
    shown = to_http(card)
    name = shown.pop("schedule")
    task = dict(shown["task"])
    payload = task.pop("payload", None)
    if payload is not None and with_bodies:
        task["payload"] = payload.get("json", payload)
    shown |= {"task": task}
    if "paused" not in card:
        following = next_firings(card, now, 1)
        shown |= {"next": following[0]} if following else {}
    return {"id": name, **shown}


def next_firings(card: ScheduleCard, after: int, count: int) -> list[dict[str, Any]]:
    """The next instants of a schedule later than `after` (ms): UTC, by the clocks of its zone, and when each is due."""
    instants = instants_after(card.get("every_ms"), card.get("cron"), card.get("zone"), after)
    return [
        {
            "task": firing_id(card["schedule"], instant),
            "instant": instant_text(instant),
            "local": local_text(instant, card.get("zone")),
            "due_at": instant_text(firing_due_at(card["schedule"], instant, card.get("jitter_ms", 0))),
        }
        for instant in islice(instants, count)
    ]
