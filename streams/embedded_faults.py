"""RocksDB's and the system's exceptions as faults of the log, each one sentence that says what to do."""

from pathlib import Path

from rocksdict import DbClosedError

from streams.port import LogCorrupt, LogFault, LogLocked, LogMisconfigured, LogUnavailable


def fault_of(error: Exception, folder: Path) -> LogFault:
    """RocksDB's and the system's exceptions as ours, each a sentence that says what to do; others are raised."""
    text = str(error)
    if isinstance(error, LogFault):
        return error
    if isinstance(error, RuntimeError) and "borrowed" in text:
        return LogUnavailable(f"The log in {folder} is being closed; try again.")
    if type(error) is not Exception and not isinstance(error, OSError | DbClosedError):
        raise error
    if isinstance(error, FileExistsError | NotADirectoryError):
        return LogMisconfigured(f"{folder} is not a folder; name one that the log may use for itself.")
    if "/LOCK: " in text:
        return LogLocked(
            f"The log in {folder} is in use by {_user_of(folder)}: stop that first, or use another folder."
        )
    if "No space left" in text or "Disk quota exceeded" in text:
        return LogUnavailable(f"The disk of {folder} is full; make room, the log goes on by itself.")
    if "Read-only file system" in text or "Permission denied" in text or "Operation not permitted" in text:
        return LogUnavailable(f"The log in {folder} cannot be written; give this user the right to, or another folder.")
    if "Too many open files" in text:
        return LogUnavailable(f"The log in {folder} needs more open files than allowed; raise the limit (ulimit -n).")
    if text.startswith("Corruption"):
        return LogCorrupt(f"The log in {folder} is damaged ({_short(text)}): restore it from a backup.")
    return LogUnavailable(f"The log in {folder} does not work: {_short(text)}.")


def _short(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return first[:200].rstrip(".")


def _user_of(folder: Path) -> str:
    try:
        return f"process {int((folder / 'pid').read_text())}"
    except (OSError, ValueError):
        return "another process"
