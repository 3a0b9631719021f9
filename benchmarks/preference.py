"""DPO by adapters: ExBurn's ``fit`` beside trl's ``DPOTrainer``, pairs a second.

    python benchmarks/preference.py --shape tiny --peer-python /path/to/python
    python benchmarks/preference.py --shape 1B --lengths equal

Random weights in the shapes of `tuning_text.py`; bfloat16 on a GPU, float32 on a CPU;
adapters of rank 16 on the seven matrices of each block, the reference without them, in
the same step on both sides. The same pairs on both: ``--lengths mixed`` draws prompts
and answers of a log-normal length, which ours packs and trl fills up; ``equal`` has all
of one length, which leaves no room for packing. A step has ``--pairs`` pairs; ours has
as many tokens as these have on average. Each side runs in a process of its own, which
prints JSON; the first epoch, in which programs are compiled, is not measured, of the
others the shortest counts. ``processor_s`` are the processor's seconds of an epoch, for
a machine that is busy with more; of trl the mean of all. Lines of JSON go to ``--out``,
by default ``$OUT/preference.jsonl``, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import side_of, tell
from tuning_text import RANK, SHAPES, model_of

del sys.path[0]  # kernels.py beside this file is no package `kernels`

HERE = str(Path(__file__).parent)
PAIRS = {"1B": 8, "8B": 2, "tiny": 8}  # of a step
STEPS, RATE, WORDS = 8, 1e-4, 997
SIZES = {"1B": (128, 256), "8B": (128, 256), "tiny": (24, 48)}  # prompt, answer


def pairs_of(args: argparse.Namespace) -> list[tuple[np.ndarray, ...]]:
    """Tokens of prompts, chosen and rejected answers."""
    rng, sizes = np.random.default_rng(0), SIZES[args.shape]
    words = min(WORDS, SHAPES[args.shape]["vocabulary_size"])

    def draw(mean: int) -> np.ndarray:
        spread = 0.7 if args.lengths == "mixed" else 0.0
        length = int(np.clip(mean * np.exp(spread * rng.normal()), 4, 3 * mean))
        return rng.integers(3, words, length)

    count = args.pairs * STEPS
    return [(draw(sizes[0]), draw(sizes[1]), draw(sizes[1])) for _ in range(count)]


def train_ours(args: argparse.Namespace) -> dict[str, Any]:
    import jax

    import exburn
    from exburn.text import Document, DocumentPair, PackedPairs

    gpu = jax.default_backend() == "gpu"
    model = model_of(args.shape, "bfloat16" if gpu else "float32")
    model.add_lora(RANK, filter=["block_*"])
    optimizer = exburn.optimizers.AdamW(RATE, weight_decay=0.0)
    model.compile(optimizer, loss=exburn.losses.DPO(0.1))

    def document(prompt: np.ndarray, answer: np.ndarray) -> Document:
        tokens = np.concatenate([prompt, answer])
        return Document(tokens, np.arange(len(tokens)) >= len(prompt))

    rows = pairs_of(args)
    pairs = [DocumentPair(document(p, c), document(p, r)) for p, c, r in rows]
    packed = PackedPairs(pairs)
    batch = max(packed.tokens // STEPS, int(packed.lengths.max()))
    batch = -(-batch // 128) * 128
    seconds, busy, losses = [], [], []
    for _ in range(1 + args.rounds):
        start, work = time.perf_counter(), time.process_time()
        history = model.fit(packed, batch_tokens=batch, verbose=0)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - work)
        losses.append(history.history["loss"][0])
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "pairs_per_second": len(pairs) / min(seconds[1:]),
        "processor_s": min(busy[1:]),
        "first_epoch_s": seconds[0],
        "peak_gb": stats.get("peak_bytes_in_use", 0) / 1e9,
        "losses": losses,
        "steps": model.optimizer.iterations / (1 + args.rounds),
        "batch_tokens": batch,
        "length": history.params["packing"]["length"],
        "fill_rate": history.params["packing"]["fill_rate"],
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__},
    }


def train_by_trl(args: argparse.Namespace) -> dict[str, Any]:
    sys.path.insert(0, HERE)
    from tuning_text_peers import CUDA, Clock, NoTokenizer, adapted, config_of, versions

    sys.path.remove(HERE)
    import pyarrow
    import torch
    from datasets import Dataset  # type: ignore[attr-defined]
    from transformers import LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer

    class Trainer(DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return dataset  # of tokens already

    config = config_of(args.shape)
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if CUDA else torch.float32)
    with torch.device("cuda" if CUDA else "cpu"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    model.tie_weights()
    names = "prompt_ids", "chosen_ids", "rejected_ids"
    columns = zip(*pairs_of(args), strict=True)
    table = pyarrow.table(
        {
            name: [value.tolist() for value in column]
            for name, column in zip(names, columns, strict=True)
        }
    )
    clock = Clock(STEPS)
    trainer = Trainer(
        model=adapted(model),
        args=DPOConfig(
            output_dir=args.folder,
            max_steps=STEPS * (1 + args.rounds),
            per_device_train_batch_size=args.pairs,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=0.0,
            optim="adamw_torch_fused" if CUDA else "adamw_torch",
            bf16=CUDA,
            use_cpu=not CUDA,
            gradient_checkpointing=False,
            max_length=None,
            remove_unused_columns=False,
            logging_steps=STEPS,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=CUDA,
        ),
        train_dataset=Dataset(table, fingerprint="rows"),  # without hashing
        processing_class=NoTokenizer(),
        callbacks=[clock.callback],
    )
    work = time.process_time()
    trainer.train()
    work = time.process_time() - work
    marks = clock.marks
    seconds = min(b - a for a, b in zip(marks, marks[1:], strict=False))
    result = {
        "pairs_per_second": len(table) / seconds,
        "processor_s": work / (1 + args.rounds),
        "losses": clock.losses,
        "versions": versions(),
    }
    if CUDA:
        result["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        result["device"] = torch.cuda.get_device_name()
    return result


def run_side(side: str, args: argparse.Namespace) -> dict[str, Any]:
    """The result of one side, in a process of its own."""
    words = ["--folder", args.folder]
    for name in ("shape", "pairs", "rounds", "lengths"):
        words += [f"--{name}", str(getattr(args, name))]
    return side_of(__file__, side, words, args)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", default="tiny", choices=SHAPES)
    parser.add_argument("--side", dest="sides", default="exburn,trl")
    parser.add_argument("--lengths", default="mixed", choices=["mixed", "equal"])
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--limit", type=float, default=95.0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child")
    args = parser.parse_args()
    args.pairs = args.pairs or PAIRS[args.shape]
    if args.out is None and "OUT" in os.environ:
        args.out = Path(os.environ["OUT"]) / "preference.jsonl"
    if args.child:
        train = train_ours if args.child == "exburn" else train_by_trl
        print("RESULT " + json.dumps(train(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        args.folder = args.folder or folder
        for side in args.sides.split(","):
            line = {"side": side, "shape": args.shape, "lengths": args.lengths}
            tell(args.out, line | {"pairs": args.pairs} | run_side(side, args))


if __name__ == "__main__":
    main()
