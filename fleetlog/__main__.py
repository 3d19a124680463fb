"""`fleetlog` and `python -m fleetlog`: the command line. Ctrl-C while it is being loaded ends it without a word."""

import os
import signal
from types import FrameType

INTERRUPTED = 130


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def main() -> None:
    """The console script."""
    signal.signal(signal.SIGINT, _leave)
    from fleetlog.cli import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
