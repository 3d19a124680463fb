"""Python's collector of garbage beside a million rows: a full pass over them would stop everything for a second or two.

Rows are freed by counting references; the collector is there for the cycles of everything else in the process. While
the owners of this process hold many rows, what lives is set apart (`gc.freeze`) whenever a snapshot is begun, so that a
pass looks only at what came since; below that number the collector looks at everything again.
"""

import gc
import threading
from typing import Final

ROWS_MANY: Final = 100_000

_using: Final = threading.Lock()
_rows: Final[dict[int, int]] = {}
_apart = False


def note_rows(partition: int, rows: int) -> None:
    """The owner of a partition holds so many rows now."""
    global _apart
    with _using:
        _rows[partition] = rows
        if sum(_rows.values()) > ROWS_MANY:
            gc.freeze()
            _apart = True
        elif _apart:
            gc.unfreeze()
            _apart = False
