"""Runs a gateway: binds its address, serves HTTP and WebSockets with uvicorn until told to stop."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn

from robot_gateway.app import create_app
from robot_gateway.gateway import CannotServe, Gateway
from robot_gateway.websocket import WebSocketConnection

logger = logging.getLogger("fleetlog.gateway")

BACKLOG: Final = 2048
GRACE_S: Final = 5
LOOK_EVERY_S: Final = 0.1


def bind(gateway: Gateway) -> socket.socket:
    """The socket of the gateway: connections wait in it until they are served. Raises CannotServe."""
    settings = gateway.settings
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotServe(
            f"gateway.listen is {settings.listen}, which cannot be used ({error.strerror}): "
            "stop what listens there, or choose another port."
        ) from None
    return listening


def address_of(listening: socket.socket, settings: Any) -> str:
    """The URL of a bound gateway, with its real port."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{shown}:{port}"


class Served:
    """A gateway that serves in a thread of its own. `url` is its address, also where the port was 0."""

    def __init__(self, gateway: Gateway) -> None:
        """Binds at once; raises CannotServe."""
        self._gateway = gateway
        self._socket = bind(gateway)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self.url = address_of(self._socket, gateway.settings)
        self.failure: BaseException | None = None

    def start(self) -> "Served":
        """Serves from now on; `/readyz` says when all parts are ready."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Tells the robots, closes connections, ends the thread; blocks until it has ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the thread; True when it has ended (`failure` says why, if not by `stop`)."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            serve(self._gateway, self._stop, self._socket)
        except BaseException as failure:
            self.failure = failure
            logger.exception("the gateway has ended")


def serve(gateway: Gateway, stop: threading.Event, listening: socket.socket | None = None) -> None:
    """Serves in this thread until `stop` is set (looked at ten times a second). Raises CannotServe.

    Signals stay the caller's: a handler sets `stop`.
    """
    config = _config(gateway)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(gateway, _Server(config), listening or bind(gateway), stop))


async def _serve(gateway: Gateway, server: uvicorn.Server, listening: socket.socket, stop: threading.Event) -> None:
    await gateway.start()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not stop.is_set() and not serving.done():
        await asyncio.sleep(LOOK_EVERY_S)
    # Before uvicorn closes connections: robots are told to come back, polls and streams are answered.
    await gateway.stop()
    server.should_exit = True
    await serving


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(gateway: Gateway) -> uvicorn.Config:
    settings = gateway.settings
    return uvicorn.Config(
        create_app(gateway),
        http="h11",
        ws=partial(WebSocketConnection, gateway),  # type: ignore[arg-type]
        loop="uvloop",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_S,
        proxy_headers=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
