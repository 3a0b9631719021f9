"""What ``model.plan(batch_tokens=…)`` says, beside the peak of memory that is used.

    python benchmarks/plan.py [--case lora-1B,qlora-1B,full-small] [--remat blocks]

Each case runs in a process of its own, which plans a model without weights, makes it,
trains some steps of packed rows, and reads the device's ``peak_bytes_in_use``. A peak
that was there before the training (of weights being quantized) would hide it, so it is
printed, too: QLoRA quantizes one block and copies it. Lines of JSON go to
``$OUT/plan.jsonl`` as they come. On a CPU, which tells no peak, the plan is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import environment_of, outcome_of, tell
from tuning_text import RANK, RATE, SHAPES, model_of, quantized_model

SMALL = dict(
    vocabulary_size=32000, layers=12, width=768, heads=12, key_value_heads=12,
    mlp_width=2048, tie_embeddings=True,
)  # fmt: skip
CASES = {
    "lora-1B": ("1B", "lora", 8192),
    "qlora-1B": ("1B", "qlora", 8192),
    "full-small": ("small", "full", 32768),
    "lora-tiny": ("tiny", "lora", 256),
    "qlora-tiny": ("tiny", "qlora", 256),
}
SCHEME, STEPS = "nf4", 4
SHAPES["small"] = SMALL


def prepare(model: Any, kind: str, remat: str | None) -> Any:
    import exburn

    if kind != "full":
        model.add_lora(RANK, filter=["block_*"])
    model.compile(exburn.optimizers.AdamW(RATE, weight_decay=0.0), remat=remat)
    return model


def measure(case: str, remat: str | None) -> dict[str, Any]:
    import jax

    import exburn
    from exburn.applications import Llama
    from exburn.text import Document, PackedDocuments

    shape, kind, tokens = CASES[case]
    length = min(2048, tokens // 4)
    with exburn.models.without_weights():
        abstract = Llama(**SHAPES[shape], dtype="bfloat16")
        if kind == "qlora":
            abstract = abstract.quantize(SCHEME, filters=["block_*"])
        abstract = prepare(abstract, kind, remat)
        plan = abstract.plan(batch_tokens=tokens, length=length, largest=False)
    model = quantized_model(shape, SCHEME) if kind == "qlora" else model_of(shape)
    model = prepare(model, kind, remat)
    device = jax.devices()[0]
    before = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    rng = np.random.default_rng(0)
    words = SHAPES[shape]["vocabulary_size"]
    documents = PackedDocuments(
        [
            Document(rng.integers(1, words, length // 4).astype(np.int32))
            for _ in range(STEPS * 4 * tokens // length)
        ]
    )
    model.fit(documents, batch_tokens=tokens, length=length, verbose=0)
    used = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {
        "text": str(plan),
        "case": case,
        "remat": remat,
        "planned": plan.peak_bytes,
        "measured": used,
        "ratio": plan.peak_bytes / used if used else None,
        "peak_before_training": before,
        "parts": {k: v for k, v in dict(plan).items() if k.endswith("bytes")},
        "device": device.device_kind,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", default="lora-1B,qlora-1B,full-small")
    parser.add_argument("--remat", choices=["blocks", "activations", "offload"])
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        result = measure(args.child, args.remat)
        print("RESULT " + json.dumps(result))
        return
    out = Path(os.environ["OUT"]) / "plan.jsonl" if "OUT" in os.environ else None
    more = ["--remat", args.remat] if args.remat else []
    for case in args.case.split(","):
        words = [__file__, "--child", case, *more]
        result, why = outcome_of(words, environment_of(), args.limit)
        result = {"failed": why} if why else result
        print(result.pop("text", ""), flush=True)
        tell(out, result)


if __name__ == "__main__":
    main()
