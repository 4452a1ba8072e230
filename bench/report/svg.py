"""Charts as SVG: drawn offline, in two inks."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Mapping
from typing import Any

import vl_convert

from bench.visible import visible

INK, MUTED, GRID, PAPER = "#1a1b1e", "#5f6369", "#e3e5e9", "#fefefe"
_DARK = {INK: "#e8eaee", MUTED: "#a6acb5", GRID: "#343941", PAPER: "#17191d"}

ARM_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6bb0", "#8c8c8c")
"""Okabe and Ito's palette, told apart with any colour vision; without its yellow, which is lost on paper."""

_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"

_CONFIG: dict[str, Any] = {
    "background": PAPER,
    "padding": {"left": 6, "right": 34, "top": 6, "bottom": 6},
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": MUTED, "titleFontWeight": "normal", "gridColor": GRID, "domainColor": GRID,
        "tickColor": GRID, "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 260,
    },
    "legend": {"labelColor": INK, "titleColor": MUTED, "titleFontWeight": "normal", "labelFontSize": 12,
               "titleFontSize": 12, "labelLimit": 260, "orient": "bottom", "columns": 4, "symbolBaseFillColor": MUTED,
               "layout": {"bottom": {"direction": "vertical", "anchor": "start"}}},
    "header": {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "labelFontWeight": "bold",
               "labelLimit": 400},
    "text": {"color": INK, "fontSize": 12, "limit": 260},
    "range": {"category": list(ARM_COLOURS)},
}  # fmt: skip


def draw(spec: dict[str, Any]) -> str:
    """A Vega-Lite specification as SVG on light paper. Nothing is fetched: the data has to be inside.

    Values with invisible characters are shown with their codes. Names of fields and titles must be the program's own:
    Vega makes expressions of them, and undoes such codes there.
    """
    # A character that XML cannot hold does not make the renderer raise: it ends the process.
    return str(vl_convert.vegalite_to_svg({**_shown(spec), "config": _CONFIG}, allowed_base_urls=[]))


def _shown(part: Any) -> Any:
    """A part of a specification with all its text safe to show."""
    if isinstance(part, str):
        return visible(part)
    if isinstance(part, Mapping):
        return {key: _shown(value) for key, value in part.items()}
    return [_shown(value) for value in part] if isinstance(part, (list, tuple)) else part


def warm_up() -> None:
    """Start the renderer beside other work: its first chart takes half a second, the next ones hundredths."""
    threading.Thread(target=draw, args=({"data": {"values": [{}]}, "mark": "point"},), daemon=True).start()


def dark(svg: str) -> str:
    """The same chart on dark paper: only inks and paper are exchanged, the colours that mean something stay."""
    for light, inverse in _DARK.items():
        svg = svg.replace(light, inverse)
    return svg


def uri(svg: str) -> str:
    """An SVG as a data URI. As an image it runs no script and fetches nothing, whatever is in it."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def size(svg: str) -> tuple[int, int]:
    """Width and height in pixels."""
    found = re.search(r'<svg[^>]* width="([\d.]+)"[^>]* height="([\d.]+)"', svg)
    assert found is not None, "every chart is drawn with a size"
    return round(float(found[1])), round(float(found[2]))
