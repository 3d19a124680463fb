"""Server-sent events: from lines to events (the WHATWG rules, as far as Fleetlog's stream uses them)."""

from __future__ import annotations

import json

from robot_gateway.sdk.resources import Event


class EventLines:
    """Takes lines, gives an event when one is complete."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.dropped = False
        self._type = ""
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """One line without its end. `dropped` is set when the gateway is about to cut a slow reader."""
        if line == "":
            return self._complete()
        if line.startswith(":"):
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self.last_id = value
        elif name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        return None

    def _complete(self) -> Event | None:
        kind, data = self._type, "\n".join(self._data)
        self._type, self._data = "", []
        if kind == "dropped":
            self.dropped = True
            return None
        if not data:
            return None
        return Event(kind, json.loads(data), self.last_id or "")
