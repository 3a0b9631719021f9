"""evaluate and predict of larger models on one GPU, beside flax, Keras and PyTorch.

    python benchmarks/large_inference.py [--work gpt2,lstm] [--peers exburn,scan]

The workloads are those of large.py, at their batch size of training. All peers start
from NumPy arrays in host memory; predictions end there, of fewer samples where they are
large. "scan" is flax by hand: one compiled scan over all batches, sent at once, whose
losses or outputs are fetched at once. PyTorch sends a batch at a time. Each (workload,
peer) runs in a process of its own. Printed are samples/s of the median of the warm
rounds. With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from inference import by_scan, rates_line, spans
from large import PEERS, exburn_model, keras_model
from large_models import LARGE, Large, data, flax_module, torch_module
from process import options
from throughput import compared

KINDS = ("evaluate", "predict")
PREDICTED = {"gpt2": 48, "gpt32": 1_024, "gpt128": 1_024}  # samples, whose logits fit
Passes = tuple[Callable[[], Any], Callable[[], Any]]


def by_model(model: Any, work: Large, x, y, some: int) -> Passes:
    """What ExBurn and Keras have in common."""
    return (
        lambda: model.evaluate(x, y, work.batch, verbose=0),
        lambda: model.predict(x[:some], work.batch, verbose=0),
    )


def by_flax(work: Large, x, y, some: int) -> Passes:
    from flax import nnx

    module = flax_module(work)
    module.eval()
    graph, state = nnx.split(module)

    def forward(state, x):
        return nnx.merge(graph, state, copy=True)(x)

    return by_scan(forward, state, x, y, work.batch, some)


def by_torch(work: Large, x, y, some: int, compiled: bool = False) -> Passes:
    import torch
    from torch.nn import functional as F

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    model: Any = torch_module(work).to(device).eval()
    tx, ty = torch.from_numpy(x), torch.from_numpy(y).long()
    if work.name == "resnet18":
        model = model.to(memory_format=torch.channels_last)
        tx = tx.permute(0, 3, 1, 2)

    def forward(x):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=work.bfloat16):
            return model(x)

    def judged(x, y):
        logits = forward(x)
        hits = (logits.argmax(1) == y).float().mean()
        return torch.stack([F.cross_entropy(logits.float(), y), hits])

    if compiled:
        forward, judged = torch.compile(forward), torch.compile(judged)

    def sent(batch):
        batch = batch.to(device, non_blocking=True)
        return batch.long() if work.tokens else batch

    @torch.inference_mode()
    def evaluate():
        pairs = zip(tx.split(work.batch), ty.split(work.batch), strict=True)
        return torch.stack([judged(sent(x), sent(y)) for x, y in pairs]).mean(0).cpu()

    @torch.inference_mode()
    def predict():
        parts = [forward(sent(part)).cpu() for part in tx[:some].split(work.batch)]
        return torch.cat(parts)

    return evaluate, predict


RUNNERS: dict[str, Callable[..., Passes]] = {
    "exburn": lambda work, *a: by_model(exburn_model(work), work, *a),
    "scan": by_flax,
    "keras": lambda work, *a: by_model(keras_model(work), work, *a),
    "torch": by_torch,
    "torch-compiled": lambda *a: by_torch(*a, compiled=True),
}


def child(name: str, peer: str, rounds: int, samples: int | None) -> None:
    work = LARGE[name]
    samples = (samples or work.samples) // work.batch * work.batch
    counts = samples, min(PREDICTED.get(name, samples), samples)
    passes = RUNNERS[peer](work, *data(work, samples), counts[1])
    rates = {
        kind: count / statistics.median(spans(call, rounds)[1:])
        for kind, count, call in zip(KINDS, counts, passes, strict=True)
    }
    print("RESULT " + json.dumps({"samples_per_s": rates}), flush=True)


def main() -> None:
    parser = options(__doc__, PEERS, LARGE)
    parser.add_argument("--epochs", type=int, default=5, help="rounds")
    parser.add_argument("--samples", type=int)
    args = parser.parse_args()
    if args.child:
        name, peer = args.child
        child(name, peer, args.epochs, args.samples)
        return
    for name, peer, results in compared(__file__, args):
        print(rates_line(name, peer, results), flush=True)


if __name__ == "__main__":
    main()
