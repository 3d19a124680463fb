"""HTTP without a client's opinions: what it is told goes out as it is, over one connection that is kept."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.support.fleet import CEILING_S


class Plain:
    """One connection to `url`."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url).netloc
        self._connection = http.client.HTTPConnection(self._place, timeout=CEILING_S)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, body. Of a stream that does not end only the beginning is waited for."""
        told = {"Content-Type": "application/json", **(headers or {})}
        try:
            self._connection.request(method, path, body, told)
            answer = self._connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # The connection was closed after the answer before.
            self._connection.close()
            self._connection.request(method, path, body, told)
            answer = self._connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if found.get("content-type", "").startswith("text/event-stream"):
            answer.close()
            self._connection.close()
            return answer.status, found, b""
        return answer.status, found, answer.read()

    def raw(self, data: bytes) -> bytes:
        """What comes back when exactly these bytes are sent on a connection of their own, and then no more."""
        host, port = self._place.split(":")
        with socket.create_connection((host, int(port)), timeout=CEILING_S) as connection:
            got = b""
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65_536):
                    got += piece
            except (ConnectionResetError, BrokenPipeError):
                pass  # it was not read to its end
            return got

    def close(self) -> None:
        """Ends it."""
        self._connection.close()
