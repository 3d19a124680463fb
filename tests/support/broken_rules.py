"""Rules of the product switched off, for tests that what judges it notices."""

from __future__ import annotations

from typing import Any

import pytest

from commands.state import PoolState
from streams.owner import PartitionOwner


def early_expiry(patch: pytest.MonkeyPatch) -> None:
    """A lease ends after one missed window."""
    patch.setattr(PoolState, "windows_of", lambda self, lease_ms, instant: 1)


def failed_commit_counts(patch: pytest.MonkeyPatch) -> None:
    """A commit that failed counts as done."""
    commit = PartitionOwner._commit

    def careless(self: Any) -> None:
        try:
            commit(self)
        except Exception:
            self._written.events.clear()
            self._written.outcomes.clear()

    patch.setattr(PartitionOwner, "_commit", careless)
