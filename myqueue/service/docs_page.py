"""PURE. The OpenAPI document as one page for people, which needs no other: no script from elsewhere, no font, no picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ..protocol.openapi import ADDRESS, curl
from ..protocol.operations import OPERATIONS

# What the page itself may do; nothing else, from nowhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
WORDS = {"maxLength": "at most", "maxItems": "at most", "default": "default", "pattern": "pattern"}
DEPTH_MAX = 4  # of a schema that is shown in place; below it its name stands

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #777; --get: #1b6ec2; --post: #1a7f37; --put: #9a6700; --delete: #cf222e; }
* { box-sizing: border-box }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; display: flex }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; flex: 0 0 19rem; padding: 1rem; border-right: 1px solid var(--line); font-size: 13px }
nav a { display: flex; padding: .1rem .3rem; color: inherit; text-decoration: none; border-radius: 4px; overflow-wrap: anywhere }
nav a[hidden] { display: none }
nav a:hover { background: var(--soft) }
nav h2 { font-size: 13px; margin: 1rem 0 .2rem; color: var(--dim) }
nav input { width: 100%; padding: .4rem; font: inherit; border: 1px solid var(--line); border-radius: 4px }
main { flex: 1; min-width: 0; max-width: 62rem; padding: 1rem 2rem 6rem }
h1 { margin: 0 0 .5rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
h4 { margin: 1rem 0 .3rem; font-size: 13px; color: var(--dim) }
section { border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; margin: 1rem 0; scroll-margin-top: 1rem }
section h3 { margin: 0; font: 600 15px/1.6 ui-monospace, monospace; overflow-wrap: anywhere }
b.method { color: #fff; background: var(--get); border-radius: 4px; padding: .1rem .5rem; margin-right: .5rem; font-size: 12px }
nav b { flex: 0 0 4.6em; font: 600 10px ui-monospace, monospace; color: var(--get) }
b.POST { background: var(--post) } b.PUT, b.PATCH { background: var(--put) } b.DELETE { background: var(--delete) }
nav b.POST, nav b.PUT, nav b.PATCH, nav b.DELETE { background: none } nav b.POST { color: var(--post) } nav b.PUT, nav b.PATCH { color: var(--put) }
nav b.DELETE { color: var(--delete) }
code, pre { font: 13px/1.45 ui-monospace, monospace } pre { background: var(--soft); padding: .6rem .8rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: .3rem 0 }
table { border-collapse: collapse; width: 100%; font-size: 14px }
td { padding: .2rem .8rem .2rem 0; border-top: 1px solid var(--line); vertical-align: top }
td:first-child { white-space: nowrap } i { color: var(--dim); font-style: normal; font-size: 13px } p { margin: .4rem 0 }
ul { margin: 0; padding-left: 1.2rem; font-size: 14px } summary { cursor: pointer }
@media (max-width: 800px) { body { display: block } nav { position: static; height: auto; border: 0 } }
"""
SCRIPT = """
for (const line of document.querySelectorAll('pre.curl')) line.textContent = line.textContent.replace(ADDRESS, location.host || ADDRESS);
document.querySelector('nav input').addEventListener('input', (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const link of document.querySelectorAll('nav a')) link.hidden = !link.textContent.toLowerCase().includes(wanted);
});
"""


def page(document: Mapping[str, Any]) -> str:
    """The whole page. Every text of the document is escaped."""
    info, schemas = document["info"], document["components"]["schemas"]
    lines = {one.name: curl(one) for one in OPERATIONS}
    rows = [(path, method.upper(), told) for path, methods in document["paths"].items() for method, told in methods.items()]
    nav, body = "", ""
    for group in [tag["name"] for tag in document["tags"]]:
        heading, members = f"<h2>{escape(group)}</h2>", [row for row in rows if group in row[2]["tags"]]
        nav += heading + "".join(
            f'<a href="#{told["operationId"]}" title="{escape(told["summary"])}"><b class="{method}">{method}</b>{escape(path)}</a>'
            for path, method, told in members)
        body += heading + "".join(_operation(path, method, told, lines.get(told["operationId"], "")) for path, method, told in members)
    shapes = "".join(f'<section id="schema-{name}"><h3>{escape(name)}</h3>{_schema(schema)}</section>' for name, schema in schemas.items())
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(info['title'])}: the native face</title><style>{STYLE}</style></head><body>"
            f'<nav><input type="search" placeholder="filter paths" aria-label="filter paths">{nav}<h2><a href="#schemas">Schemas</a></h2></nav>'
            f"<main><h1>{escape(info['title'])}</h1><p>{_prose(info['description'])}</p><p>For programs: <a href=\"/openapi.json\">/openapi.json</a> "
            f"(OpenAPI {escape(document['openapi'])}).</p>{body}<h2 id=\"schemas\">Schemas</h2>{shapes}</main>"
            f"<script>const ADDRESS = {json.dumps(ADDRESS)};{SCRIPT}</script></body></html>")


def _operation(path: str, method: str, told: Mapping[str, Any], line: str) -> str:
    parts = [f'<section id="{told["operationId"]}"><h3><b class="method {method}">{method}</b>{escape(path)}</h3>'
             f"<p><strong>{escape(told['summary'])}</strong> {_prose(told['description'])}</p>"]
    if line:
        parts.append(f'<pre class="curl">{escape(line)}</pre>')
    if told.get("parameters"):
        parts.append(f"<h4>Arguments</h4><table>{''.join(map(_argument, told['parameters']))}</table>")
    if "requestBody" in told:
        need = "" if told["requestBody"]["required"] else " (may be left out)"
        parts += [f"<h4>Body{need}</h4>", *_content(told["requestBody"]["content"])]
    answers = told["responses"]
    good = {status: one for status, one in answers.items() if status < "400"}
    for status, one in good.items():
        parts += [f"<h4>Answer: {status}, {_prose(one['description'])}</h4>", *_content(one.get("content", {}))]
        parts.append(f"<p><i>Headers: {', '.join(f'<code>{escape(name)}</code>' for name in one['headers'])}</i></p>")
    errors = "".join(f"<tr><td>{status}</td><td>{_prose(one['description'])}</td></tr>" for status, one in answers.items() if status not in good)
    if errors:
        parts.append(f"<details><summary>Errors</summary><table>{errors}</table></details>")
    return "".join(parts) + "</section>"


def _argument(one: Mapping[str, Any]) -> str:
    need = "needed" if one["required"] else "may be left out"
    return (f"<tr><td><code>{escape(one['name'])}</code></td><td><i>{escape(one['in'])}, {need}</i></td>"
            f"<td>{_prose(one.get('description', ''))} {_schema(one['schema'])}</td></tr>")


def _content(content: Mapping[str, Any]) -> Iterable[str]:
    for kind, one in content.items():
        yield f"<div><code>{escape(kind)}</code> {_schema(one['schema'])}</div>"


def _schema(schema: Mapping[str, Any], depth: int = 0) -> str:
    """A schema in words: a name with a link, a list of fields, or a type with its bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{name}"><code>{escape(name)}</code></a>'
    for word in ("anyOf", "allOf"):
        if word in schema:
            return " or ".join(_schema(one, depth) for one in schema[word]) + _rest(schema)
    kind = schema.get("type", "")
    if kind == "array":
        return f"<i>list of</i> {_schema(schema['items'], depth + 1)}{_rest(schema)}"
    if "properties" in schema and depth < DEPTH_MAX:
        needed = schema.get("required", ())
        fields = "".join(f"<li><code>{escape(name)}</code>{'' if name in needed else ' <i>(optional)</i>'} {_schema(one, depth + 1)}</li>"
                         for name, one in schema["properties"].items())
        return f"<i>object</i>{_rest(schema)}<ul>{fields}</ul>"
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], Mapping):
        return f"<i>object by name, each</i> {_schema(schema['additionalProperties'], depth + 1)}{_rest(schema)}"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"]) + _rest(schema)
    return f"<i>{escape(str(kind))}</i>{_rest(schema)}"


def _rest(schema: Mapping[str, Any]) -> str:
    """Bounds, default and sentence."""
    low, high = schema.get("minimum"), schema.get("maximum")
    told = []
    if high is not None and high < 2**53:
        told.append(f"{low} to {high}")
    elif low is not None:
        told.append(f"from {low}")
    told += [f"{word} {schema[key]}" for key, word in WORDS.items() if key in schema]
    bounds = f" <i>{escape(', '.join(told))}</i>" if told else ""
    return bounds + (f" {_prose(schema['description'])}" if schema.get("description") else "")


def _prose(text: str) -> str:
    """Escaped; what stands in backticks as code, a new line as one."""
    parts = escape(text).split("`")
    marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    return marked.replace("\n", "<br>")
