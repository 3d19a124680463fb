"""Who is asking: bearer tokens, and the two checks that keep web pages of others away (Origin, Host)."""

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from commands.reasons import Refusal
from robot_gateway.settings import GatewaySettings
from robot_gateway.tokens import LOCAL, Principal, TokenTable

HeaderOf = Callable[[str], str | None]
"""Gives the value of a header by its lower-case name."""

OPEN_PATHS: Final = ("/healthz", "/readyz", "/v1/version", "/v1/problems/", "/openapi.json", "/docs")
"""Paths that need no token: they tell nothing about tasks or robots."""


class Access:
    """Decides who a request comes from. Without a token file everybody is `local`."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Reads the token file, if there is one; raises TokenFileUnusable."""
        self.settings = settings
        self.tokens = TokenTable(settings.tokens) if settings.tokens else None

    @property
    def pools_are_made_on_first_use(self) -> bool:
        """Without tokens a pool is created when it is first named; with them a mistyped name must not make one."""
        return self.tokens is None

    def enter(self, header: HeaderOf, path: str) -> Principal | Refusal:
        """Who asks for `path`, or why nobody may ask like this."""
        refused = self._host_problem(header("host")) or self._origin_problem(header("origin"), header("host"))
        if refused:
            return refused
        if self.tokens is None:
            return LOCAL
        scheme, _, token = (header("authorization") or "").partition(" ")
        principal = self.tokens.find(token.strip(), datetime.now(UTC)) if scheme.lower() == "bearer" else None
        if principal is not None:
            return principal
        if path.startswith(OPEN_PATHS):
            return Principal("nobody", "robot", pools=(), robots=())
        said = "the token is unknown or has expired" if token else "a token is needed"
        return Refusal("unauthenticated", f"{said} for {path[:200]}")

    def still_valid(self, principal: Principal) -> bool:
        """Whether whoever came with this token may stay."""
        return self.tokens is None or self.tokens.still_valid(principal, datetime.now(UTC))

    def _host_problem(self, host: str | None) -> Refusal | None:
        """Without tokens a web page could reach us under a name of its own that points here (DNS rebinding)."""
        if self.tokens is not None or host is None:
            return None
        name = _name_of(host)
        if name == "localhost" or name == self.settings.host or _is_loopback(name):
            return None
        return Refusal("forbidden", f"without tokens this gateway answers to loopback addresses only, not to {name!r}")

    def _origin_problem(self, origin: str | None, host: str | None) -> Refusal | None:
        if origin is None or origin in self.settings.origins:
            return None
        if host is not None and origin in (f"http://{host}", f"https://{host}"):
            return None
        return Refusal(
            "forbidden", f"pages of {origin[:200]!r} may not use this gateway; see the setting gateway.origins"
        )


def _name_of(host: str) -> str:
    """The name or address in a Host header, without port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
