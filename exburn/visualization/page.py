"""Parts of HTML pages and of notebooks' outputs: colours, tables, rows that fold.

They need no script and no network. Whatever is shown goes through `text`, since names
come from files, and files from strangers. Where a page takes the style away, as GitHub
does, plain tables and `<details>` are left.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import Any

from exburn.errors import printable
from exburn.visualization.curves import Panel
from exburn.visualization.svg import DARK, LIGHT, draw_panel, svg_style, variables

_MOST_NAME = 120  # characters of a name
_STEP = 14  # pixels that rows are indented below the row that folds them
_DARK_PAGES = (
    '[data-jp-theme-light="false"]',
    '[data-theme="dark"]',
    '[theme="dark"]',
    '[data-md-color-scheme="slate"]',
    ".vscode-dark",
)
_LIGHT_PAGES = (
    '[data-jp-theme-light="true"]',
    '[data-theme="light"]',
    '[theme="light"]',
    '[data-md-color-scheme="default"]',
    ".vscode-light",
)
# What notebooks call their colours, so that a theme of the user's is followed.
_HOST_COLORS = {
    "surface": ("--jp-layout-color0", "--vscode-editor-background"),
    "raised": ("--jp-layout-color1", "--vscode-editorWidget-background"),
    "text": ("--jp-content-font-color1", "--vscode-editor-foreground"),
    "muted": ("--jp-content-font-color2", "--vscode-descriptionForeground"),
    "grid": ("--jp-border-color2", "--vscode-editorWidget-border"),
}
_FRAGMENT = """
#{background:var(--surface);color:var(--text);padding:8px 10px;border-radius:6px;
font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;max-width:1000px}
# .title{font-weight:600;font-size:14px;margin:0 0 6px}
# .title span,# .note{color:var(--muted);font-weight:400}# .note{margin:6px 0 0}
# .panels{display:grid;gap:10px;margin-bottom:10px;
grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr))}
# .panel svg{display:block;width:100%;height:auto}
# table.rows{border-collapse:collapse;border:0;width:100%;margin:0;table-layout:fixed;
font-size:13px}
# table.rows tr:nth-child(n){background:transparent}
# table.rows td,# table.rows th,# summary>span{text-align:left;vertical-align:top;
padding:3px 10px 3px 0;white-space:normal;overflow-wrap:anywhere;max-width:none}
# table.rows td,# table.rows th{border:0;border-bottom:1px solid var(--grid);
color:inherit}
# table.rows th{color:var(--muted);font-weight:600}
# table.rows .n,# summary .n{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap;overflow-wrap:normal}# table.rows th{overflow-wrap:normal}
# table.rows td.fold{padding:0;border:0}
# table.rows details{display:block;margin:0;padding:0;border:0;background:none;
box-shadow:none;font:inherit;color:inherit}# table.rows details>*{margin:0}
# table.rows summary{display:flex;cursor:pointer;list-style:none;margin:0;padding:0;
min-height:0;border:0;border-bottom:1px solid var(--grid);border-radius:0;
background:none;font:inherit;color:inherit}
# table.rows summary::-webkit-details-marker,# table.rows summary::before,
# table.rows summary::after{display:none}
# summary>span{box-sizing:border-box;display:block}
# summary .first::before{content:"▸";display:inline-block;width:14px;
color:var(--muted)}# details[open]>summary .first::before{content:"▾"}
# .kind{color:var(--muted)}
"""


def theme(scope: str, *, hosted: bool = False) -> str:
    """Rules of CSS that give an element its colours, on a light and on a dark page.

    Args:
        hosted: Whether a notebook's own colours go first.
    """
    light, dark = (
        variables(_with_host_colors(colors) if hosted else colors)
        for colors in (LIGHT, DARK)
    )
    on_light = ",".join(f"{page} {scope}" for page in _LIGHT_PAGES)
    on_dark = ",".join(f"{page} {scope}" for page in _DARK_PAGES)
    return (
        f"{scope}{{{light}}}"
        f"@media(prefers-color-scheme:dark){{{scope}{{{dark}}}}}"
        f"{on_light}{{{light}}}{on_dark}{{{dark}}}"
    )


def _with_host_colors(colors: dict[str, str]) -> dict[str, str]:
    hosted = {}
    for name, color in colors.items():
        for host in reversed(_HOST_COLORS.get(name, ())):
            color = f"var({host},{color})"
        hosted[name] = color
    return hosted


def fragment(*parts: str, rules: str = "") -> str:
    """The HTML of a value in a notebook, with a style that touches nothing else.

    Args:
        rules: Further rules of CSS, whose selectors begin with ``#`` and a blank.
    """
    rules = (_FRAGMENT + svg_style("#") + rules).replace("#{", ".exburn{")
    style = theme(".exburn", hosted=True) + rules.replace("# ", ".exburn ")
    style = style.replace("\n", "")
    return f'<div class="exburn"><style>{style}</style>{"".join(parts)}</div>'


def text(value: Any, most: int = _MOST_NAME) -> str:
    """A value as HTML of at most so many characters, each of which a page can show."""
    return html.escape(cut(value, most))


def cut(value: Any, most: int) -> str:
    """A text of at most so many characters, without those that act on a page."""
    shown = str(value)
    return printable(shown if len(shown) <= most else f"{shown[:most]} …")


def title(name: Any, *facts: Any) -> str:
    """A line above a table: a name, and facts in a lighter tone."""
    beside = "".join(f" · {text(fact)}" for fact in facts)
    return f'<p class="title">{text(name)}<span>{beside}</span></p>'


def note(line: Any) -> str:
    """A line below a table."""
    return f'<p class="note">{text(line, 1000)}</p>'


def charts(panels: Iterable[Panel], *, x_title: str = "epoch") -> str:
    """Panels of curves beside each other, as many as there is room for."""
    width, height = 380, 230
    drawn = (
        f'<div class="panel"><svg viewBox="0 0 {width} {height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg" aria-label="{text(panel.title)}">'
        f"{draw_panel(panel, width=width, height=height, x_title=x_title)}</svg></div>"
        for panel in panels
    )
    return f'<div class="panels">{"".join(drawn)}</div>'


def plain_table(
    rows: Iterable[Sequence[str]],
    kinds: Sequence[str],
    head: Iterable[str] = (),
) -> str:
    """A table as wide as its page, which scrolls where it is wider.

    Args:
        rows: The cells, which are HTML.
        kinds: Classes of CSS of the columns; one is of all.
    """
    lines = [f"<th>{html.escape(name)}</th>" for name in head]
    parts = [f"<tr>{''.join(lines)}</tr>"] if lines else []
    for row in rows:
        classes = [*kinds] * len(row) if len(kinds) == 1 else kinds
        pairs = zip(classes, row, strict=True)
        cells = "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in pairs)
        parts.append(f"<tr>{cells}</tr>")
    return f"<div class=scroll><table>{''.join(parts)}</table></div>"


@dataclasses.dataclass
class TableRow:
    """A row of a table.

    Attributes:
        aside: A word in a lighter tone behind the first cell.
        inside: Rows that it folds.
    """

    cells: Sequence[Any]
    aside: str = ""
    inside: list[TableRow] = dataclasses.field(default_factory=list)
    open: bool = False


def table(
    head: Sequence[str],
    rows: Sequence[TableRow],
    widths: Sequence[int],
    numbers: Iterable[int] = (),
) -> str:
    """A table, of whose rows some fold others.

    Args:
        head: Titles of the columns.
        rows: The rows.
        widths: Of the columns, in percent.
        numbers: Columns of numbers.
    """
    kinds = ["n" if i in set(numbers) else "" for i in range(len(head))]
    titles = "".join(
        f'<th class="{kind}">{text(name)}</th>'
        for name, kind in zip(head, kinds, strict=True)
    )
    edge = _STEP if any(row.inside for row in rows) else 0
    lines = "".join(_line(row, kinds, widths, edge) for row in rows)
    return (
        f'<table class="rows">{_columns(widths)}<thead><tr>{titles}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _columns(widths: Sequence[int]) -> str:
    columns = "".join(f'<col style="width:{width}%">' for width in widths)
    return f"<colgroup>{columns}</colgroup>"


def _line(row: TableRow, kinds: list[str], widths: Sequence[int], indent: int) -> str:
    """A row; ``indent`` is where its name begins, behind a triangle if it folds."""
    aside = f' <span class="kind">{text(row.aside)}</span>' if row.aside else ""
    # Long names may break behind their words.
    cells = [text(cell, 400).replace("_", "_<wbr>") for cell in row.cells]
    cells[0] += aside
    if not row.inside:
        rest = zip(cells[1:], kinds[1:], strict=True)
        columns = "".join(f'<td class="{kind}">{cell}</td>' for cell, kind in rest)
        place = f' style="padding-left:{indent}px"' if indent else ""
        return f'<tr><td class="{kinds[0]}"{place}>{cells[0]}</td>{columns}</tr>'
    # A space between the parts is what a page without style has of the columns.
    places = [f"width:{width}%" for width in widths]
    places[0] += f";padding-left:{indent - _STEP}px"
    line = " ".join(
        f'<span class="{kind}" style="{place}">{cell}</span>'
        for cell, kind, place in zip(cells, ["first", *kinds[1:]], places, strict=True)
    )
    inner = "".join(_line(one, kinds, widths, indent + _STEP) for one in row.inside)
    return (
        f'<tr><td class="fold" colspan="{len(kinds)}">'
        f"<details{' open' if row.open else ''}><summary>{line}</summary>"
        f'<table class="rows">{_columns(widths)}<tbody>{inner}</tbody></table>'
        "</details></td></tr>"
    )
