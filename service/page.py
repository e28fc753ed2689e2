"""Writes an OpenAPI document as one HTML page without scripts, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}code{font-family:ui-monospace,monospace;font-size:.92em}"
    "summary{cursor:pointer;padding:.3rem 0}summary b{display:inline-block;width:4.5rem}"
    "details{border-bottom:1px solid #d8dee4}details>div{padding:0 0 1rem 1.2rem}"
    "table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.2rem .8rem "
    ".2rem 0}:target{outline:2px solid #0969da}a{color:#0550ae}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}a{color:#79c0ff}"
    "details{border-color:#30363d}}"
)


def page(document: Mapping[str, Any]) -> str:
    """The page; everything in the document is text in it, never markup."""
    info = document["info"]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            *(f"<p>{_text(part)}</p>" for part in info["description"].strip().split("\n\n")),
            '<p><a href="/openapi.json">openapi.json</a></p>',
            *_groups(document),
            "<h2>Bodies</h2>",
            *(_schema(name, one) for name, one in document["components"]["schemas"].items()),
            "</body></html>",
        ]
    )


def _groups(document: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            groups.setdefault(one["tags"][0], []).append(_operation(method, path, one))
    for tag, found in groups.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from found


def _operation(method: str, path: str, one: Mapping[str, Any]) -> str:
    parts = [f"<p>{_text(one['description'])}</p>"] if "description" in one else []
    if "parameters" in one:
        rows = (
            f"<tr><td><code>{escape(given['name'])}</code></td><td>{escape(given['in'])}"
            f"{', required' if given['required'] else ''}</td><td>{_type(given['schema'])}</td>"
            f"<td>{_text(given.get('description', ''))}</td></tr>"
            for given in one["parameters"]
        )
        parts.append(f"<h4>Parameters</h4><table>{''.join(rows)}</table>")
    if "requestBody" in one:
        parts.append(f"<h4>Body</h4><p>{_content(one['requestBody']['content'])}</p>")
    rows = (
        f"<tr><td>{status}</td><td>{_text(answer['description'])}</td>"
        f"<td>{_content(answer.get('content', {}))}</td></tr>"
        for status, answer in one["responses"].items()
    )
    parts.append(f"<h4>Answers</h4><table>{''.join(rows)}</table>")
    return (
        f'<details id="{escape(one["operationId"])}"><summary><b>{escape(method.upper())}</b> '
        f"<code>{escape(path)}</code> {_text(one['summary'])}</summary>"
        f"<div>{''.join(parts)}</div></details>"
    )


def _content(content: Mapping[str, Any]) -> str:
    return "<br>".join(
        f"<code>{escape(media)}</code> {_type(one.get('schema', {}))}"
        for media, one in content.items()
    )


def _schema(name: str, one: Mapping[str, Any]) -> str:
    required = one.get("required", ())
    rows = (
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(schema)}</td>"
        f"<td>{'required' if field in required else ''}</td></tr>"
        for field, schema in one.get("properties", {}).items()
    )
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<div><p>{_text(one.get('description', ''))}</p><table>{''.join(rows)}</table></div>"
        "</details>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """A few words on what a value is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    for word, joint in (("anyOf", " or "), ("allOf", " ")):
        if word in schema:
            return joint.join(found for one in schema[word] if (found := _type(one)))
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = str(schema.get("type", ""))
    if kind == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    bounds = [
        f"{word} {schema[name]}"
        for name, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minLength", "at least"),
            ("maxLength", "at most"),
            ("default", "default"),
        )
        if name in schema
    ]
    return escape(" ".join([kind, *bounds]))


def _text(text: str) -> str:
    """Escaped; what stands between backticks is code."""
    parts = escape(text).replace("``", "`").split("`")
    return "".join(
        f"<code>{part}</code>" if n % 2 and n < len(parts) - 1 else part
        for n, part in enumerate(parts)
    )
