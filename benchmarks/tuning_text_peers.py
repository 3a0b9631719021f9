"""The other side of ``tuning_text.py``: trl and peft, with or without liger-kernel.

It imports nothing of ExBurn but the shapes and the tokens, and runs where torch is.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from tuning_text import RANK, RATE, SHAPES, TARGETS, parse, tokens_of

del sys.path[0]  # kernels.py beside this file is no package `kernels`

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LAYERS = {"attention": "self_attn", "mlp": "mlp"}
NAMES = {"query": "q", "key": "k", "value": "v", "attention_output": "o"}


def versions() -> dict[str, str]:
    names = "torch transformers trl peft bitsandbytes liger-kernel accelerate".split()
    result = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            result[name] = importlib.metadata.version(name)
    return result


def config_of(shape: str) -> Any:
    from transformers import LlamaConfig

    own = SHAPES[shape]
    return LlamaConfig(
        vocab_size=own["vocabulary_size"],
        hidden_size=own["width"],
        intermediate_size=own["mlp_width"],
        num_hidden_layers=own["layers"],
        num_attention_heads=own["heads"],
        num_key_value_heads=own["key_value_heads"],
        rope_parameters={"rope_type": "default", "rope_theta": own["rope_base"]},
        tie_word_embeddings=own["tie_embeddings"],
        max_position_embeddings=8192,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )


def model_of(args: Any) -> Any:
    from transformers import LlamaForCausalLM

    if args.equal:
        return LlamaForCausalLM.from_pretrained(
            Path(args.folder) / "start", dtype=torch.float32
        )
    config = config_of(args.shape)
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    return in_four_bits(model) if args.kind == "qlora" else model


def in_four_bits(model: Any) -> Any:
    """The linear layers of the blocks as bitsandbytes' NF4, doubly quantized."""
    import bitsandbytes as bnb

    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or ".layers." not in f".{name}":
            continue
        new = bnb.nn.Linear4bit(
            module.in_features,
            module.out_features,
            bias=False,
            compute_dtype=torch.bfloat16,
            compress_statistics=True,
            quant_type="nf4",
            device="meta",  # else the processor draws weights that nobody uses
        )
        new.weight = bnb.nn.Params4bit(
            module.weight.data,
            requires_grad=False,
            quant_type="nf4",
            compress_statistics=True,
        )
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new.to(DEVICE))
    model.is_loaded_in_4bit = True
    if CUDA:
        torch.cuda.empty_cache()
    return model


def adapted(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=RANK,
        lora_alpha=RANK,
        lora_dropout=0.0,
        target_modules=[f"{name}_proj" for name in TARGETS],
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def take_adapters(model: Any, path: Path) -> None:
    """Gives adapters the values of ours, whose matrices are turned and have heads."""
    stored = {name.replace("|", "/"): v for name, v in np.load(path).items()}
    for name, value in stored.items():
        layer, _, matrix = name.rpartition("/")
        block, *rest = layer.removeprefix("block_").split("_", 1)
        part = rest[0]  # attention/query, gate …
        if part.startswith("attention"):
            module = f"self_attn.{NAMES[part.rpartition('/')[2]]}_proj"
        else:
            module = f"mlp.{part}_proj"
        target = model.get_submodule(f"base_model.model.model.layers.{block}.{module}")
        own = target.lora_A if matrix == "lora_a" else target.lora_B
        weight = own["default"].weight
        flat = (
            value.reshape(-1, RANK) if matrix == "lora_a" else value.reshape(RANK, -1)
        )
        with torch.no_grad():
            weight.copy_(torch.from_numpy(flat.T.copy()))


class Clock:
    """Seconds of steps, by a callback of transformers' Trainer."""

    def __init__(self, warm: int):
        from transformers import TrainerCallback

        clock, self.marks, self.losses = self, [], []

        class Callback(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step % warm == 0:
                    if CUDA:
                        torch.cuda.synchronize()
                    clock.marks.append(time.perf_counter())

            def on_log(self, args, state, control, logs=None, **kwargs):
                if logs and "loss" in logs:
                    clock.losses.append(float(logs["loss"]))

        self.callback = Callback()


def train_by_trl(args: Any, liger: bool) -> dict[str, Any]:
    import pyarrow
    from datasets import Dataset  # type: ignore[attr-defined]
    from trl import SFTConfig, SFTTrainer

    model = model_of(args)
    if args.kind != "full":
        model = adapted(model)
    if args.equal:
        rows = np.load(Path(args.folder) / "rows.npy")
        if args.kind == "lora":
            take_adapters(model, Path(args.folder) / "adapters.npz")
    else:
        rows = tokens_of(model.config.vocab_size, args.rows * args.steps, args.length)
    steps = args.steps if args.equal else args.steps * (1 + args.rounds)
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    clock = Clock(args.steps)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.folder or "/tmp/tuning_text",
            max_steps=steps,
            per_device_train_batch_size=args.rows,
            learning_rate=1e-3 if args.equal else RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=0.0,
            optim="adamw_torch" if args.equal else "adamw_torch_fused",
            bf16=not args.equal,
            use_cpu=not CUDA,
            gradient_checkpointing=args.remat is not None,
            use_liger_kernel=liger,
            remove_unused_columns=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
            loss_type="nll",
            logging_steps=1 if args.equal else args.steps,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            average_tokens_across_devices=False,
            dataloader_pin_memory=CUDA,
        ),
        train_dataset=Dataset(
            pyarrow.table({"input_ids": rows.tolist()}),
            fingerprint="rows",  # without hashing, which fails on Python 3.12
        ),
        data_collator=collate,
        processing_class=NoTokenizer(),
        callbacks=[clock.callback],
    )
    if args.equal:  # in the order of the file, as ours
        trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(
            trainer.train_dataset
        )
    trainer.train()
    return result_of(args, clock.marks, clock.losses, rows)


def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
    ids = torch.tensor([example["input_ids"] for example in examples])
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": mask}


def NoTokenizer() -> Any:
    """A tokenizer of one word: rows are numbers already, but trl asks for one."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )


def train_by_hand(args: Any) -> dict[str, Any]:
    """The same steps without trl: a plain loop."""
    model = model_of(args)
    if args.kind != "full":
        model = adapted(model)
    if args.remat:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    rows = tokens_of(model.config.vocab_size, args.rows * args.steps, args.length)
    data = torch.from_numpy(rows).long().to(DEVICE)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, RATE, weight_decay=0.0, fused=CUDA)
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    marks, losses = [], []
    model.train()
    for _ in range(1 + args.rounds):
        total = torch.zeros((), device=DEVICE)
        for start in range(0, len(data), args.rows):
            ids = data[start : start + args.rows]
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
        losses.append(float(total) / args.steps)  # which waits for the device
        marks.append(time.perf_counter())
    return result_of(args, marks, losses, rows)


def result_of(args: Any, marks: list, losses: list, rows: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"losses": losses, "versions": versions()}
    if len(marks) > 1:
        seconds = min(b - a for a, b in zip(marks, marks[1:], strict=False))
        result["tokens_per_second"] = rows.size / seconds
    if CUDA:
        result["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        result["reserved_gb"] = torch.cuda.max_memory_reserved() / 1e9
        result["device"] = torch.cuda.get_device_name()
    return result


def main() -> None:
    args = parse()
    side = args.child
    missing = [
        name
        for name in {"trl": ["trl"], "liger": ["trl", "liger_kernel"]}.get(side, [])
        if importlib.util.find_spec(name) is None
    ]
    if side == "trl" and missing:
        side = "torch"
    if side == "liger" and missing:
        result = {"failed": f"cannot be imported: {', '.join(missing)}"}
    elif side == "torch":
        note = {"note": "a loop by hand over transformers and peft, without trl"}
        result = note | train_by_hand(args)
    else:
        result = train_by_trl(args, side == "liger")
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
