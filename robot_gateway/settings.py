"""Settings of a gateway (section `gateway`), and the sentences that refuse impossible ones at start."""

import ipaddress
import stat
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

TRANSACTION_TIMEOUT_S: Final = 10.0
"""An owner's transaction may take this long, so an answer may as well."""
ENVELOPE_BYTES: Final = 64 * 1024
"""What a record may hold beside a payload and a checkpoint."""

Bytes = Annotated[int, Field(ge=1024, le=2**31)]


class GatewaySettings(BaseModel):
    """What `gateway.*` of the settings file says; durations in the unit of their name.

    `listen` is HOST:PORT (port 0: any free one). `tokens` names the token file; without it only loopback addresses
    may be listened on. `behind_tls_proxy`: something in front of the gateway speaks TLS. `origins`: web pages
    (scheme://host[:port]) that may use the gateway from a browser.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: str = "127.0.0.1:8780"
    tokens: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_tls_proxy: bool = False
    origins: list[str] = []
    payload_max_bytes: Bytes = 262_144
    unanswered_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    answer_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    heartbeat_gather_ms: Annotated[int, Field(ge=10, le=10_000)] = 250
    sessions_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    send_buffer_bytes: Bytes = 4 * 1024 * 1024

    @property
    def host(self) -> str:
        """The address to listen on, without brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on; 0 for any free one."""
        return int(self.listen.rpartition(":")[2])

    @property
    def beyond_loopback(self) -> bool:
        """Whether others than this machine can reach the gateway."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True


def settings_problems(settings: GatewaySettings, record_bytes_max: int) -> list[str]:
    """Why a gateway does not start with `settings` on a log whose records hold `record_bytes_max`; one sentence each.

    The sentences say what to change. An empty list: nothing is wrong.
    """
    problems = [_listen_problem(settings), _tls_problem(settings), _token_file_problem(settings)]
    if settings.answer_timeout_s <= TRANSACTION_TIMEOUT_S:
        problems.append(
            f"gateway.answer_timeout_s is {settings.answer_timeout_s:g}, but an owner may need "
            f"{TRANSACTION_TIMEOUT_S:g} s to commit: set it higher."
        )
    needed = 2 * settings.payload_max_bytes + ENVELOPE_BYTES
    if needed > record_bytes_max:
        problems.append(
            f"gateway.payload_max_bytes is {settings.payload_max_bytes}: two payloads and their envelope need {needed} "
            f"bytes, but a record of the log holds {record_bytes_max}; "
            f"set it to {(record_bytes_max - ENVELOPE_BYTES) // 2} or less."
        )
    return [problem for problem in problems if problem]


def pool_problem(settings: GatewaySettings, window_ms: int | None, accept_ms: int | None) -> str | None:
    """Why a pool with this heartbeat window or accept time cannot be served, as a sentence, or None."""
    gather_ms = settings.heartbeat_gather_ms
    if window_ms is not None and window_ms < 4 * gather_ms:
        return f"window_s must be at least {4 * gather_ms / 1000:g}: heartbeats are gathered for {gather_ms} ms."
    if accept_ms is not None and accept_ms < 2 * gather_ms:
        return f"accept_s must be at least {2 * gather_ms / 1000:g}: heartbeats are gathered for {gather_ms} ms."
    return None


def _listen_problem(settings: GatewaySettings) -> str | None:
    host, colon, port = settings.listen.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        return f"gateway.listen is {settings.listen!r}: write HOST:PORT, for example 127.0.0.1:8780."
    if not settings.beyond_loopback:
        return None
    if settings.tokens is None:
        return (
            f"gateway.listen is {settings.listen}, which others can reach: set gateway.tokens "
            "(`fleetlog token new` makes the file), or listen on 127.0.0.1."
        )
    if settings.tls_cert is None and not settings.behind_tls_proxy:
        return (
            f"gateway.listen is {settings.listen}, and tokens would travel in the clear: set gateway.tls_cert and "
            "gateway.tls_key, or gateway.behind_tls_proxy where a proxy speaks TLS."
        )
    return None


def _tls_problem(settings: GatewaySettings) -> str | None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        return "gateway.tls_cert and gateway.tls_key belong together: set both, or neither."
    for name, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if path is not None and not path.is_file():
            return f"gateway.{name} is {path}, which is not a file: correct the path."
    return None


def _token_file_problem(settings: GatewaySettings) -> str | None:
    if settings.tokens is None:
        return None
    try:
        mode = settings.tokens.stat().st_mode
    except OSError:
        return f"gateway.tokens is {settings.tokens}, which cannot be read: make it with `fleetlog token new`."
    if stat.S_IMODE(mode) & 0o077:
        return f"{settings.tokens} can be read by others: run `chmod 600 {settings.tokens}`."
    return None
