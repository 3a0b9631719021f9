"""Tuning a language model: ExBurn beside trl + peft, tokens a second and peak memory.

    python benchmarks/tuning_text.py --shape 1B --kind lora,qlora
    python benchmarks/tuning_text.py --equal --peer-python /path/to/python

Random weights in the shapes of Llama 3.2 1B and Llama 3.1 8B, bfloat16; adapters of
rank 16 on the seven matrices of each block, in float32; AdamW at 2e-4; rows of 2,048
tokens, the same in all. Ours come by ``fit(documents, batch_tokens=…)``, with
``--documents`` of them in a row; theirs are whole rows, since trl packs for flash-attn
alone. Each side runs in a process of its own, which prints JSON. The first round of
steps, in which programs are compiled, is not measured. Lines of JSON go to the file of
``--out``, by default ``$OUT/tuning_text.jsonl``, as they come.

Sides (``--side``): ``exburn``; ``trl`` (SFTTrainer and peft); ``liger``, the same with
liger-kernel. Without trl there is ``torch``, a loop by hand over transformers and peft,
which the lines then say. What cannot be imported is told, and left out. ``--remat
blocks`` computes activations again on all sides (``compile(remat="blocks")``, gradient
checkpointing); with ``--remat offload`` ours keeps what goes into blocks on the host,
with ``--remat activations`` the results of their products on the device.
QLoRA is ``--scheme nf4``, ``nf4-double`` or ``int4`` on ours, and bitsandbytes' NF4
with double quantization on theirs; embeddings and head stay in bfloat16 on both.

Peak memory of ours is the allocator's ``peak_bytes_in_use`` in the process that trains,
where one block is quantized and copied to the others; of theirs
``max_memory_allocated`` after ``reset_peak_memory_stats``, and ``reserved`` beside it.

``--equal`` trains a tiny model in float32 on the CPU for 50 steps on both sides, from
the same weights, fully and by adapters, and compares the losses of the steps.

Wheels that the other side needs beside torch: trl, peft, transformers, accelerate,
datasets, bitsandbytes, liger-kernel (and tokenizers, safetensors, huggingface_hub,
pyarrow, pandas, dill, multiprocess, xxhash, fsspec, psutil, regex, tqdm, aiohttp).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import side_of, tell

del sys.path[0]  # kernels.py beside this file is no package `kernels`

SHAPES: dict[str, dict[str, Any]] = {
    "1B": dict(
        vocabulary_size=128256, layers=16, width=2048, heads=32, key_value_heads=8,
        mlp_width=8192, rope_base=500000.0, tie_embeddings=True,
    ),
    "8B": dict(
        vocabulary_size=128256, layers=32, width=4096, heads=32, key_value_heads=8,
        mlp_width=14336, rope_base=500000.0, tie_embeddings=False,
    ),
    "tiny": dict(
        vocabulary_size=512, layers=4, width=64, heads=4, key_value_heads=2,
        mlp_width=160, rope_base=10000.0, tie_embeddings=True,
    ),
}  # fmt: skip
ROWS = {"1B": 4, "8B": 2, "tiny": 2}
STEPS = {"1B": 20, "8B": 8, "tiny": 4}
RANK, RATE = 16, 2e-4
LIMIT = 230.0  # seconds of one side
TARGETS = ("q", "k", "v", "o", "gate", "up", "down")


def tokens_of(vocabulary: int, rows: int, length: int) -> np.ndarray:
    """Rows of tokens that follow each other by a rule, so that there is something
    to learn."""
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 7, (rows, length))
    tokens = np.cumsum(steps, 1) + rng.integers(0, 97, (rows, 1))
    return (tokens % min(vocabulary, 997)).astype(np.int32)


# ---------------------------------------------------------------------- ours
def model_of(shape: str, dtype: str = "bfloat16", **sizes: Any) -> Any:
    """A model whose weights are drawn on the device, one after the other, by one
    program for all of a shape."""
    import jax

    from exburn.applications import Llama
    from exburn.module.building import keeping_specs, place
    from exburn.module.traversal import iter_weights

    def normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return (0.02 * jax.random.normal(key, shape, "float32")).astype(dtype)

    draw = jax.jit(normal, static_argnums=(1, 2))
    with keeping_specs():
        model = Llama(**SHAPES[shape] | sizes, dtype=dtype)
    for number, (path, weight, _) in enumerate(iter_weights(model)):
        spec = weight.get_raw_value()
        key = jax.random.fold_in(jax.random.key(0), number)
        value = jax.numpy.ones(spec.shape, spec.dtype)
        if not path.endswith("scale"):
            value = draw(key, spec.shape, spec.dtype)
        weight.set_raw_value(value)
    place(model)
    return model


def quantized_model(shape: str, scheme: str) -> Any:
    """A quantized model, all of whose blocks have the weights of one: it takes no more
    memory on its way than when it is there."""
    import jax.numpy as jnp

    from exburn.applications import Llama
    from exburn.module.building import keeping_specs, place
    from exburn.module.traversal import iter_weights
    from exburn.quantizers import NF4QuantizationConfig

    double = NF4QuantizationConfig(double_quantization=True)
    mode: Any = {"config": double} if scheme == "nf4-double" else {"mode": scheme}
    mode["filters"] = ["block_*"]
    one = model_of(shape, layers=1).quantize(**mode)
    values = {path: w.get_raw_value() for path, w, _ in iter_weights(one)}
    with keeping_specs():
        model = Llama(**SHAPES[shape], dtype="bfloat16").quantize(**mode)
    for path, weight, _ in iter_weights(model):
        value = values[re.sub(r"block_\d+", "block_0", path)]
        weight.set_raw_value(jnp.copy(value) if "block_" in path else value)
    place(model)
    return model


def train_ours(args: argparse.Namespace) -> dict[str, Any]:
    import jax

    import exburn
    from exburn.text import Document, PackedDocuments

    begin = time.perf_counter()
    if args.kind == "qlora":
        model = quantized_model(args.shape, args.scheme)
    else:
        model = model_of(args.shape)
    if args.kind != "full":
        model.add_lora(RANK, filter=["block_*"])
    bits: dict[str, Any] = {"state_bits": 8} if args.state_bits == 8 else {}
    optimizer = exburn.optimizers.AdamW(RATE, weight_decay=0.0, **bits)
    model.compile(optimizer, remat=args.remat)
    made = time.perf_counter() - begin
    vocabulary = SHAPES[args.shape]["vocabulary_size"]
    rows = tokens_of(vocabulary, args.rows * args.steps, args.length)
    size = args.length // args.documents
    parts = [Document(part) for row in rows for part in row.reshape(-1, size)]
    documents, batch = PackedDocuments(parts), args.rows * args.length

    def fit() -> float:
        start = time.perf_counter()
        history = model.fit(
            documents, batch_tokens=batch, length=args.length, verbose=0
        )
        losses.append(history.history["loss"][-1])
        return time.perf_counter() - start

    losses: list[float] = []
    compiling, seconds = fit(), min(fit() for _ in range(args.rounds))
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "tokens_per_second": rows.size / seconds,
        "peak_gb": stats.get("peak_bytes_in_use", 0) / 1e9,
        "made_s": made,
        "first_round_s": compiling,
        "losses": losses,
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__},
    }


# ---------------------------------------------------------------------- both
def run_side(side: str, args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """The result of one side, in a process of its own."""
    here = Path(__file__)
    script = here if side == "exburn" else here.with_name("tuning_text_peers.py")
    words = list(more)
    for name in ("shape", "kind", "rows", "length", "steps", "rounds", "scheme"):
        words += [f"--{name}", str(getattr(args, name))]
    words += ["--documents", str(args.documents)]
    words += ["--folder", str(args.folder), "--state-bits", str(args.state_bits)]
    words += ["--remat", args.remat] if args.remat else []
    return side_of(str(script), side, words, args)


def compare(args: argparse.Namespace) -> None:
    """All sides of all kinds, each line written as it comes."""
    for kind in args.kinds.split(","):
        args.kind = kind
        for side in args.sides.split(","):
            line = {"side": side, "kind": kind, "shape": args.shape, "rows": args.rows}
            line |= {"length": args.length, "remat": args.remat}
            tell(args.out, line | run_side(side, args))


# ---------------------------------------------------------------------- equality
def equal(args: argparse.Namespace) -> bool:
    """50 steps in float32 from the same weights: losses of ours beside trl's."""
    agree = True
    for kind in ("full", "lora"):
        args.kind, args.shape, args.steps, args.length = kind, "tiny", 50, 64
        ours = equal_ours(args)
        theirs = run_side("trl", args, "--equal")
        if "failed" in theirs:
            tell(args.out, {"equal": kind, **theirs})
            return False
        difference = np.abs(np.array(ours) - np.array(theirs["losses"]))
        agree &= bool(difference.max() <= 1e-3)
        tell(args.out, {
            "equal": kind, "steps": len(ours), "largest_difference": difference.max(),
            "ours": [ours[0], ours[-1]],
            "theirs": [theirs["losses"][0], theirs["losses"][-1]],
            "within_1e-3": bool(difference.max() <= 1e-3),
            "versions": theirs["versions"],
        })  # fmt: skip
    return agree


def equal_ours(args: argparse.Namespace) -> list[float]:
    """Losses of ours, and a folder with the weights that it began with."""
    import exburn

    exburn.utils.set_random_seed(0)
    model = model_of("tiny", "float32")
    folder = Path(args.folder)
    model.save_pretrained(folder / "start")
    if args.kind == "lora":
        model.add_lora(RANK, filter=["block_*"])
        weights = model.trainable_weights
        values: Any = {w.path.replace("/", "|"): np.asarray(w.value) for w in weights}
        np.savez(folder / "adapters.npz", **values)
    rows = tokens_of(512, args.rows * args.steps, args.length)
    np.save(folder / "rows.npy", rows)
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(exburn.optimizers.AdamW(1e-3, weight_decay=0.0, epsilon=1e-8), loss)
    losses = []
    for step in range(args.steps):
        batch = rows[step * args.rows : (step + 1) * args.rows]
        history = model.fit(
            batch[:, :-1], batch[:, 1:], batch_size=args.rows, verbose=0
        )
        losses.append(history.history["loss"][0])
    return losses


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", default="1B", choices=SHAPES)
    parser.add_argument("--kind", dest="kinds", default="lora,qlora")
    parser.add_argument("--side", dest="sides", default="exburn,trl,liger")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--documents", type=int, default=1)
    parser.add_argument(
        "--scheme", default="nf4", choices=["int4", "nf4", "nf4-double"]
    )
    parser.add_argument("--state-bits", type=int, default=32)
    parser.add_argument("--remat", choices=["blocks", "activations", "offload"])
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--folder", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child")
    args = parser.parse_args()
    args.rows = args.rows or ROWS[args.shape]
    args.steps = args.steps or STEPS[args.shape]
    if args.out is None and "OUT" in os.environ:
        args.out = Path(os.environ["OUT"]) / "tuning_text.jsonl"
    args.kind = args.kinds
    return args


def main() -> None:
    args = parse()
    if args.child:
        print("RESULT " + json.dumps(train_ours(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        args.folder = args.folder or folder
        if args.equal:
            sys.exit(0 if equal(args) else 1)
        compare(args)


if __name__ == "__main__":
    main()
