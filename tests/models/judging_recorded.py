"""Writes ``judging_recorded.json``: answers of lm-eval's HFLM and of transformers.

    python tests/models/judging_recorded.py

with exburn, lm_eval, torch and transformers. The model is drawn from its seed, so that
its weights need not be kept.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
LENGTH, STRIDE, SEEN = 64, 16, 48


def make_texts():
    rng = np.random.default_rng(5)
    syllables = ["ka", "to", "ri", "mes", "an", "ul", "o", "ei", "str", "ish"]

    def word():
        return "".join(rng.choice(syllables, rng.integers(1, 4)))

    words = [word() for _ in range(60)]
    return [
        " ".join(rng.choice(words, size)) + "." for size in (3, 40, 12, 90, 150, 25)
    ]


def make_model():
    import exburn
    from exburn.applications import Llama
    from exburn.text import Tokenizer

    sizes = dict(layers=2, width=32, heads=4, key_value_heads=2, mlp_width=48)
    exburn.utils.set_random_seed(3)
    model = Llama(300, **sizes)
    for weight in model.weights:  # scores that are far from each other
        if weight.path.rpartition("/")[2] in ("kernel", "embeddings"):
            weight.assign(np.asarray(weight.value) * 6)
    model.tokenizer = Tokenizer.train(make_texts(), 300)
    return model


def requests():
    texts = make_texts()
    words = " ".join(texts).split()
    pairs = [
        (" ".join(words[i : i + size]), " " + words[i + size])
        for i, size in ((0, 2), (5, 9), (20, 40), (70, 1), (100, 12))
    ]
    pairs += [(pairs[0][0], " kato ri"), ("", "kato mes"), ("ka ", "to")]
    return pairs, texts


def main():
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model, (pairs, texts) = make_model(), requests()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        names = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(names | kind))
        judged = HFLM(
            pretrained=folder,
            device="cpu",
            batch_size=3,
            max_length=SEEN,
            dtype="float32",
        )

        def ask(kind, rows):
            return [Instance(kind, {}, row, 0) for row in rows]

        recorded = {"versions": {"torch": torch.__version__}}
        recorded["loglikelihood"] = judged.loglikelihood(ask("loglikelihood", pairs))
        recorded["rolling"] = judged.loglikelihood_rolling(
            ask("loglikelihood_rolling", [(text,) for text in texts])
        )
        options = {"until": ["ish"], "max_gen_toks": 12, "do_sample": False}
        recorded["written"] = judged.generate_until(
            ask("generate_until", [(text, dict(options)) for text in texts])
        )
        recorded["losses"] = [
            by_recipe(judged.model, judged.tok_encode(text)) for text in texts
        ]
    FILE.write_text(json.dumps(recorded, indent=1) + "\n")


def by_recipe(model, tokens):
    """Tokens and nats by the recipe of transformers' documentation.

    It multiplies a window's mean by one token less than the mean is of, where windows
    overlap; here it is by as many.
    """
    import torch

    ids, end, nats, count = torch.tensor([tokens]), 0, 0.0, 0
    for begin in range(0, len(tokens), STRIDE):
        last = min(begin + LENGTH, len(tokens))
        part = ids[:, begin:last]
        labels = part.clone()
        labels[:, : -(last - end)] = -100
        scored = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            nats += float(model(part, labels=labels).loss) * scored
        count, end = count + scored, last
        if end == len(tokens):
            break
    return count, nats


if __name__ == "__main__":
    main()
