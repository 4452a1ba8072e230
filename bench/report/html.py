"""Parts of a report as HTML. Whatever others wrote is text here: escaped, its control characters to be seen."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from bench.report.content import Cell, Code, Table
from bench.visible import visible

_HERE = Path(__file__).parent
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def text(value: object) -> Markup:
    """Text between tags or in a quoted attribute; newlines stay, and count in a block of code alone."""
    return value if isinstance(value, Markup) else escape(visible(str(value), lines=True))


def block(value: object) -> Markup:
    """A part of a report: a table that can be sorted, a block of code, or text."""
    if isinstance(value, Table):
        return _table(value)
    if isinstance(value, Code):
        return Markup("<pre><code>{}</code></pre>").format(text(value.text))
    return text(value)


def _table(table: Table) -> Markup:
    def side(column: int) -> Markup:
        return Markup(' class="r"') if column in table.right else Markup()

    head = Markup().join(
        Markup('<th scope="col"{}><button type="button">{}</button></th>').format(side(n), text(c))
        for n, c in enumerate(table.columns)
    )
    body = Markup().join(
        Markup("<tr>{}</tr>").format(
            Markup().join(
                Markup("<td{}{}>{}</td>").format(side(n) or _long(value), _key(value), text(value))
                for n, value in enumerate(row)
            )
        )
        for row in table.rows
    )
    return Markup(
        '<div class="wide"><table class="sortable"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, body)


def _long(value: object) -> Markup:
    """A cell with a sentence needs room: beside short ones it would become a column of single words."""
    return Markup(' class="long"') if len(str(value)) > 80 else Markup("")


def _key(value: object) -> Markup:
    """What a cell is sorted by: its number, or the one that its text begins with; text without one by itself."""
    if isinstance(value, Cell):
        number = value.key
    elif isinstance(value, (int, float)):
        number = float(value)
    else:
        found = _NUMBER.match(str(value))
        number = float(found[0]) if found else None
    return Markup() if number is None else Markup(' data-key="{}"').format(repr(float(number)))


def render_html(page: dict[str, Any]) -> str:
    """The page as one file that needs nothing else: styles, script and pictures are inside.

    Its content security policy allows this style, this script, and pictures that are inside, by their hashes and
    nothing else: neither a script in an answer nor a request to anywhere runs, even were the escaping wrong.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench", "report"),
        finalize=block,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    style, script = ((_HERE / name).read_text("utf-8").strip() for name in ("report.css", "report.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("report.html.j2").render(
        page | {"style": Markup(style), "script": Markup(script), "policy": policy}
    )


def _hash(source: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"
