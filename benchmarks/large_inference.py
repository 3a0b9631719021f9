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
import numpy as np
from inference import spans
from large import PEERS, exburn_model, keras_model
from large_models import LARGE, Large, data, flax_module, torch_module
from process import options, read, write
from throughput import in_own_process

KINDS = ("evaluate", "predict")
PREDICTED = {"gpt2": 48, "gpt32": 1_024, "gpt128": 1_024}  # samples, whose logits fit
Passes = tuple[Callable[[], Any], Callable[[], Any]]


def by_model(model: Any, work: Large, x, y, some: int) -> Passes:
    """What ExBurn and Keras have in common."""
    return (
        lambda: model.evaluate(x, y, work.batch, verbose=0),
        lambda: model.predict(x[:some], work.batch, verbose=0),
    )


def by_scan(work: Large, x, y, some: int) -> Passes:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    module = flax_module(work)
    module.eval()
    graph, state = nnx.split(module)

    def forward(state, x):
        return nnx.merge(graph, state, copy=True)(x)

    def judged(state, x, y):
        logits = forward(state, x).astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, (logits.argmax(-1) == y).mean()

    @jax.jit
    def evaluated(state, xs, ys):
        found = jax.lax.scan(lambda c, b: (c, judged(state, *b)), None, (xs, ys))[1]
        return jax.tree.map(jnp.mean, found)

    @jax.jit
    def predicted(state, xs):
        return jax.lax.scan(lambda c, v: (c, forward(state, v)), None, xs)[1]

    def batches(array):
        return array.reshape(-1, work.batch, *array.shape[1:])

    xs, ys, part = batches(x), batches(y), batches(x[:some])
    return (
        lambda: jax.device_get(evaluated(state, *jax.device_put((xs, ys)))),
        lambda: np.asarray(predicted(state, jax.device_put(part))),
    )


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
    "scan": by_scan,
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
    report: dict[str, dict] = read(args.json)
    for name in args.work.split(","):
        results: dict[str, dict] = report.setdefault(name, {})
        for peer in args.peers.split(","):
            if peer in results:
                continue
            new = in_own_process(__file__, name, peer, args.epochs, args.samples)
            if new is None:
                continue
            results[peer] = new
            line = f"{name:9} {peer:15}"
            for kind, rate in new["samples_per_s"].items():
                line += f"  {kind} {rate:>11,.1f}/s"
                if "exburn" in results and peer != "exburn":
                    ours = results["exburn"]["samples_per_s"][kind]
                    line += f" (ExBurn {ours / rate:.2f} ×)"
            print(line, flush=True)
            if args.json:  # at once: the machine may be taken away
                write(args.json, report)


if __name__ == "__main__":
    main()
