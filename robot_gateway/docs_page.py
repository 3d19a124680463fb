"""`/docs`: the OpenAPI description as one page of plain HTML, readable without network and without scripts."""

from html import escape
from typing import Any, Final

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}
code,pre{font:14px ui-monospace,monospace;background:#f4f5f7;border-radius:4px;padding:.1em .3em}
details{margin:.4rem 0}summary{cursor:pointer}
.verb{display:inline-block;min-width:4rem;font-weight:600}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}code,pre{background:#1c2128}h2{border-color:#30363d}}
"""


def docs_page(openapi: dict[str, Any]) -> str:
    """The page: operations by tag, then the models that requests take."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in openapi["paths"].items():
        for verb, operation in methods.items():
            by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append(_operation(path, verb, operation))
    sections = [f"<h2>{escape(tag)}</h2>" + "".join(operations) for tag, operations in by_tag.items()]
    models = "".join(_model(name, schema) for name, schema in openapi.get("components", {}).get("schemas", {}).items())
    title = escape(openapi["info"]["title"])
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>"
        f"<h1>{title} <small>{escape(openapi['info']['version'])}</small></h1>"
        f"<p>{escape(openapi['info'].get('description', ''))}</p>"
        f"<p>For programs: <a href='/openapi.json'>openapi.json</a></p>"
        f"{''.join(sections)}<h2>What requests take</h2>{models}</html>"
    )


def _operation(path: str, verb: str, operation: dict[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    rows = [_row(p["name"], p["in"], p.get("schema", {}), p.get("description", "")) for p in parameters]
    taken = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if taken:
        rows.append(f"<tr><td>body</td><td></td><td>{_type(taken)}</td><td></td></tr>")
    return (
        f"<details><summary><span class='verb'>{escape(verb.upper())}</span> <code>{escape(path)}</code> "
        f"{escape(operation.get('summary', ''))}</summary><p>{escape(operation.get('description', ''))}</p>"
        f"<table>{''.join(rows)}</table></details>"
    )


def _row(name: str, place: str, schema: dict[str, Any], description: str) -> str:
    cells = (f"<code>{escape(name)}</code>", escape(place), _type(schema), escape(description))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _model(name: str, schema: dict[str, Any]) -> str:
    rows = [
        _row(field, "needed" if field in schema.get("required", []) else "", inner, inner.get("description", ""))
        for field, inner in schema.get("properties", {}).items()
    ]
    description = escape(schema.get("description", ""))
    return (
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
        f"<p>{description}</p><table>{''.join(rows)}</table></details>"
    )


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several] if one.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = escape(str(schema.get("format") or schema.get("type") or "anything"))
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    return f"{kind} ({escape(', '.join(limits))})" if limits else kind


_LIMITS: Final = {
    "minimum": "from",
    "maximum": "to",
    "exclusiveMinimum": "above",
    "minLength": "length from",
    "maxLength": "length to",
    "maxItems": "at most",
}
