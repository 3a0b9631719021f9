"""Turns ``benchmarks/results/*.json`` into the tables and plots of the documentation.

    python benchmarks/report.py [--check]

Between ``<!-- NAME -->`` and ``<!-- end -->`` in ``docs/benchmarks/*.md`` stands what
the results of that name say; plots go to ``docs/images/``. ``--check`` changes nothing,
and fails if the tables are not those of the results.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from large_models import LARGE

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks"
IMAGES = ROOT / "docs" / "images"
AXES = {"rows": "rows", "batch": "batch size", "width": "width", "depth": "layers"}
OTHERS = {
    "scan": "hand-written scan",
    "keras": "Keras",
    "torch": "PyTorch",
    "torch-compiled": "PyTorch, compiled",
}
# Rates of products in bfloat16 on an H100 or H200.
RATES = {790: "measured", 989: "on paper"}
PEERS = {"exburn": "ExBurn", **{peer: OTHERS[peer] for peer in ("scan", "keras")}}
_PART = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def device_tag(device: str) -> str:
    """``"NVIDIA H200 1"`` → ``"h200"``; several devices: ``"h200x4"``.

    Example:
        >>> device_tag("NVIDIA H200 4"), device_tag("cpu 1")
        ('h200x4', 'cpu')
    """
    *words, count = device.lower().split()
    return words[-1] + (f"x{count}" if int(count) > 1 else "")


def tables(folder: Path = RESULTS) -> dict[str, list[str]]:
    """A table in Markdown for each file of results that one is known for."""
    pages = {}
    for file in sorted(folder.glob("*.json")):
        kind = file.stem.rpartition("-")[0]
        if kind in MAKERS:
            content = json.loads(file.read_text())
            lines = list(MAKERS[kind](content["results"]))
            if kind == "scaling":
                picture = (
                    f"![Time per epoch along each axis](../images/{file.stem}.png)"
                )
                lines = [picture, "", *lines]
            pages[file.stem] = [*lines, "", _ran_with(content["versions"])]
    return pages


def _ran_with(versions: dict[str, str]) -> str:
    named = dict(versions)
    *device, count = named.pop("device").split()
    many = f"{count} × " if int(count) > 1 else ""
    rest = ", ".join(f"{name} {version}" for name, version in named.items())
    return f"{many}{' '.join(device)}, {rest}."


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield "|" + "---|" * len(cells)


def throughput(results: dict[str, Any]) -> Iterator[str]:
    peers = sorted({p for runs in results.values() for p in runs if p != "exburn"})
    order = [p for p in ("scan", "step", "keras", "keras-spe32") if p in peers]
    named = {"step": "single steps", "keras-spe32": "Keras, 32 steps a call"} | PEERS
    columns = [f"against {named[p]}" for p in order]
    yield from _head(
        "workload", "ExBurn, samples/s", *columns, "peak memory against the scan's"
    )
    for work, runs in results.items():
        if "exburn" not in runs:
            continue
        speeds = [f"{runs[p]['ratio']:.2f} ×" if p in runs else "–" for p in order]
        peak = f"{runs['scan']['peak_ratio']:.2f} ×" if "scan" in runs else "–"
        yield _row(work, f"{runs['exburn']['samples_per_s']:,.0f}", *speeds, peak)


def large(results: dict[str, Any]) -> Iterator[str]:
    named = OTHERS
    yield from _head(
        "workload", "ExBurn, samples/s", "tokens/s",
        *(f"share of {rate} TFLOP/s, {how}" for rate, how in RATES.items()),
        *(f"against {name}" for name in named.values()),
        "peak memory against the scan's",
    )  # fmt: skip
    for work, runs in results.items():
        if (ours := runs.get("exburn")) is None:
            continue
        speed = ours["samples_per_s"]
        tokens = f"{speed * LARGE[work].tokens:,.0f}" if "mfu" in ours else "–"
        rate = speed * LARGE[work].flops / 1e12
        shares = [f"{rate / full:.1%}" if "mfu" in ours else "–" for full in RATES]
        ratios = [f"{runs[p]['ratio']:.2f} ×" if p in runs else "–" for p in named]
        peak = f"{ours['peak'] / runs['scan']['peak']:.2f} ×" if "scan" in runs else "–"
        yield _row(work, f"{speed:,.0f}", tokens, *shares, *ratios, peak)


def breadth(results: dict[str, Any]) -> Iterator[str]:
    named = OTHERS
    yield from _head(
        "model", "ExBurn, samples/s", *(f"against {name}" for name in named.values())
    )
    for work, runs in results.items():
        if (ours := runs.get("exburn")) is None:
            continue
        ratios = [f"{runs[p]['ratio']:.2f} ×" if p in runs else "–" for p in named]
        yield _row(work, f"{ours['samples_per_s']:,.0f}", *ratios)


def cold_start(results: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "model", "parameters", "ExBurn", "Keras", "ExBurn / Keras", "second process",
        "second / first",
    )  # fmt: skip
    for work, runs in results.items():
        first, second, keras = (
            _median(runs.get(peer, []), "seconds")
            for peer in ("exburn", "exburn-second", "keras")
        )
        if first is None or second is None or keras is None:
            continue
        size = f"{runs['exburn'][0]['parameters']:,}"
        yield _row(
            work, size, f"{first:.2f} s", f"{keras:.2f} s", f"{first / keras:.2f}",
            f"{second:.2f} s", f"{second / first:.2f}",
        )  # fmt: skip


def _median(runs: list[dict], key: str) -> float | None:
    return statistics.median(run[key] for run in runs) if runs else None


def overhead(results: dict[str, Any]) -> Iterator[str]:
    kinds = ("fit", "epoch", "evaluate", "predict")
    yield from _head("", *(f"{kind}, ms" for kind in kinds))
    for peer, costs in results.items():
        cells = (f"{costs[k][0] * 1e3:.2f}" if k in costs else "" for k in kinds)
        yield _row(peer, *cells)


def scaling(results: dict[str, Any]) -> Iterator[str]:
    """The common point and the end of each axis; the plot shows the others."""
    yield from _head("training", *(f"{name}, ms" for name in PEERS.values()))
    for name in _ends(results["exburn"]):
        times = (results.get(peer, {}).get(name) for peer in PEERS)
        cells = [f"{_epoch(t) * 1e3:,.2f}" if t else "" for t in times]
        yield _row(name.replace("=", " ").replace(" rows", ""), *cells)


def _epoch(point: dict) -> float:
    return statistics.median(point["warm"])


def _base(points: dict[str, dict]) -> dict[str, int]:
    """The numbers that most points share."""
    return {
        axis: statistics.mode(point[axis] for point in points.values()) for axis in AXES
    }


def _along(points: dict[str, dict], axis: str, base: dict[str, int]) -> list[dict]:
    """The points that differ from the common one in nothing but an axis."""
    others = [other for other in AXES if other != axis]
    fits = (p for p in points.values() if all(p[o] == base[o] for o in others))
    return sorted(fits, key=lambda point: point[axis])


def _ends(points: dict[str, dict]) -> list[str]:
    base = _base(points)
    lines = (_along(points, axis, base) for axis in AXES)
    return list(dict.fromkeys(line[i]["name"] for line in lines for i in (0, -1)))


def plot_scaling(results: dict[str, Any], file: Path) -> None:
    """Time per epoch along each axis, one picture for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.6), dpi=110, layout="constrained")
    places = figure.subplots(2, 2).flat
    base = _base(results["exburn"])
    for place, (axis, label) in zip(places, AXES.items(), strict=True):
        for (peer, name), style in zip(PEERS.items(), ("o-", "s--", "^:"), strict=True):
            line = _along(results.get(peer, {}), axis, base)
            seconds = [_epoch(point) for point in line]
            place.plot([point[axis] for point in line], seconds, style, label=name)
        ticks = [point[axis] for point in _along(results["exburn"], axis, base)]
        place.set_xscale("log")
        place.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        place.set_xticks([], minor=True)
        place.set_yscale("log")
        place.set_xlabel(label)
        place.set_ylabel("seconds per epoch")
        place.grid(True, which="both", alpha=0.3)
    figure.axes[0].legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Software": None})


def plot_ratios(groups: dict[str, dict[str, dict[str, float]]], file: Path) -> None:
    """How many times as fast ExBurn is, a panel for each group, a bar for each peer.

    Args:
        groups: Title of a panel → name of a model → name of a peer → ratio.
        file: The SVG file that is written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heights = [len(models) for models in groups.values()]
    figure = Figure(figsize=(9, 1.2 + 0.34 * sum(heights)), layout="constrained")
    places = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights).flat
    for place, (title, models) in zip(places, groups.items(), strict=True):
        peers = list(dict.fromkeys(p for ratios in models.values() for p in ratios))
        thick = 0.8 / len(peers)
        for number, peer in enumerate(peers):
            rows = [i for i, ratios in enumerate(models.values()) if peer in ratios]
            values = [list(models.values())[i][peer] for i in rows]
            at = [i + (number - (len(peers) - 1) / 2) * thick for i in rows]
            bars = place.barh(at, values, thick, left=0, label=f"against {peer}")
            place.bar_label(bars, [f" {value:.2g} ×" for value in values], fontsize=8)
        place.set_yticks(range(len(models)), list(models))
        place.set_ylim(len(models) - 0.5, -0.5)
        place.set_xscale("log")
        place.set_xlim(0.5, 1.6 * max(v for r in models.values() for v in r.values()))
        ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50) if t < place.get_xlim()[1]]
        place.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
        place.set_xticks([], minor=True)
        place.axvline(1, color="black", linewidth=1)
        place.set_title(title, fontsize=10, loc="left")
        place.set_xlabel("ExBurn's samples/s ÷ the peer's")
        place.legend(fontsize=8, loc="lower right")
    file.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "exburn", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})


def _ratios(name: str, peers: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Model → peer → ratio, of one file of results, where a peer was measured."""
    results = json.loads((RESULTS / f"{name}.json").read_text())["results"]
    models = {
        model: {OTHERS[p]: runs[p]["ratio"] for p in peers if p in runs}
        for model, runs in results.items()
    }
    return {model: ratios for model, ratios in models.items() if ratios}


def feeding(results: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "from", "rows", "source, rows/s", "device, rows/s", "`fit`, rows/s",
        "fit / min(source, device)", "waiting for data",
    )  # fmt: skip
    for case, r in results.items():
        speeds = (f"{r[name]:,.0f}" for name in ("source", "device", "fit"))
        rows = f"{r['samples']:,} ({r['bytes'] / 1e9:.2g} GB)"
        yield _row(case, rows, *speeds, f"{r['ratio']:.2f}", f"{r['data_wait']:.0%}")


def inference(results: dict[str, Any]) -> Iterator[str]:
    kinds = ("evaluate", "predict")
    named = {"step": "single steps"} | PEERS
    named["exburn-alone"] = "ExBurn, batch by batch"
    yield from _head("workload", "program", *(f"{kind}, samples/s" for kind in kinds))
    for work, runs in results.items():
        ours = runs.get("exburn", {}).get("samples_per_s", {})
        for peer, run in runs.items():
            rates = run["samples_per_s"]
            cells = (
                f"{rates[k]:,.0f} ({ours[k] / rates[k]:.2f} ×)" for k in kinds if ours
            )
            yield _row(work, named[peer], *cells)
    yield ""
    named["step"] = "jitted"
    calls = ("test_on_batch", "predict_on_batch", "train_on_batch", "call")
    heads = (f"`{name}`, µs" for name in (*calls[:3], "model(x)"))
    yield from _head("one batch", "program", *heads)
    for work, runs in results.items():
        for peer, run in runs.items():
            if spent := run["call_us"]:
                yield _row(work, named[peer], *(f"{spent[c]:,.0f}" for c in calls))


def large_inference(results: dict[str, Any]) -> Iterator[str]:
    named = {p: n for p, n in OTHERS.items() if any(p in r for r in results.values())}
    yield from _head(
        "workload", "", "ExBurn, samples/s", *(f"against {n}" for n in named.values())
    )
    for work, runs in results.items():
        for kind, speed in runs["exburn"]["samples_per_s"].items():
            rates = (runs[p]["samples_per_s"][kind] if p in runs else 0 for p in named)
            ratios = (f"{speed / rate:.2f} ×" if rate else "–" for rate in rates)
            yield _row(work, kind, f"{speed:,.0f}", *ratios)


def kernels(results: dict[str, Any]) -> Iterator[str]:
    heads = ("ExBurn, ms", "XLA, ms", "XLA / ExBurn", "greatest difference")
    yield from _head("value and gradients", "dtype", *heads)
    for dtype, cases in results.items():
        for case, r in cases.items():
            ours, xla = r["seconds"], r["xla"]
            times = f"{ours * 1e3:.3f}", f"{xla * 1e3:.3f}", f"{xla / ours:.2f}"
            yield _row(case, dtype, *times, f"{r['error']:.1e}")


def distribution(results: dict[str, Any]) -> Iterator[str]:
    """Weak scaling; ExBurn's ratio is to what trains in the same way."""
    named: dict[str, str] = {
        "exburn": "ExBurn",
        "exburn-data": 'ExBurn, `mesh="data"`',
        "exburn-fsdp": 'ExBurn, `mesh="fsdp"`',
        "exburn-tensor": "ExBurn, data × tensor",
        "torch": "PyTorch",
        "torch-ddp": "PyTorch, DDP",
        "torch-ddp-compiled": "PyTorch, DDP, compiled",
        "torch-fsdp": "PyTorch, FSDP2",
        "torch-fsdp-compiled": "PyTorch, FSDP2, compiled",
        "keras": "Keras",
        "keras-data": "Keras, DataParallel",
    }
    yield from _head(
        "model", "devices", "batch", "trained by", "samples/s", "step, ms",
        "efficiency", "peak memory a device", "ExBurn against it",
    )  # fmt: skip
    for work, runs in results.items():
        for name in sorted(runs, key=lambda name: int(name.split("@")[1])):
            run, (peer, count) = runs[name], name.split("@")
            alike = "" if count == "1" else "-fsdp" if "fsdp" in peer else "-data"
            ours = runs.get(f"exburn{alike}@{count}")
            ratio = "–"
            if ours and not peer.startswith("exburn"):
                ratio = f"{ours['samples_per_s'] / run['samples_per_s']:.2f} ×"
            share = f"{run['efficiency']:.1%}" if "efficiency" in run else "–"
            peak = f"{run['peak'] / 2**30:.2f} GiB" if run["peak"] else "–"
            yield _row(
                work, count, f"{run['batch']:,}", named[peer],
                f"{run['samples_per_s']:,.0f}", f"{run['step_ms']:,.2f}", share, peak,
                ratio,
            )  # fmt: skip


def sweep(results: dict[str, Any]) -> Iterator[str]:
    """Models a second by lanes; then the times of bytes and of halving."""
    named = {
        "exburn": "`sweep`",
        "exburn-shared": '`sweep(order="shared")`',
        "alone": "`fit`, one after the other",
        "vmap": "hand-written `jax.vmap`",
        "torch": "`torch.func.vmap`",
        "keras-tuner": "Keras Tuner",
        "optuna": "Optuna around `fit`",
        "ray": "Ray Tune around `fit`",
    }
    yield from _head(
        "model", "lanes", "trained by", "epoch, s", "models/s", "against one by one",
        "models/s with the start",
    )  # fmt: skip
    extra = {}
    for work, runs in results.items():
        alone = runs.get("alone@1", {}).get("models_per_s")
        for name, run in sorted(runs.items(), key=lambda item: _lanes_of(item[0])):
            if "@" not in name:
                extra[name] = run
                continue
            peer, lanes = name.split("@")
            cells = ["–", "–", "–"]
            if (rate := run.get("models_per_s")) is not None:
                ratio = f"{rate / alone:.2f} ×" if alone else "–"
                cells = [f"{run['epoch_s']:.3g}", f"{rate:,.3g}", ratio]
            whole = f"{run['models_per_s_with_start']:,.3g}"
            yield _row(work, f"{int(lanes):,}", named[peer], *cells, whole)
    if (moved := extra.get("bytes")) and (one := results["mlp"].get("exburn@256")):
        yield ""
        yield (
            f"An epoch of 256 MLPs takes {one['epoch_s']:.2f} s; its bytes, "
            f"{moved['bytes'] / 1e12:.2f} TB, at a copy's "
            f"{moved['bytes_per_s'] / 1e12:.2f} TB/s take {moved['seconds']:.2f} s: "
            f"{one['epoch_s'] / moved['seconds']:.2f} ×."
        )
    if halved := extra.get("halving"):
        yield ""
        seconds = [f"{halved[k]['seconds']:.1f} s" for k in ("halving", "whole")]
        yield (
            f"A validation accuracy of {halved['target']:.3f} on the digits, which one "
            f"in twenty of {halved['lanes']} draws has after {halved['epochs']} epochs"
            f": with halving {seconds[0]} (it reached "
            f"{halved['halving']['accuracy']:.3f}), all lanes to their end "
            f"{seconds[1]}, one fit after the other {halved['alone']['seconds']:.1f} s "
            f"on average ({halved['alone']['fits']:.0f} fits)."
        )


def _lanes_of(name: str) -> int:
    return int(name.partition("@")[2] or 0)


def http_server(results: dict[str, Any]) -> Iterator[str]:
    """Each peer beside ExBurn; and what a small request costs."""
    named = {
        "exburn-binary": "ExBurn, binary tensors",
        "exburn-triton": "ExBurn, Triton's client",
        "fastapi": "FastAPI by hand",
        "litserve": "LitServe",
        "bentoml": "BentoML",
        "kserve": "KServe's server",
        "ray": "Ray Serve",
    }
    yield from _head(
        "model", "clients", "server", "requests/s", "p50, ms", "p99, ms", "p99.9, ms",
        "processor, µs a request", "ExBurn: requests/s", "p99", "processor",
    )  # fmt: skip
    figures = ("p50_ms", "p99_ms", "p999_ms", "cpu_us")
    for work, counts in results.items():
        for clients, runs in counts.items() if work != "overhead" else ():
            for peer, name in {"exburn": "ExBurn", **named}.items():
                if not (run := runs.get(peer)):
                    continue
                cells = [f"{run['requests_per_s']:,.0f}"]
                cells += [f"{run[k]:,.{0 if k == 'cpu_us' else 1}f}" for k in figures]
                ratios = ("ratio", "p99_ratio", "cpu_ratio")
                cells += [f"{run[k]:.2f} ×" if k in run else "–" for k in ratios]
                yield _row(work, clients, name, *cells)
    if spent := results.get("overhead"):
        yield ""
        yield (
            f"A lone small request takes {spent['request_us']:,.0f} µs: "
            f"{spent['route_us']:,.0f} of an empty route, "
            f"{spent['serving_us']:,.0f} of `Serving.arun`, and "
            f"{spent['overhead_us']:,.0f} of the server's own."
        )


MAKERS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "throughput": throughput,
    "large": large,
    "breadth": breadth,
    "cold_start": cold_start,
    "overhead": overhead,
    "scaling": scaling,
    "feeding": feeding,
    "inference": inference,
    "large_inference": large_inference,
    "kernels": kernels,
    "distribution": distribution,
    "sweep": sweep,
    "http_server": http_server,
}


def filled(page: str, folder: Path = RESULTS) -> str:
    """The page with the tables that the results say now."""
    pages = tables(folder)

    def part(match: re.Match) -> str:
        begin, name, end = match.groups()
        if name not in pages:  # not measured here yet: what stands there stays
            return match.group()
        return begin + "\n".join(pages[name]) + "\n" + end

    return _PART.sub(part, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    pages = {file: file.read_text() for file in sorted(PAGES.glob("*.md"))}
    if args.check:
        old = [file.name for file, page in pages.items() if filled(page) != page]
        sys.exit(f"not what the results say: {', '.join(old)}" if old else 0)
    for file in sorted(RESULTS.glob("scaling-*.json")):
        results = json.loads(file.read_text())["results"]
        plot_scaling(results, IMAGES / f"{file.stem}.png")
    devices = {"One NVIDIA H200": "throughput-h200", "Two cores": "throughput-cpu"}
    groups = {title: _ratios(n, ("scan", "keras")) for title, n in devices.items()}
    plot_ratios(groups, IMAGES / "training-speed.svg")
    kinds = _ratios("breadth-h100", ("torch", "torch-compiled"))
    plot_ratios({"One NVIDIA H100": kinds}, IMAGES / "kinds-speed.svg")
    for file, page in pages.items():
        file.write_text(filled(page))


if __name__ == "__main__":
    main()
