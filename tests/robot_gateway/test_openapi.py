"""The description of the paths: whole, true, and readable without network."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from robot_gateway.app import create_app
from robot_gateway.http import BODY_MODELS
from tests.support.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A gateway without tables."""
    with Site(scripted=True, projector=False) as running:
        yield running


def test_every_path_is_described(site: Site) -> None:
    """Summary, description, and for each body a model with its fields."""
    app = create_app(site.gateway)
    openapi = app.openapi()

    served = {getattr(route, "path", "") for route in app.routes} - {"/docs", "/openapi.json", ""}
    assert served <= set(openapi["paths"]) | {"/docs/oauth2-redirect"}
    assert {"/v1/pools/{pool}/tasks", "/v1/stream", "/readyz"} <= set(openapi["paths"])
    for path, methods in openapi["paths"].items():
        for verb, operation in methods.items():
            assert operation["summary"], (verb, path)
            assert operation["description"], (verb, path)
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            if verb == "patch":
                assert "requestBody" in operation, path


def test_every_reference_leads_somewhere(site: Site) -> None:
    """Models that requests take are components, with the names that are used outside."""
    openapi = create_app(site.gateway).openapi()
    schemas: dict[str, Any] = openapi["components"]["schemas"]

    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(openapi)):
        assert name in schemas
    assert {model.__name__ for model in BODY_MODELS} <= set(schemas)
    task = schemas["TaskIn"]
    assert task["additionalProperties"] is False
    assert {"id", "kind", "payload", "lease_s", "pass", "on_lost"} <= set(task["properties"])
    assert task["required"] == ["kind"]
    assert "ValidationError" not in schemas


def test_the_page_needs_nothing_from_elsewhere(site: Site) -> None:
    """No script, no address of others; every path stands on it."""
    page = site.client.get("/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    for path in site.client.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert 'id="TaskIn"' in page.text or "id='TaskIn'" in page.text
