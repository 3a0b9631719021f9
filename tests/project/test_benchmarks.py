"""The documentation shows the figures of the results; a batch of runs resumes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
VERSIONS = {"python": "3", "jax": "0.10", "device": "NVIDIA H200 1"}
FAKE = """
import json, sys
from pathlib import Path
file = Path(sys.argv[sys.argv.index("--json") + 1])
file.with_suffix(".count").open("a").write("x")
file.write_text(json.dumps({"versions": %r, "results": {}}))
sys.exit(file.name.startswith("broken"))
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_the_tables_in_the_documentation_are_those_of_the_results(script):
    report = script("report")
    pages = {file.stem: file.read_text() for file in report.PAGES.glob("*.md")}
    assert "<!-- throughput-h200 -->" in pages["training"]
    for page in pages.values():
        assert report.filled(page) == page, "run benchmarks/report.py"


def test_every_kind_of_table(script, tmp_path):
    report = script("report")
    point = {"rows": 8, "batch": 2, "width": 4, "depth": 1, "name": "p", "warm": [0.5]}
    wide = point | {"width": 8, "name": "q", "warm": [1.0]}
    run = {"seconds": 2.0, "parameters": 1000}
    shared = {"batch": 64, "samples_per_s": 3.0, "step_ms": 2.0, "peak": 2**30}
    lanes = {"epoch_s": 0.75, "models_per_s": 8.0, "models_per_s_with_start": 4.0}
    results = {
        "cold_start": {
            "mlp": {"exburn": [run], "exburn-second": [run], "keras": [run]}
        },
        "overhead": {"exburn": {"fit": [0.002, 0.001], "epoch": [0.0005, 0.0004]}},
        "scaling": {"exburn": {"p": point, "q": wide}, "scan": {"p": point}},
        "distribution": {
            "mlp": {
                "exburn-data@2": shared | {"samples_per_s": 6.0},
                "torch-ddp@2": shared,
                "exburn@1": shared | {"devices": 1},
            }
        },
        "sweep": {
            "mlp": {
                "exburn@256": lanes,
                "alone@1": lanes | {"models_per_s": 2.0},
                "optuna@8": {"models_per_s_with_start": 0.5},
                "bytes": {"bytes": 2e12, "bytes_per_s": 4e12, "seconds": 0.5},
            }
        },
    }
    answered = {"requests_per_s": 2e3, "p50_ms": 1.0, "p99_ms": 4.0, "p999_ms": 9.0}
    ours = answered | {"cpu_us": 300.0}
    ratios = {"ratio": 2.0, "p99_ratio": 0.5, "cpu_ratio": 0.25}
    results["http_server"] = {
        "small": {"32": {"exburn": ours, "litserve": ours | ratios}},
        "overhead": dict.fromkeys(
            ("request_us", "route_us", "serving_us", "overhead_us"), 90.0
        ),
    }
    for kind, held in results.items():
        text = json.dumps({"versions": VERSIONS, "results": held})
        (tmp_path / f"{kind}-h200.json").write_text(text)
    made = {name: "\n".join(lines) for name, lines in report.tables(tmp_path).items()}
    assert "| mlp | 1,000 | 2.00 s | 2.00 s | 1.00 |" in made["cold_start-h200"]
    assert "| exburn | 2.00 | 0.50 |" in made["overhead-h200"]
    assert "| q | 1,000.00 |" in made["scaling-h200"]
    ours, ddp = made["distribution-h200"].splitlines()[3:5]
    assert ours == (
        '| mlp | 2 | 64 | ExBurn, `mesh="data"` | 6 | 2.00 | – | 1.00 GiB | – |'
    )
    assert ddp.endswith("| PyTorch, DDP | 3 | 2.00 | – | 1.00 GiB | 2.00 × |")
    assert "| mlp | 256 | `sweep` | 0.75 | 8 | 4.00 × | 4 |" in made["sweep-h200"]
    assert "| mlp | 8 | Optuna around `fit` | – | – | – | 0.5 |" in made["sweep-h200"]
    assert "4.00 TB/s take 0.50 s: 1.50 ×." in made["sweep-h200"]
    ours, theirs, _, spent, *_ = made["http_server-h200"].splitlines()[2:]
    assert ours.endswith("| 32 | ExBurn | 2,000 | 1.0 | 4.0 | 9.0 | 300 | – | – | – |")
    assert theirs.endswith("| 300 | 2.00 × | 0.50 × | 0.25 × |")
    assert spent.endswith("90 of the server's own.")
    assert all("NVIDIA H200, python 3, jax 0.10." in text for text in made.values())
    report.plot_scaling(results["scaling"], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def test_the_picture_of_ratios_names_models_peers_and_ratios(script, tmp_path):
    groups = {"a GPU": {"net": {"Keras": 4.5, "PyTorch": 0.75}, "other": {"Keras": 2}}}
    script("report").plot_ratios(groups, tmp_path / "ratios.svg")
    text = (tmp_path / "ratios.svg").read_text()
    for word in ("a GPU", "net", "other", "against Keras", "4.5 ×", "0.75 ×"):
        assert word in text


def test_training_on_two_devices_is_compared_with_one(script, tmp_path, monkeypatch):
    distribution, file = script("distribution"), tmp_path / "out.json"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    words = ["--tiny", "--work", "mlp", "--peers", "exburn-data,nobody-data"]
    words += ["--seconds", "0.1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["x", *words])
    distribution.main()
    runs = json.loads(file.read_text())["results"]["mlp"]
    one, two = runs["exburn@1"], runs["exburn-data@2"]
    assert set(runs) == {"exburn@1", "exburn-data@2"}  # there is no such peer
    assert (one["batch"], two["batch"]) == (8, 16) and one["steps"] == two["steps"]
    speeds = two["samples_per_s"] / one["samples_per_s"]
    assert two["efficiency"] == pytest.approx(speeds / 2)


def test_what_of_the_collectives_other_kernels_do_not_cover(script, tmp_path):
    from jax.profiler import ProfileData

    reduced = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
    names = ["gemm", reduced, "ncclDevKernel_AllGather_RING_LL(x)", "whole step"]
    streams = {
        "Stream #14(Compute)": [(0, 0, 4), (0, 6.5, 8), (0, 10, 12)],
        "Stream #21(Communication)": [(1, 3, 6), (2, 5, 7)],
        "XLA Modules": [(3, 0, 12)],  # no kernels
    }
    text = 'planes { name: "/device:GPU:0"'
    for line, events in streams.items():
        text += f' lines {{ name: "{line}"'
        for kind, begin, end in events:
            at = (
                f"offset_ps: {begin * 1e12:.0f} duration_ps: {(end - begin) * 1e12:.0f}"
            )
            text += f" events {{ metadata_id: {kind + 1} {at} }}"
        text += " }"
    for i, name in enumerate(names, 1):
        held = f'{{ id: {i} name: "{name}" }}'
        text += f" event_metadata {{ key: {i} value {held} }}"
    text += ' } planes { name: "/host:CPU" }'
    space = ProfileData.text_proto_to_serialized_xspace(text)
    (tmp_path / "host.xplane.pb").write_bytes(space)
    found = script("collectives").exposed(tmp_path)
    assert found == {
        "span": 12.0,
        "busy": 10.0,
        "collectives": 4.0,
        "exposed": 2.5,
        "AllReduce": 3.0,
        "AllGather": 2.0,
    }
    assert script("collectives").exposed(tmp_path / "nothing") is None


def test_a_batch_of_runs_goes_on_where_it_ended(script, tmp_path, monkeypatch, capsys):
    runs = script("run_all")
    for name in ("good", "broken"):
        (tmp_path / f"{name}.py").write_text(FAKE % VERSIONS)
    monkeypatch.setattr(runs, "FOLDER", tmp_path)
    monkeypatch.setattr(runs, "versions", lambda: VERSIONS)
    cases = (runs.Case("good", 1), runs.Case("broken", 1), runs.Case("long", 900))
    monkeypatch.setattr(runs, "CASES", cases)
    results = tmp_path / "results"
    arguments = ["--only", "good,broken,long", "--seconds", "60"]
    monkeypatch.setattr(sys, "argv", ["x", *arguments, "--results", str(results)])
    runs.main()
    runs.main()
    counts = {name: results / f"{name}-h200.count" for name in ("good", "broken")}
    assert {name: len(f.read_text()) for name, f in counts.items()} == {
        "good": 1,
        "broken": 2,
    }
    said = capsys.readouterr().out
    assert "good: finished before" in said and "long: left out" in said


ECHO = """
import asyncio, sys
async def main():
    async def answer(reader, writer):
        while True:
            await reader.readuntil(b"ask")
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nyes")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_clients_count_and_time_their_requests(script):
    load = script("http_load")
    words = [sys.executable, "-c", ECHO]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = load.load(port, load.request("/", b"ask"), 4, 0.5)
        process.kill()
    assert found["failed"] == 0 and found["answered"] >= found["requests"] > 10
    assert found["requests_per_s"] == found["requests"] / 0.5
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"] < 500
