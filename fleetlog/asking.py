"""Asking a gateway over HTTP, as the verbs do: with the standard library alone, so that a verb starts at once.

What may be asked again is asked again under the same command id until the time is over. Every "no" becomes a
`Refused` with its reason word and what to do about it.
"""

import http.client
import json
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from commands.reasons import REASONS
from fleetlog.problems import NO_ANSWER, REFUSED, WRONG_USAGE, Problem, wrong_usage

TIMEOUT_S: Final = 30.0
WAIT_S: Final = 25.0
"""How long one request lets the gateway wait for something to happen."""
CONNECT_S: Final = 5.0
PAGE_MAX: Final = 1000
FIRST_RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 3.0
SETTLE_S: Final = 10.0
SILENCE_S: Final = 45.0
"""A stream says something every 15 s; after this it is taken for dead."""
UNANSWERED: Final = frozenset({"no_answer", "behind", "not_ready", "log_unavailable", "gateway_busy", "too_fast"})
"""Reasons that mean "not now": when the time is over the exit code says that there was no answer."""
_BROKEN: Final = (http.client.HTTPException, ConnectionError, TimeoutError, OSError)


class Refused(Problem):
    """The gateway said no. `reason`: its word; `status`: of HTTP; `members`: the whole problem."""

    def __init__(self, status: int, members: Mapping[str, Any]) -> None:
        self.status = status
        self.members = members
        self.reason = str(members.get("reason", "internal"))
        super().__init__(refusal(self.reason, members), NO_ANSWER if self.reason in UNANSWERED else REFUSED)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return bool(self.members.get("retryable"))

    @property
    def retry_after_s(self) -> float | None:
        """When to come back, where the gateway says so."""
        after = self.members.get("retry_after_s")
        return float(after) if isinstance(after, int | float) else None


class Unreachable(Problem):
    """Nobody answers at the gateway's address."""

    def __init__(self, url: str, why: object) -> None:
        text = f"no gateway answers at {url} ({_short(why)}): start one with `fleetlog up`, or correct --gateway."
        super().__init__(text, NO_ANSWER)


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a stream: `position` resumes after it."""

    type: str
    position: str
    data: dict[str, Any]


class Asking:
    """A connection to the gateway at `url`, made when it is first needed. Not thread-safe.

    `timeout_s`: how long a request may take with all its repetitions. `waiting`: told once why one is repeated.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises Problem where `url` is no address."""
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._waiting = waiting
        parts = urlsplit(self.url)
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            self._host = None
        if parts.scheme not in ("http", "https") or not self._host or parts.query:
            raise Problem(f"{url!r} is no address of a gateway: write http://HOST:PORT.", WRONG_USAGE)
        self._secure = parts.scheme == "https"
        self._base = parts.path
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._connection: http.client.HTTPConnection | None = None
        self._met = False

    # ---- one request ----

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at `path`. Raises Refused, Unreachable."""
        return self._ask("GET", path, query, None, None)

    def post(self, path: str, body: Any = None, *, command_id: str | None = None, **query: Any) -> Any:
        """Posts `body` under a command id, the same one for every repetition. Raises Refused, Unreachable."""
        return self._ask("POST", path, query, {} if body is None else body, command_id or str(uuid.uuid4()))

    def patch(self, path: str, body: Any, *, command_id: str | None = None) -> Any:
        """As post."""
        return self._ask("PATCH", path, {}, body, command_id or str(uuid.uuid4()))

    def put(self, path: str, body: Any, *, command_id: str | None = None) -> Any:
        """As post."""
        return self._ask("PUT", path, {}, body, command_id or str(uuid.uuid4()))

    def delete(self, path: str, body: Any = None, *, command_id: str | None = None) -> Any:
        """As post; mostly without a body."""
        return self._ask("DELETE", path, {}, body or None, command_id or str(uuid.uuid4()))

    def settle(self, answer: Mapping[str, Any]) -> None:
        """Waits until the tables include what was answered, so that the next verb sees it; a little at most."""
        pool, position = answer.get("pool"), answer.get("position")
        if not pool or not position:
            return
        query = {"where": f"pool={pool}", "limit": 1, "after": position}
        try:
            self._once("GET", "/v1/tasks", query, None, None, SETTLE_S)
        except (Refused, *_BROKEN):
            self._drop()

    def pages(self, path: str, limit: int | None, **query: Any) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page; at most `limit` (None: all)."""
        left, cursor = limit, None
        while left is None or left > 0:
            page = self.get(path, limit=min(left or PAGE_MAX, PAGE_MAX), cursor=cursor, **query)
            items = page["items"] if left is None else page["items"][:left]
            yield from items
            left = None if left is None else left - len(items)
            cursor = page.get("next")
            if not cursor:
                return

    def _ask(self, method: str, path: str, query: Mapping[str, Any], body: Any, command_id: str | None) -> Any:
        give_up = time.monotonic() + self.timeout_s
        pause, told = FIRST_RETRY_S, False
        while True:
            left = give_up - time.monotonic()
            problem: Refused | Unreachable
            try:
                return self._once(method, path, query, body, command_id, max(left, CONNECT_S))
            except Refused as refused:
                after, problem = refused.retry_after_s, refused
                if not refused.retryable:
                    raise
            except _BROKEN as broken:
                self._drop()
                after, problem = None, Unreachable(self.url, broken)
                # Where nobody has ever answered, waiting does not help the one who sits before the screen.
                if not self._met:
                    raise problem from None
            wait = min(LONGEST_RETRY_S, max(pause, after or 0.0))
            if time.monotonic() + wait >= give_up:
                raise problem
            if pause > FIRST_RETRY_S and not told:
                told = True
                self._waiting(f"{problem}\nAsking again for up to {give_up - time.monotonic():.0f} s ...")
            time.sleep(wait)
            pause *= 2

    def _once(
        self, method: str, path: str, query: Mapping[str, Any], body: Any, command_id: str | None, timeout_s: float
    ) -> Any:
        headers = dict(self._headers)
        data = None if body is None else _encoded(body)
        connection = self._connected(timeout_s)
        if data is not None:
            headers["Content-Type"] = "application/json"
        if command_id is not None:
            headers["Idempotency-Key"] = command_id
        connection.request(method, self._base + _target(path, query), data, headers)
        response = connection.getresponse()
        raw = response.read()
        self._met = True
        if response.will_close:
            self._drop()
        return _answer(response.status, raw, self.url)

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._open(CONNECT_S)
            self._connection.connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        return self._connection

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        host = self._host or ""
        if self._secure:
            return http.client.HTTPSConnection(
                host, self._port, timeout=timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, self._port, timeout=timeout_s)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Ends the connection."""
        self._drop()

    # ---- a stream ----

    def stream(self, after: str | None = None, **query: Any) -> Iterator[Told | None]:
        """Events as they happen, from now on or after a position; None where there was silence. Ends with the
        connection, when it may be called again with the last position. Raises Refused, Unreachable.
        """
        headers = self._headers | {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        connection = self._open(CONNECT_S)
        try:
            try:
                connection.connect()
                if connection.sock is not None:
                    connection.sock.settimeout(SILENCE_S)
                connection.request("GET", self._base + _target("/v1/stream", query), headers=headers)
                response = connection.getresponse()
            except _BROKEN as broken:
                raise Unreachable(self.url, broken) from None
            if response.status != 200:
                _answer(response.status, response.read(), self.url)
            yield None  # the stream stands: what happens from here on is told
            try:
                yield from _events(response)
            except _BROKEN:
                return
        finally:
            connection.close()


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe=":")


def _encoded(body: Any) -> bytes:
    """A request's body. Raises Problem where it holds what JSON cannot carry."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise wrong_usage("a text to be sent is not UTF-8: write it in UTF-8.") from None
    except ValueError:
        text = "a number to be sent is none that JSON knows (NaN, Infinity or too large): write one like 1.5."
        raise wrong_usage(text) from None


def _target(path: str, query: Mapping[str, Any]) -> str:
    said = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value not in (None, "")
    }
    return f"{path}?{urlencode(said)}" if said else path


def _answer(status: int, raw: bytes, url: str) -> Any:
    try:
        value = json.loads(raw) if raw else None
    except ValueError:
        raise Problem(f"what answers at {url} is no Fleetlog gateway: correct --gateway.", NO_ANSWER) from None
    if status < 400:
        return value
    if not isinstance(value, dict) or "reason" not in value:
        raise Problem(f"what answers at {url} is no Fleetlog gateway (HTTP {status}): correct --gateway.", NO_ANSWER)
    raise Refused(status, value)


def _events(response: http.client.HTTPResponse) -> Iterator[Told | None]:
    kind, position, data = "", "", list[str]()
    for raw in response:
        line = raw.decode().rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line and not name:
            yield None
        elif name == "event":
            kind = value
        elif name == "id":
            position = value
        elif name == "data":
            data.append(value)
        elif not line and data:
            if kind != "dropped":
                yield Told(kind, position, json.loads("\n".join(data)))
            kind, data = "", []


_REMEDIES: Final = {
    "unauthenticated": "name the file that holds your token with --token-file FILE.",
    "forbidden": "name the file of a token whose role, pools and robots cover this with --token-file FILE.",
    "id_conflict": "choose a new id.",
    "command_id_conflict": "leave out --command-id, or give a new one.",
    "superseded": "",
    "wrong_state": "",
    "clock_trusted": "there is nothing to accept.",
    "not_frozen": "there is nothing to unfreeze.",
    "not_in_error": "there is nothing to clear.",
    "deadline_passed": "give one in the future.",
    "reason_required": "give --reason TEXT.",
}
"""What to do, where the remedy of the list would say the refusal's text again, or speak of HTTP."""


def refusal(reason: str, members: Mapping[str, Any]) -> str:
    """The refusal's text, the field it is about, and the remedy, as one sentence with the word for scripts."""
    text = str(members.get("detail") or members.get("text") or reason).rstrip(".")
    field = members.get("field")
    if field and str(field).strip("/") not in text:
        text = f"{str(field).strip('/')}: {text}"
    verbs = members.get("allowed")
    if isinstance(verbs, list) and "which allows" not in text:
        text += f", which allows {', '.join(map(str, verbs)) or 'nothing more'}"
    remedy = _REMEDIES.get(reason, REASONS[reason].remedy if reason in REASONS else "")
    told = f"{text}: {remedy[0].lower() + remedy[1:]}" if remedy else f"{text}."
    command_id = members.get("command_id")
    if reason == "no_answer" and command_id:
        told = f"{told.rstrip('.')} (--command-id {command_id})."
    return f"{told} [{reason}]"


def _short(why: object) -> str:
    if isinstance(why, TimeoutError):
        return "it took too long"
    if isinstance(why, OSError) and why.strerror:
        return why.strerror.lower() if why.strerror.isascii() else why.strerror
    return str(why) or type(why).__name__
