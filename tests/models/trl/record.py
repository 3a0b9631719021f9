"""Writes the files beside it: preferences that trl's trainers learn, step by step.

    python tests/models/trl/record.py   # needs torch, transformers, peft, trl

The network is ``tests/applications/peft/llama``; ``adapter/`` is the adapter that all
cases begin with, and ``<case>.npz`` has the tokens, and of each step what trl logs,
with the adapter's tensors after the last one. A batch has all rows, in any order.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BASE = HERE.parents[1] / "applications" / "peft" / "llama"
ROWS, STEPS, WORDS = 6, 4, 30
DPO = {
    "sigmoid": {},
    "hinge": {"beta": 2.0},
    "robust": {"label_smoothing": 0.2},
    "exo_pair": {"label_smoothing": 0.1},
    "nca_pair": {},
    "bco_pair": {},
    "sppo_hard": {},
    "apo_zero": {"beta": 0.4},
    "apo_down": {},
    "ipo": {"beta": 0.3},
}
NAMES = (
    *("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
    *("logps/chosen", "logps/rejected", "kl"),
    *("nll_loss", "log_odds_ratio", "log_odds_chosen"),
)


def words(rng, least, most):
    return " ".join(f"w{n}" for n in rng.integers(3, WORDS, rng.integers(least, most)))


def rows_of(labelled):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(ROWS):
        row = {"prompt": words(rng, 2, 5) + " "}
        if labelled:
            row |= {"completion": words(rng, 1, 6), "label": number % 3 != 0}
        else:
            row |= {"chosen": words(rng, 1, 6), "rejected": words(rng, 1, 6)}
        rows.append(row)
    return rows


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(3, WORDS))]
    vocabulary = {name: number for number, name in enumerate(names)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def train(trainer_class, config_class, labelled, options):
    """What is recorded of a case."""
    import datasets
    import peft
    import torch
    import transformers

    model = transformers.LlamaForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    folder = tempfile.mkdtemp()
    trainer = trainer_class(
        model=model,
        args=config_class(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=ROWS,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=0.0,
            adam_epsilon=1e-7,
            optim="adamw_torch",
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **options,
        ),
        train_dataset=datasets.Dataset.from_list(rows_of(labelled)),
        processing_class=tokenizer(),
        peft_config=peft.LoraConfig(
            r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"
        ),
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in trainer.model.parameters():
            if weight.requires_grad:
                weight.copy_(0.3 * torch.randn_like(weight))
    if not (HERE / "adapter").exists():
        trainer.model.save_pretrained(HERE / "adapter")
        (HERE / "adapter" / "README.md").unlink(missing_ok=True)
    rows = list(trainer.train_dataset)
    arrays = tokens_of(rows)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == STEPS
    for name in ("loss", *NAMES):
        if name in logs[0]:
            arrays[name] = np.float32([log[name] for log in logs])
    state = peft.get_peft_model_state_dict(trainer.model)
    shutil.rmtree(folder)
    return arrays | {f"after/{k}": v.detach().numpy() for k, v in state.items()}


def tokens_of(rows):
    """Both answers of each row with their prompts, one behind the other."""
    documents = []
    for row in rows:
        if "chosen_labels" in row:  # of ORPO's own
            for kind in ("chosen", "rejected"):
                flags = [label != -100 for label in row[f"{kind}_labels"]]
                documents.append((row[f"{kind}_input_ids"], flags))
            continue
        answers = ["chosen_ids", "rejected_ids"]
        if "completion_ids" in row:
            answers = ["completion_ids", "KL_completion_ids"]
        for name in answers:
            prompt, answer = row["prompt_ids"], row[name]
            flags = [False] * len(prompt) + [True] * len(answer)
            documents.append((prompt + answer, flags))
    arrays = {
        "tokens": np.concatenate([np.int32(tokens) for tokens, _ in documents]),
        "counted": np.concatenate([np.array(flags) for _, flags in documents]),
        "lengths": np.int32([len(tokens) for tokens, _ in documents]),
    }
    if "label" in rows[0]:
        arrays["labels"] = np.array([row["label"] for row in rows])
    return arrays


def main() -> None:
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    shutil.rmtree(HERE / "adapter", ignore_errors=True)
    for case, options in DPO.items():
        options = {"loss_type": case, "disable_dropout": True, **options}
        arrays = train(DPOTrainer, DPOConfig, False, options)
        np.savez_compressed(HERE / f"dpo_{case}.npz", **arrays)
    weights = {"desirable_weight": 1.5, "undesirable_weight": 0.7, "beta": 0.5}
    np.savez_compressed(HERE / "kto.npz", **train(KTOTrainer, KTOConfig, True, weights))
    options = {"beta": 0.5, "max_length": 64}
    np.savez_compressed(
        HERE / "orpo.npz", **train(ORPOTrainer, ORPOConfig, False, options)
    )


if __name__ == "__main__":
    main()
