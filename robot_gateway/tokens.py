"""The token file: who may do what. TOML, mode 0600, reloaded while the gateway runs.

    [[token]]
    name = "hall-a-robots"
    sha256 = "<64 hex digits: SHA-256 of the token>"
    role = "robot"
    pools = ["hall-a"]
    robots = ["r*"]
    expires = 2027-01-01T00:00:00Z

The file never holds a token itself, so reading it gives nobody access.
"""

import os
import re
import secrets
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from robot_gateway.wording import plain

Role = Literal["robot", "submitter", "operator", "auditor", "viewer"]
Right = Literal["session", "submit", "verb", "read", "read_bodies"]

RIGHTS: Final[dict[str, frozenset[Right]]] = {
    "robot": frozenset({"session"}),
    "submitter": frozenset({"submit"}),
    "operator": frozenset({"submit", "verb", "read", "read_bodies"}),
    "auditor": frozenset({"read", "read_bodies"}),
    "viewer": frozenset({"read"}),
    "local": frozenset({"session", "submit", "verb", "read", "read_bodies"}),
}
"""Role -> what it may do. A submitter also reads and cancels what it submitted; that is checked per task.

`local` is whoever reaches a gateway without tokens.
"""
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")


class TokenEntry(BaseModel):
    """One token: `pools` and `robots` are names or globs; without `expires` it holds until removed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$", max_length=128)]
    sha256: str
    role: Role
    pools: list[str] = ["*"]
    robots: list[str] = ["*"]
    expires: datetime | None = None

    @field_validator("pools", "robots")
    @classmethod
    def _are_texts(cls, globs: list[str]) -> list[str]:
        """Bytes that are no UTF-8 would make the whole file unusable."""
        for glob in globs:
            try:
                glob.encode()
            except UnicodeEncodeError:
                raise ValueError(f"{glob!r} is no text") from None
        return globs

    @field_validator("sha256")
    @classmethod
    def _is_digest(cls, text: str) -> str:
        if not _SHA256.match(text):
            raise ValueError("must be 64 hex digits: the SHA-256 of the token")
        return text


class TokenFileUnusable(Exception):
    """The token file cannot be used; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a request comes from. `name` is recorded as actor; `digest` finds the token again after a reload."""

    name: str
    role: str
    pools: tuple[str, ...] = ("*",)
    robots: tuple[str, ...] = ("*",)
    digest: str = ""
    expires: datetime | None = field(default=None, compare=False)

    def may(self, right: Right, pool: str | None = None) -> bool:
        """Whether the role has `right`, in `pool` where one is named."""
        return right in RIGHTS[self.role] and (pool is None or self.covers_pool(pool))

    def covers_pool(self, pool: str) -> bool:
        """Whether the token is for `pool`."""
        return self.everywhere or any(fnmatchcase(pool, glob) for glob in self.pools)

    def covers_robot(self, robot: str) -> bool:
        """Whether the token is for `robot`."""
        return any(fnmatchcase(robot, glob) for glob in self.robots)

    @property
    def everywhere(self) -> bool:
        """Whether the token is for all pools."""
        return "*" in self.pools


LOCAL: Final = Principal("local", "local")
"""Everybody, where no tokens are used."""


class TokenTable:
    """The tokens of one file by digest. Not thread-safe: used by the gateway's loop alone."""

    def __init__(self, path: Path) -> None:
        """Reads the file; raises TokenFileUnusable."""
        self.path = path
        self.problem: str | None = None
        self._stamp = _stamp_of(path)
        self._by_digest = _principals(read_tokens(path))

    def find(self, token: str, now: datetime) -> Principal | None:
        """Whose token this is, or None where it is unknown or has expired."""
        return self._valid(sha256(token.encode()).hexdigest(), now)

    def still_valid(self, principal: Principal, now: datetime) -> bool:
        """Whether the token that `principal` came with still means the same."""
        return self._valid(principal.digest, now) == principal

    def reload_if_changed(self) -> None:
        """Reads the file again if it changed. An unusable one keeps the former tokens and sets `problem`."""
        stamp = _stamp_of(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._by_digest = _principals(read_tokens(self.path))
            self.problem = None
        except TokenFileUnusable as unusable:
            self.problem = f"{unusable} The tokens read before stay in force."

    def _valid(self, digest: str, now: datetime) -> Principal | None:
        principal = self._by_digest.get(digest)
        if principal is None or (principal.expires is not None and principal.expires <= now):
            return None
        return principal


def read_tokens(path: Path) -> list[TokenEntry]:
    """The entries of a token file; raises TokenFileUnusable."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise TokenFileUnusable(f"{path} cannot be read ({error.strerror}): check the path and its owner.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TokenFileUnusable(f"{path} is not TOML ({error}): correct it.") from None
    if not isinstance(content.get("token", []), list) or content.keys() - {"token"}:
        raise TokenFileUnusable(f"{path} holds something else than [[token]] tables: remove it.")
    entries = [_entry(path, number, raw) for number, raw in enumerate(content.get("token", []), 1)]
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise TokenFileUnusable(f"{path} has two tokens called {twice}: a name is an actor in the log, rename one.")
    return entries


def write_tokens(path: Path, entries: list[TokenEntry]) -> None:
    """Replaces the token file with `entries`, mode 0600, whole or not at all. Raises OSError."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("\n".join(_as_toml(entry) for entry in entries))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def new_token(
    name: str,
    role: Role,
    *,
    pools: list[str] | None = None,
    robots: list[str] | None = None,
    expires: datetime | None = None,
) -> tuple[str, TokenEntry]:
    """A fresh token, to be shown once, and its entry for the file."""
    token = "flt_" + secrets.token_urlsafe(32)
    digest = sha256(token.encode()).hexdigest()
    entry = TokenEntry(
        name=name, sha256=digest, role=role, pools=pools or ["*"], robots=robots or ["*"], expires=expires
    )
    return token, entry


def _entry(path: Path, number: int, raw: Any) -> TokenEntry:
    try:
        entry = TokenEntry.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "it"
        raise TokenFileUnusable(f"{path}: token {number}: {place}: {plain(first)}.") from None
    if entry.expires is not None and entry.expires.tzinfo is None:
        raise TokenFileUnusable(f"{path}: token {number}: expires needs a time zone, for example 2027-01-01T00:00:00Z.")
    return entry


def _principals(entries: list[TokenEntry]) -> dict[str, Principal]:
    return {
        entry.sha256: Principal(
            entry.name, entry.role, tuple(entry.pools), tuple(entry.robots), entry.sha256, entry.expires
        )
        for entry in entries
    }


def _as_toml(entry: TokenEntry) -> str:
    lines = ["[[token]]", f"name = {_quoted(entry.name)}", f"sha256 = {_quoted(entry.sha256)}"]
    lines.append(f"role = {_quoted(entry.role)}")
    lines.append(f"pools = [{', '.join(map(_quoted, entry.pools))}]")
    lines.append(f"robots = [{', '.join(map(_quoted, entry.robots))}]")
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires.astimezone(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
