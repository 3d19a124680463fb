"""One broker for all testers of a run: the first that asks for it has it started, each has two proxies to it.

It belongs to pytest's controlling process, which outlives the testers; they tell it through files of one folder.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

from tests.support.broker import CEILING_S, Broker, BrokerFailed
from tests.support.ports import ports_for_later
from tests.support.proxy import KafkaProxy

PROXIES: Final = 2
SPARE: Final = 4
"""Testers that may come in place of others that crashed."""
LOOK_EVERY_S: Final = 0.05


class Elsewhere(KafkaProxy):
    """A proxy of which only the port is known here: a tester will run it."""

    def start(self) -> Self:
        """The tester does."""
        return self


class Host:
    """Starts the broker when a file says that somebody wants it; `close` ends it."""

    def __init__(self, folder: Path, testers: int) -> None:
        self._folder, self._testers = folder, testers
        self._closing = threading.Event()
        self._broker: Broker | None = None
        self._thread = threading.Thread(target=self._run, name="shared broker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not (self._folder / "wanted").exists():
            if self._closing.wait(LOOK_EVERY_S):
                return
        said: dict[str, Any]
        try:
            proxies = [Elsewhere(port=port) for port in ports_for_later(PROXIES * (self._testers + SPARE))]
            # Other work of the testers may hold it up: it is not called dead as soon as one that is killed on purpose.
            self._broker = Broker(proxies=proxies, settings={"broker.session.timeout.ms": "9000"})
            self._broker.start()
            said = {
                "address": self._broker.address,
                "folder": str(self._broker.folder),
                "proxies": [[one.port, one.target] for one in proxies],
            }
        except Exception as failed:
            said = {"failed": str(failed) or repr(failed)}
        written = self._folder / "said.new"
        written.write_text(json.dumps(said))
        written.rename(self._folder / "said")

    def close(self) -> None:
        """Ends it, if it was ever started."""
        self._closing.set()
        self._thread.join()
        if self._broker is not None:
            self._broker.close()


class SharedBroker:
    """What one tester sees of it. Raises BrokerFailed where it could not be started."""

    def __init__(self, folder: Path, tester: int) -> None:
        (folder / "wanted").touch()
        give_up = time.monotonic() + 4 * CEILING_S
        while not (folder / "said").exists():
            if time.monotonic() > give_up:
                raise BrokerFailed("Nobody started the shared broker.")
            time.sleep(LOOK_EVERY_S)
        said = json.loads((folder / "said").read_text())
        if "failed" in said:
            raise BrokerFailed(said["failed"])
        self.address: str = said["address"]
        self.folder = Path(said["folder"])
        ours = said["proxies"][PROXIES * tester : PROXIES * (tester + 1)]
        self.proxies = [KafkaProxy(target, port=port).start() for port, target in ours]

    def close(self) -> None:
        """Ends this tester's proxies."""
        for proxy in self.proxies:
            proxy.stop()
