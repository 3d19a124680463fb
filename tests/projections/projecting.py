"""A projector in a process of its own: `python -m tests.projections.projecting LOG FOLDER RECORDS_MAX`.

Says "folding" when it begins, "done" when it has folded all, and waits for its end.
"""

import sys
from pathlib import Path

from projections.projector import Projector
from tests.support.stored_events import load_log


def main(log_file: str, folder: str, records_max: str) -> None:
    """Folds a saved log into a folder."""
    log = load_log(Path(log_file))
    projector = Projector(log, Path(folder), records_max=int(records_max), gather_s=0.0)
    projector.open()
    print("folding", flush=True)
    while any(here < end for here, end in projector.lag().values()):
        projector.step(0)
    print("done", flush=True)
    sys.stdin.readline()
    projector.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
