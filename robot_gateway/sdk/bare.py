"""A bare connection to a gateway, for programs that speak the protocol themselves: benchmarks and probes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from websockets.asyncio.client import connect
from websockets.typing import Subprotocol


class Connection(Protocol):
    """Text messages in order, both ways; iterating gives them until the connection is closed."""

    async def send(self, message: str) -> None:
        """Sends one message."""

    async def recv(self) -> str | bytes:
        """The next message."""

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """The messages as they come."""


@asynccontextmanager
async def connected(url: str, protocol: str) -> AsyncIterator[Connection]:
    """A connection to the WebSocket at `url` (ws://...) that speaks `protocol`."""
    async with connect(url, subprotocols=[Subprotocol(protocol)], compression=None) as connection:
        yield connection
