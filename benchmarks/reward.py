"""Rounds of GRPO, beside TRL's ``GRPOTrainer``: seconds of a round, and where they go.

    python benchmarks/reward.py --peer exburn --model small
    PEERS/python benchmarks/reward.py --peer trl --model small

Each process measures one of the two, with its own Python: run them in turns. Both have
a Llama of one shape with random weights, the same prompts, groups and tokens, all
weights trained by AdamW in float32 on a CPU (TRL as it is without vLLM), bfloat16 on a
GPU. A round draws the answers, asks the reward, and makes ``--iterations`` updates. The
first rounds compile, and are left out.

``--slots`` has the text engine draw (ours); ``--parts`` tells drawing from learning.
"""

import argparse
import json
import tempfile
import time
from typing import Any

import numpy as np

MODELS = {  # layers, width, heads, key-value heads, mlp, vocabulary
    "tiny": (2, 64, 4, 4, 128, 256),
    "small": (4, 256, 8, 4, 512, 2048),
    "medium": (12, 768, 12, 12, 2048, 32_000),
    "1b": (16, 2048, 32, 8, 8192, 128_256),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("exburn", "trl"), default="exburn")
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--parts", action="store_true")
    return parser.parse_args()


def draw_prompts(options, vocabulary):
    rng = np.random.default_rng(0)
    count = options.prompts * (options.rounds + options.warm)
    return rng.integers(0, vocabulary - 1, (count, options.prompt)).tolist()


def evenness(tokens):
    return float(sum(int(token) % 2 == 0 for token in tokens)) / max(len(tokens), 1)


class Clock:
    """Seconds and processor seconds of each round."""

    def __init__(self):
        self.rounds, self.last = [], None

    def tick(self):
        now = time.perf_counter(), time.process_time()
        if self.last is not None:
            self.rounds.append([b - a for a, b in zip(self.last, now, strict=True)])
        self.last = now


def run_exburn(options, clock):
    import jax

    import exburn
    from exburn.callbacks import LambdaCallback
    from exburn.models.improving import sampling

    layers, width, heads, few, mlp, vocabulary = MODELS[options.model]
    exburn.utils.set_random_seed(0)
    on_gpu = jax.default_backend() == "gpu"
    sizes: dict[str, Any] = dict(heads=heads, key_value_heads=few, mlp_width=mlp)
    model = exburn.applications.Llama(
        vocabulary,
        layers=layers,
        width=width,
        generation={"end_tokens": [vocabulary - 1]},
        dtype="bfloat16" if on_gpu else None,
        **sizes,
    )
    if options.lora:
        model.add_lora(rank=options.lora)
    model.compile(exburn.optimizers.AdamW(1e-6))
    drawn = []
    if options.parts:
        write = sampling.AnswerSampler.write

        def timed(self, *args):
            start = time.perf_counter()
            answers = write(self, *args)
            drawn.append(time.perf_counter() - start)
            return answers

        setattr(sampling.AnswerSampler, "write", timed)  # noqa: B010
    hook = LambdaCallback(on_train_batch_end=lambda batch, logs: clock.tick())
    history = model.improve(
        draw_prompts(options, vocabulary),
        lambda texts: [evenness(text) for text in texts],
        batch_size=options.prompts,
        group=options.group,
        max_new_tokens=options.new,
        num_iterations=options.iterations,
        beta=options.beta,
        slots=options.slots,
        callbacks=[hook],
        verbose=0,
    )
    told = {"length": history.history["length"][0]}
    if drawn:
        told["drawing"] = min(drawn[options.warm :])
    return told


def run_trl(options, clock):
    import torch
    from datasets import Dataset  # type: ignore[attr-defined]
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        TrainerCallback,
    )
    from trl import GRPOConfig, GRPOTrainer

    layers, width, heads, few, mlp, vocabulary = MODELS[options.model]
    words = {f"w{i}": i for i in range(vocabulary)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    end = f"w{vocabulary - 1}"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=end, pad_token=end
    )
    on_gpu = torch.cuda.is_available()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=mlp,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=few,
            eos_token_id=vocabulary - 1,
            pad_token_id=vocabulary - 1,
            bos_token_id=None,
        )
    )
    samples = options.prompts * options.group
    peft = {}
    if options.lora:
        from peft import LoraConfig

        peft["peft_config"] = LoraConfig(r=options.lora, target_modules="all-linear")

    class Ticks(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step % options.iterations == 0:
                clock.tick()

    def reward(completion_ids, **_):
        return [evenness(tokens) for tokens in completion_ids]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            folder,
            use_cpu=not on_gpu,
            bf16=on_gpu,
            report_to=[],
            gradient_checkpointing=False,
            per_device_train_batch_size=samples,
            num_generations=options.group,
            num_iterations=options.iterations,
            max_completion_length=options.new,
            beta=options.beta,
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            num_train_epochs=1,
        )
        texts = [
            " ".join(f"w{token}" for token in row)
            for row in draw_prompts(options, vocabulary)
        ]
        trainer = GRPOTrainer(
            model,
            reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            callbacks=[Ticks()],
            **peft,
        )
        trainer.train()
    lengths = [
        log["completions/mean_length"]
        for log in trainer.state.log_history
        if "completions/mean_length" in log
    ]
    return {"length": float(np.mean(lengths))}


def main():
    options, clock = arguments(), Clock()
    clock.tick()
    run = run_exburn if options.peer == "exburn" else run_trl
    told = run(options, clock)
    rounds = np.array(clock.rounds[options.warm :])
    tokens = options.prompts * options.group * told["length"]
    row = {
        "peer": options.peer,
        "model": options.model,
        "answers": f"{options.prompts}x{options.group}",
        "seconds": round(float(rounds[:, 0].min()), 4),
        "mean": round(float(rounds[:, 0].mean()), 4),
        "processor": round(float(rounds[:, 1].min()), 4),
        "tokens/s": round(tokens / float(rounds[:, 0].min()), 1),
        "first": round(float(clock.rounds[0][0]), 2),
        **{name: round(value, 4) for name, value in told.items()},
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
