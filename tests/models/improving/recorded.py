"""Writes ``recorded.json``: losses of TRL's ``GRPOTrainer`` for given answers.

    python tests/models/improving/recorded.py

with torch, transformers, datasets and trl. The model is the folder of Llama beside
``tests/applications/families``; answers and rewards are drawn from a seed, so that both
sides have the same. Each case is some updates by plain gradient descent, so that a
wrong gradient shows in the losses behind it.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
FOLDER = Path(__file__).parents[2] / "applications" / "families" / "llama"
VOCABULARY, END, MOST = 19, 18, 6
GROUP, PROMPTS, ROUNDS = 4, 2, 2
RATE, WEIGHTS = 0.25, [1.0, 0.5]
CASES = {
    "dapo": dict(),
    "clipped": dict(beta=0.1, epsilon=0.05, epsilon_high=0.08, num_iterations=3),
    "grpo": dict(loss="grpo", beta=0.05, num_iterations=2, scale_rewards="batch"),
    "bnpo": dict(loss="bnpo", scale_rewards="none", temperature=0.7, beta=0.1),
    "dr_grpo": dict(loss="dr_grpo", scale_rewards="none", num_iterations=2),
    "steps": dict(steps_per_generation=2, num_iterations=2, epsilon=0.05),
    "truncated": dict(mask_truncated=True, temperature=1.5, steps_per_generation=2),
}


def answers():
    """Prompts, and for each of the rounds' prompts a group of answers and rewards."""
    rng = np.random.default_rng(11)
    prompts = [rng.integers(0, END, n).tolist() for n in (3, 5, 2, 4)]
    rounds = []
    for prompt in prompts:
        for _ in range(GROUP):
            size = int(rng.integers(1, MOST + 1))
            tokens = rng.integers(0, END, size).tolist()
            if size < MOST or rng.random() < 0.5:
                tokens[-1] = END
            rounds.append((prompt, tokens, rng.integers(0, 5, 2).tolist()))
    return prompts, rounds


def main():
    with tempfile.TemporaryDirectory() as folder:
        recorded = {name: run(case, folder) for name, case in CASES.items()}
    FILE.write_text(json.dumps(recorded, indent=1) + "\n")


def run(case, folder):
    import torch
    import trl.trainer.grpo_trainer as module
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    module.shuffle_sequence_dict = lambda batch: batch
    prompts, rows = answers()
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    case = dict(case)
    samples = GROUP * PROMPTS
    steps = case.get("steps_per_generation", 1)
    options = {
        {"loss": "loss_type", "mask_truncated": "mask_truncated_completions"}.get(
            name, name
        ): value
        for name, value in case.items()
    }
    config = GRPOConfig(
        folder,
        use_cpu=True,
        report_to=[],
        optim="sgd",
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=samples // steps,
        num_generations=GROUP,
        max_completion_length=MOST,
        shuffle_dataset=False,
        reward_weights=WEIGHTS,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        max_steps=ROUNDS * steps * case.get("num_iterations", 1),
        **options,
    )
    done = []

    def write(asked, trainer):
        part = rows[len(done) * samples : (len(done) + 1) * samples]
        done.append(1)
        return {
            "prompt_ids": [row[0] for row in part],
            "completion_ids": [row[1] for row in part],
            "logprobs": [[0.0] * len(row[1]) for row in part],
        }

    def reward(number):
        def function(completion_ids, **_):
            part = rows[(len(done) - 1) * samples : len(done) * samples]
            assert [list(ids) for ids in completion_ids] == [row[1] for row in part]
            return [float(row[2][number]) for row in part]

        function.__name__ = f"reward_{number}"
        return function

    losses, tokens = [], []

    class Recording(GRPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            losses.append(float(loss))
            tokens.append(int(inputs["completion_mask"].sum()))
            return loss

    trainer = Recording(
        model,
        [reward(0), reward(1)],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [f"p{i}" for i in range(4)]}),
        processing_class=tokenizer(),
        rollout_func=write,
    )
    trainer.train()
    names = {
        "reward": "reward",
        "reward_std": "reward_std",
        "entropy": "entropy",
        "clip_ratio/region_mean": "clip_fraction",
        "kl": "kl",
    }
    logs = [log for log in trainer.state.log_history if "entropy" in log]
    figures = {
        ours: [round(log[theirs], 7) for log in logs if theirs in log]
        for theirs, ours in names.items()
        if theirs in logs[0]
    }
    weight = model.get_input_embeddings().weight.detach().numpy()
    return {
        "loss": [round(loss, 7) for loss in losses],
        "tokens": tokens,
        **figures,
        "embeddings": round(float(np.abs(weight).sum()), 5),
    }


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {**{f"p{i}": i for i in range(END)}, "end": END}
    plain = Tokenizer(models.WordLevel(words, unk_token="p0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="end", pad_token="end"
    )


if __name__ == "__main__":
    main()
