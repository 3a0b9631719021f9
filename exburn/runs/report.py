"""A run as one page of HTML, which needs no network and no script."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from exburn.core.printing import amount_text, size_text
from exburn.errors import ExBurnError
from exburn.errors.boundary import api_boundary
from exburn.runs.directory import REPORT
from exburn.runs.json_lines import number_of
from exburn.runs.reading import Run, read
from exburn.runtime.files.atomic import write_atomically
from exburn.visualization.curves import Curve, Panel, number_text
from exburn.visualization.page import charts, plain_table, theme
from exburn.visualization.page import cut as _cut
from exburn.visualization.page import text as _text
from exburn.visualization.svg import svg_style

_MOST_BYTES = 1_000_000
_MOST_PANELS = 40
_MOST_EVENTS = 200
_MOST_TEXT = 60_000  # characters of a summary or a configuration
_MOST_NAME = 120  # characters of a name
_MOST_ROWS = 300  # of a table
_MOST_EXAMPLES = 12
_BASE64 = re.compile("[A-Za-z0-9+/=]{1,60000}")
_MOST_NAN = 10  # events of values that are no numbers
# The panels and the characters of a text with which a page is tried, one by one.
_SIZES = ((_MOST_PANELS, _MOST_TEXT), (12, 10_000), (4, 2_000), (0, 100))
_PARTS = ("model", "fit", "compile")  # of a configuration, which have tables
_GAUGES = {
    "samples_per_second": "samples per second",
    "epoch_seconds": "seconds per epoch",
    "learning_rate": "learning rate",
    "device_bytes": "device memory in use (MB)",
    "host_bytes": "host memory (MB)",
}
# In the first epoch programs are compiled: beside it all others would look alike.
_SLOW_AT_FIRST = ("samples_per_second", "epoch_seconds")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{theme}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--surface);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
main{{max-width:1200px;margin:0 auto;padding:28px 20px 60px}}
h1{{font-size:26px;margin:0 0 2px}}h2{{font-size:18px;margin:34px 0 10px}}
p.sub{{color:var(--muted);margin:0 0 18px}}
.badge{{display:inline-block;border:1px solid currentColor;border-radius:99px;
padding:1px 10px;font-size:13px;vertical-align:4px;margin-left:8px}}
.good{{color:var(--good)}}.bad{{color:var(--bad)}}.plain{{color:var(--muted)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:10px}}
.tile,.panel{{background:var(--raised);border-radius:8px}}
.tile{{padding:10px 14px}}.tile b{{display:block;font-size:20px;font-weight:600}}
.tile span{{color:var(--muted);font-size:13px;overflow-wrap:anywhere}}
.panels{{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr))}}
.panel{{padding:8px}}.panel svg{{display:block;width:100%;height:auto}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-size:14px}}
th,td{{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--grid);
vertical-align:top}}
th{{font-weight:600;color:var(--muted)}}td.n{{font-variant-numeric:tabular-nums}}
td.k{{color:var(--muted);white-space:nowrap;width:1%;padding-right:24px}}
td.v:not(:last-child){{white-space:nowrap}}td.v{{overflow-wrap:anywhere}}
pre{{background:var(--raised);border-radius:8px;padding:12px;overflow-x:auto;
font:12.5px/1.35 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
table.matrix{{width:auto;text-align:right}}
.matrix td{{text-align:right;padding:4px 8px;min-width:38px;
border:1px solid var(--grid)}}
.matrix th{{text-align:right;padding:4px 8px;white-space:nowrap}}
.matrix td{{background:color-mix(in srgb,var(--cell) calc(var(--share)*80%),#0000)}}
.matrix td.right{{--cell:var(--good)}}.matrix td.wrong{{--cell:var(--bad)}}
.examples{{display:flex;flex-wrap:wrap;gap:10px;margin-top:14px}}
figure{{margin:0;background:var(--raised);border-radius:8px;padding:8px;width:132px;
font-size:13px}}
figure img{{display:block;width:100%;image-rendering:pixelated;border-radius:4px}}
figure span{{display:block;overflow-wrap:anywhere}}figcaption{{margin-top:6px}}
details>summary{{cursor:pointer;color:var(--muted);margin:10px 0}}
{style}
</style></head><body><main>
{body}
</main></body></html>
"""


@api_boundary
def write_report(run: Any, path: Any = None, *, ends: bool = False) -> Path:
    """Writes the page of a run; it takes its place as a whole.

    Args:
        run: The run's folder, or what ``exburn.runs.read`` returned.
        path: The file; ``report.html`` in the folder by default.
        ends: Whether the caller is the run itself, which lets go of it after this.

    Returns:
        The file.

    Raises:
        MissingFileError: There is no run.
        SaveError: The system refuses.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers, runs
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> model = Sequential([Input((2,)), layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((8, 2)), np.ones((8, 1))
        >>> _ = model.fit(x, y, epochs=2, run=folder, verbose=0)
        >>> write_report(folder).name
        'report.html'
    """
    record = run if isinstance(run, Run) else read(run)
    target = record.path / REPORT if path is None else Path(path)
    data = make_report(record, ends=ends).encode()
    write_atomically(target, lambda file: file.write(data), op="report")
    return target


def make_report(run: Run, *, ends: bool = False) -> str:
    """The page of a run, of at most a million bytes.

    Args:
        ends: Whether it says how it ended, though its folder is still held.
    """
    state = run.state
    last = str(run.events[-1].get("event")) if run.events else ""
    if ends and last in ("end", "failed", "interrupted", "terminated"):
        state = "finished" if last == "end" else last
    text = ""
    for panels, most in _SIZES:
        text = _page(run, state, panels, most)
        if len(text.encode()) <= _MOST_BYTES:
            break
    return text


def _page(run: Run, state: str, most_panels: int, most_text: int) -> str:
    parts = [_head(run, state), _tiles(run), _failure(run, most_text)]
    panels = _panels(run)
    if panels:
        parts.append(f"<h2>Curves</h2>{charts(panels[:most_panels])}")
    if left := [panel.title for panel in panels[most_panels:]]:
        parts.append(f"<p class=sub>Not drawn: {_text(', '.join(left), 2000)}</p>")
    parts += [_results(run), _predictions(run, most_text)]
    parts += [_checkpoints(run), _events(run, most_text)]
    model = run.part("model")
    if summary := model.get("summary"):
        parts.append(f"<h2>Model</h2><pre>{_text(summary, most_text)}</pre>")
    if layers := layer_rows(model.get("architecture")):
        letters = sum(len(text) for row in layers for text in row)
        layers = layers if letters <= most_text else []
        table = _rows("Layers", ("layer", "class", "options"), layers, most_text)
        parts.append(table)
    others = {k: v for k, v in run.config.items() if k not in _PARTS}
    parts += [
        _table("Training", setting_rows(run.part("fit")), most_text),
        _table("Compiled with", setting_rows(run.part("compile")), most_text),
        _table("Environment", setting_rows(run.environment | others), most_text),
    ]
    return _PAGE.format(
        title=_text(run.name, _MOST_NAME),
        theme=theme(":root"),
        style=svg_style("svg"),
        body="\n".join(part for part in parts if part),
    )


def _head(run: Run, state: str) -> str:
    kind = {"finished": "good", "running": "plain"}.get(state, "bad")
    model = run.part("model")
    facts = [
        str(model.get("name") or "model"),
        f"{model.get('parameters') or 0:,} parameters",
        str(run.environment.get("device") or ""),
        str(run.config.get("created") or ""),
    ]
    said = " · ".join(_text(fact, _MOST_NAME) for fact in facts if fact)
    name = _text(run.name, _MOST_NAME)
    return (
        f'<h1>{name}<span class="badge {kind}">{state}</span></h1>'
        f'<p class="sub">{said}</p>'
    )


def _tiles(run: Run) -> str:
    done = f"{len(run.epochs)}" + (f" of {run.planned}" if run.planned else "")
    tiles = [("epochs", done), ("time", duration_text(run.seconds))]
    for name, value in list(run.last.items())[:8]:
        best = run.best.get(name)
        note = ""
        if best is not None and best[0] != value:
            note = f" · best {number_text(best[0])}, epoch {best[1]}"
        tiles.append((name + note, number_text(value)))
    rates = run.series("samples_per_second")
    if rates:
        middle = sorted(rate for _, rate in rates)[len(rates) // 2]
        tiles.append(("samples/s (median)", amount_text(middle)))
    if peak := max((b for _, b in run.series("device_bytes")), default=0):
        tiles.append(("device memory", size_text(peak)))
    shown = "".join(
        f"<div class=tile><b>{_text(value, _MOST_NAME)}</b>"
        f"<span>{_text(name, _MOST_NAME)}</span></div>"
        for name, value in tiles
    )
    return f"<div class=tiles>{shown}</div>"


def _failure(run: Run, most: int) -> str:
    """The error that ended the run, and values that are no numbers."""
    parts = []
    for event in [e for e in run.events if e.get("event") == "nan"][:_MOST_NAN]:
        values = event.get("values") or {}
        names = ", ".join(f"{k} = {v}" for k, v in values.items())
        place = f"epoch {(event.get('epoch') or 0) + 1}, step {event.get('step')}"
        said = f"{_text(names, 500)}, {_text(place, _MOST_NAME)}"
        parts.append(f"<p class=bad>Not a finite number: {said}.</p>")
    last = run.events[-1] if run.events else {}
    if last.get("event") == "failed":
        said = _text(str(last.get("error", "")), 2000)
        parts.append(f"<p class=bad>{said}</p>")
        parts.append(f"<pre>{_text(str(last.get('traceback', '')), most)}</pre>")
    return "".join(parts)


def _panels(run: Run) -> list[Panel]:
    panels = []
    for name in run.metrics:
        parts = {"training": run.curve(name), "validation": run.curve(f"val_{name}")}
        curves = tuple(
            Curve(label, points)
            for label, points in parts.items()
            if any(math.isfinite(y) for _, y in points)
        )
        if curves:
            panels.append(Panel(_cut(name, _MOST_NAME), curves))
    for key, title in _GAUGES.items():
        points = run.series(key)
        if key in _SLOW_AT_FIRST and len(points) > 3:
            points = points[1:]
        if "(MB)" in title:
            points = [(x, y / 1e6) for x, y in points]
        if len(points) > 1 and any(y for _, y in points):
            panels.append(Panel(title, (Curve("", points),)))
    return panels


def _results(run: Run) -> str:
    rows = []
    for name, value in run.last.items():
        best, epoch = _best_text(run, name)
        rows.append((name, number_text(value), best, epoch))
    return _rows("Results", ("", "last", "best", "in epoch"), rows)


def _best_text(run: Run, name: str) -> tuple[str, str]:
    """The best value and its epoch; where a name does not tell which is, both ends."""
    if name in run.best:
        value, epoch = run.best[name]
        return number_text(value), str(epoch)
    points = [(y, int(x)) for x, y in run.curve(name) if y == y and x == int(x)]
    if not points:
        return "–", "–"
    (low, first), (high, last) = min(points), max(points)
    if low == high:
        return number_text(low), str(first)
    lowest, highest = number_text(low), number_text(high)
    return f"{lowest} (lowest), {highest} (highest)", f"{first}, {last}"


def _predictions(run: Run, most_text: int) -> str:
    """A classifier's matrix, or its errors, and some of its rows."""
    try:
        predictions = run.predictions
    except ExBurnError as error:
        return f"<h2>Predictions</h2><p class=bad>{_text(error.reason, _MOST_NAME)}</p>"
    if predictions is None or most_text < _MOST_TEXT // 10:
        return ""
    names = predictions.get("names") or []

    def name(label: Any) -> str:
        has_name = isinstance(label, int) and 0 <= label < len(names)
        return _text(names[label] if has_name else label, 40)

    share, rows = float(predictions.get("correct") or 0), predictions.get("rows") or 0
    sentence = f"{share:.1%} of {rows:,} {predictions.get('part')} rows are right."
    parts = [f"<h2>Predictions</h2><p class=sub>{_text(sentence, _MOST_NAME)}</p>"]
    parts.append(_matrix(predictions.get("matrix") or [], name))
    errors = [
        (name(a), name(b), f"{n:,}") for a, b, n in _triples(predictions.get("errors"))
    ]
    if errors:
        head = ("class", "taken for", "rows")
        parts.append(plain_table(errors, ["n"], head))
    shown = [one for one in predictions.get("examples") or [] if isinstance(one, dict)]
    cards = "".join(_example(one, name) for one in shown[:_MOST_EXAMPLES])
    parts.append(f"<div class=examples>{cards}</div>" if cards else "")
    return "".join(parts)


def _triples(value: Any) -> list[tuple[Any, Any, int]]:
    rows = value if isinstance(value, list) else []
    return [
        (row[0], row[1], row[2])
        for row in rows[:_MOST_ROWS]
        if isinstance(row, list) and len(row) == 3 and isinstance(row[2], int)
    ]


def _matrix(matrix: list[Any], name: Callable[[Any], str]) -> str:
    """Counts, the darker the greater their share of the true class; rows are true."""
    lines = []
    for true, counts in enumerate(matrix[:_MOST_ROWS]):
        if not isinstance(counts, list) or len(counts) != len(matrix):
            return ""
        numbers = [count if isinstance(count, int) else 0 for count in counts]
        total = max(sum(numbers), 1)
        cells = "".join(
            f'<td class="{"right" if place == true else "wrong"}" '
            f'style="--share:{count / total:.3f}">{count or ""}</td>'
            for place, count in enumerate(numbers)
        )
        lines.append(f"<tr><th>{name(true)}</th>{cells}</tr>")
    if not lines:
        return ""
    heads = "".join(f"<th>{name(place)}</th>" for place in range(len(matrix)))
    table = f"<tr><th>true ↓ predicted →</th>{heads}</tr>{''.join(lines)}"
    return f'<div class=scroll><table class="matrix">{table}</table></div>'


def _example(one: dict[str, Any], name: Callable[[Any], str]) -> str:
    right = one.get("true") == one.get("predicted")
    picture, text, values = (one.get(key) for key in ("picture", "text", "values"))
    if isinstance(picture, str) and _BASE64.fullmatch(picture):
        shown = f'<img alt="" src="data:image/png;base64,{picture}">'
    elif isinstance(values, dict | list):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        figures = {key: _figure_text(value) for key, value in pairs}
        named = isinstance(values, dict)
        sentence = setting_text(figures if named else [*figures.values()])
        more = f", {one['more']} more" if one.get("more") else ""
        shown = f"<span>{_text(sentence + more, _MOST_NAME)}</span>"
    else:
        shown = f"<span>{_text(text or '', 300)}</span>"
    probability = number_of(one.get("probability"))
    sure = "" if probability is None else f" ({probability:.0%})"
    said = f"{name(one.get('predicted'))}{sure}"
    said += "" if right else f", true {name(one.get('true'))}"
    kind = "good" if right else "bad"
    return f"<figure>{shown}<figcaption class={kind}>{said}</figcaption></figure>"


def _figure_text(value: Any) -> Any:
    return number_text(value) if isinstance(value, float) else value


def _checkpoints(run: Run) -> str:
    rows = [
        (
            c.path.name,
            f"{c.epoch + 1}" if c.batch else f"{c.epoch}",
            f"{c.batch}" if c.batch else "–",
            f"{c.step:,}",
            "–" if c.score is None else number_text(c.score),
        )
        for c in run.checkpoints
    ]
    head = ("checkpoint", "epoch", "batch", "steps", "score")
    return _rows("Checkpoints", head, rows)


def _events(run: Run, most: int) -> str:
    rows = []
    for event in run.events[-_MOST_EVENTS:]:
        facts = {
            name.replace("_", " "): value
            for name, value in event.items()
            if name not in ("time", "event", "traceback")
        }
        said = setting_text(facts)
        when = time.localtime(event.get("time") or 0)
        shown = time.strftime("%Y-%m-%d %H:%M:%S", when)
        rows.append((shown, str(event.get("event", "")), said))
    return _rows("Events", ("time", "event", ""), rows, most)


def _rows(
    title: str,
    head: Iterable[str],
    rows: list[tuple[str, ...]],
    most: int = _MOST_NAME,
) -> str:
    if not rows:
        return ""
    cells = [[_text(value, most) for value in row] for row in rows[:_MOST_ROWS]]
    return f"<h2>{title}</h2>{plain_table(cells, ['n v'], head)}"


def _table(title: str, rows: list[tuple[str, str]], most: int) -> str:
    """A table of names and what they are."""
    if not rows:
        return ""
    cells = [
        [_text(name, _MOST_NAME), _text(value, min(most, 2000))]
        for name, value in rows[:_MOST_ROWS]
    ]
    return f"<h2>{title}</h2>{plain_table(cells, ['k', 'v'])}"


def duration_text(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration_text(4.04), duration_text(192), duration_text(3600)
        ('4.0 s', '3 min 12 s', '1 h 0 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


_DEPTH = 6  # of objects in objects that are told
_UNTOLD = ("name", "dtype", "trainable", "optional", "registered_name")
_MOST = 300  # rows


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that were made, each with its text; what was not set is left out.

    Example:
        >>> adam = {"class_name": "Adam", "config": {"beta_1": 0.9, "amsgrad": False}}
        >>> setting_rows({"optimizer": adam, "shuffle": True, "device": None})
        [('optimizer', 'Adam (beta_1 0.9)'), ('shuffle', 'yes')]
    """
    rows = []
    for name, value in list(settings.items())[:_MOST]:
        if isinstance(value, bool):
            rows.append((_words(name), "yes" if value else "no"))
        elif text := setting_text(value):
            rows.append((_words(name), text))
    return rows


def setting_text(value: Any, depth: int = 0) -> str:
    """A value in words: an object by its class and the options that are not off.

    Example:
        >>> setting_text(["accuracy", {"class_name": "TopK", "config": {"k": 3}}])
        'accuracy, TopK (k 3)'
    """
    if value is None or value is False or depth > _DEPTH:
        return ""
    if isinstance(value, Mapping):
        if "class_name" in value:
            options = value.get("config")
            details = _options(options, depth) if isinstance(options, Mapping) else ""
            name = str(value["class_name"])
            return f"{name} ({details})" if details else name
        return _options(value, depth)
    if isinstance(value, list | tuple):
        texts = [setting_text(one, depth + 1) for one in value[:_MOST]]
        if any(isinstance(one, list | Mapping) for one in value):
            return ", ".join(text for text in texts if text)
        numbers = all(isinstance(one, int | float) for one in value)
        return (" × " if numbers else ", ").join(text for text in texts if text)
    return str(value)


def _options(options: Mapping[str, Any], depth: int) -> str:
    parts = []
    for name, value in list(options.items())[:_MOST]:
        if name in _UNTOLD:
            continue
        if value is True:
            parts.append(str(name))
        elif text := setting_text(value, depth + 1):
            parts.append(f"{name} {text}")
    return ", ".join(parts)


def layer_rows(architecture: Any) -> list[tuple[str, str, str]]:
    """Name, class and options of each layer that a model's description lists.

    Example:
        >>> dense = {"class_name": "Dense", "config": {"name": "out", "units": 3}}
        >>> layer_rows({"class_name": "Sequential", "config": {"layers": [dense]}})
        [('out', 'Dense', 'units 3')]
    """
    options = architecture.get("config") if isinstance(architecture, Mapping) else None
    layers = options.get("layers") if isinstance(options, Mapping) else None
    rows = []
    for layer in layers[:_MOST] if isinstance(layers, list) else []:
        own = layer.get("config") if isinstance(layer, Mapping) else None
        if isinstance(own, Mapping):
            kind = str(layer.get("class_name"))
            plain = {k: v for k, v in own.items() if not k.endswith("_initializer")}
            plain.pop("layers", None)  # of a model in it
            rows.append((str(own.get("name", "")), kind, _options(plain, 0)))
    return rows


def _words(name: Any) -> str:
    return str(name).replace("_", " ")
