"""Folders of tokenizers with many entries, and what ``transformers`` makes of them.

Run by Python with ``transformers`` and ``tokenizers``, this file writes
``transformers_rows.json`` anew: ``python tests/text/folders.py``.
"""

import functools
import json
import tempfile
from pathlib import Path

import tokenizers

RECORDED = Path(__file__).with_name("transformers_rows.json")
TEXTS = [
    "so it is, so it was.",
    "Émile isn't so , it 's  User : 用户 !",
    "<s>so it</s> is <|user|>[SEP]  [PAD] x<new>",
    " so",
    "",
]
LINES = [*TEXTS[:2], "naïve café", "so it is, so it was. User: User 用户"] * 3


def _train(made, trainer):
    made.train_from_iterator(LINES, trainer)
    return made


@functools.cache
def bytes_():
    """As GPT-2's."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return json.loads(_train(made, trainer).to_str())


@functools.cache
def pieces():
    """As Llama's."""
    known = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    known += ["▁", "s", "o", "i", "t", "▁s", "▁so", "▁i", "▁it", "U", "e", "r", "."]
    merges = [("▁", "s"), ("▁s", "o"), ("▁", "i"), ("▁i", "t")]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {word: number for number, word in enumerate(known)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    pre, after = tokenizers.pre_tokenizers, tokenizers.decoders
    made.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
    made.decoder = after.Sequence(
        [after.Replace("▁", " "), after.ByteFallback(), after.Fuse()]
        + [after.Strip(" ", 1, 0)]
    )
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return json.loads(made.to_str())


@functools.cache
def words():
    """As BERT's."""
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "so", "it", "is", "was"]
    known += ["user", "User", "##n", "'", "t", "s", ",", ".", "!", ":", "用", "户"]
    known += ["emile", "Emile", "émile", "Émile", "<", ">", "x", "/"]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {word: number for number, word in enumerate(known)}, unk_token="[UNK]"
        )
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(known[:5])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return json.loads(made.to_str())


@functools.cache
def chances():
    """As T5's, without its table of characters."""
    known = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁so", -2.0)]
    known += [("▁it", -2.5), ("▁", -3.0), ("s", -4.0), (".", -4.0), (",", -4.0)]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(known, 2))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    made.add_special_tokens(["<pad>", "</s>", "<unk>"])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return json.loads(made.to_str())


KINDS = {"bytes": bytes_, "pieces": pieces, "words": words, "chances": chances}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "legacy": False}
BERT = {"tokenizer_class": "BertTokenizer"}
GPT2 = {"tokenizer_class": "GPT2Tokenizer"}
NEW = {"content": "<new>", "lstrip": False, "normalized": False, "rstrip": False}
NEW |= {"single_word": False, "special": False}
USER = NEW | {"content": "<|user|>", "special": True, "lstrip": True}
OLD = "special_tokens_map"

# The kind, tokenizer_config.json, and further files.
CASES = {
    "bytes": ("bytes", FAST, {}),
    "bytes, ends": ("bytes", FAST | {"eos_token": "<|endoftext|>"}, {}),
    "bytes, new tokens": (
        "bytes",
        FAST | {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "[PAD]"},
        {},
    ),
    "bytes, tokens as objects": (
        "bytes",
        FAST | {"eos_token": {"__type": "AddedToken", **NEW, "content": "</s>"}},
        {},
    ),
    "bytes, a token of the vocabulary": ("bytes", FAST | {"eos_token": "so"}, {}),
    "bytes, added": (
        "bytes",
        FAST | {"added_tokens_decoder": {"290": USER, "291": NEW}},
        {},
    ),
    "bytes, added with flags": (
        "bytes",
        FAST
        | {
            "added_tokens_decoder": {
                "0": NEW | {"content": "<|endoftext|>", "special": True},
                "290": NEW | {"rstrip": True, "single_word": True},
            }
        },
        {},
    ),
    "bytes, more special": (
        "bytes",
        FAST
        | {"additional_special_tokens": ["<|user|>", {"__type": "AddedToken", **NEW}]},
        {},
    ),
    "bytes, extra special": (
        "bytes",
        FAST | {"extra_special_tokens": ["<|user|>"], "pad_token": "<new>"},
        {},
    ),
    "bytes, extra special by name": (
        "bytes",
        FAST | {"extra_special_tokens": {"user_token": "<|user|>"}},
        {},
    ),
    "bytes, of the model": ("bytes", FAST | {"image_token": "<new>"}, {}),
    "bytes, class of GPT-2": ("bytes", GPT2 | {"model_max_length": 8}, {}),
    "bytes, sides": (
        "bytes",
        FAST
        | {"padding_side": "left", "truncation_side": "left", "pad_token": "<|user|>"},
        {},
    ),
    "bytes, no clean-up": ("bytes", FAST | {"clean_up_tokenization_spaces": True}, {}),
    "bytes, old map": (
        "bytes",
        FAST | {"eos_token": "so"},
        {OLD: {"eos_token": "</s>", "pad_token": {"content": "<new>"}}},
    ),
    "bytes, old map that does not count": (
        "bytes",
        FAST | {"eos_token": "so", "added_tokens_decoder": {}},
        {OLD: {"eos_token": "</s>"}},
    ),
    "bytes, old tokens": (
        "bytes",
        FAST | {"eos_token": "</s>"},
        {"added_tokens": {"<|user|>": 291, "</s>": 290}},
    ),
    "bytes, only the old files": (
        "bytes",
        None,
        {OLD: {"eos_token": "</s>"}, "added_tokens": {"<new>": 290}},
    ),
    "bytes, harmless": (
        "bytes",
        FAST
        | {
            "chat_template": "{{ messages }}",
            "errors": "strict",
            "model_max_length": 1e30,
            "name_or_path": "/etc",
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "vocab_size": 9,
        },
        {},
    ),
    "pieces": ("pieces", LLAMA, {}),
    "pieces, as such": ("pieces", FAST | {"eos_token": "</s>"}, {}),
    "pieces, beginning": ("pieces", LLAMA | {"add_bos_token": True}, {}),
    "pieces, left": (
        "pieces",
        LLAMA | {"padding_side": "left", "pad_token": "</s>", "add_eos_token": False},
        {},
    ),
    "words": ("words", BERT, {}),
    "words, as such": ("words", FAST, {}),
    "words, cased": ("words", BERT | {"do_lower_case": False}, {}),
    "words, accents": ("words", BERT | {"strip_accents": False}, {}),
    "words, no accents": (
        "words",
        BERT | {"strip_accents": True, "do_lower_case": False},
        {},
    ),
    "words, characters": ("words", BERT | {"tokenize_chinese_chars": False}, {}),
    "words, clean": ("words", BERT | {"clean_up_tokenization_spaces": True}, {}),
    "words, as such, clean": (
        "words",
        FAST | {"clean_up_tokenization_spaces": True, "pad_token": "[PAD]"},
        {},
    ),
    "words, parts": (
        "words",
        BERT | {"model_input_names": ["input_ids", "attention_mask"]},
        {},
    ),
    "words, left": (
        "words",
        BERT | {"padding_side": "left", "truncation_side": "left"},
        {},
    ),
    "words, more": ("words", BERT | {"pad_token": "<new>"}, {}),
    "chances": ("chances", FAST | {"eos_token": "</s>", "pad_token": "<pad>"}, {}),
    "chances, clean": (
        "chances",
        FAST | {"clean_up_tokenization_spaces": True, "pad_token": "<pad>"},
        {},
    ),
}


def write(folder, kind, config=None, files=None, described=None):
    """Makes a folder.

    Args:
        folder: Its path.
        kind: One of ``KINDS``.
        config: What ``tokenizer_config.json`` says; ``None`` for no such file.
        files: What other files say, by their names without ``.json``.
        described: What ``tokenizer.json`` says; by default as the kind.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    texts = {"tokenizer": described or KINDS[kind](), **(files or {})}
    if config is not None:
        texts["tokenizer_config"] = config
    for name, value in texts.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def rows_of_transformers(folder):
    """What ``AutoTokenizer`` makes of the texts."""
    import transformers

    made = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [made(text)["input_ids"] for text in TEXTS]
    found = {
        "rows": rows,
        "texts": [made.decode(row, skip_special_tokens=True) for row in rows],
        "all": [made.decode(row) for row in rows],
        "end": made.eos_token,
    }
    if made.pad_token is not None:
        cut = made(TEXTS, padding=True, truncation=True, max_length=5)
        found["batch"] = {name: cut[name] for name in ("input_ids", "attention_mask")}
        if "token_type_ids" in cut:
            found["batch"]["token_type_ids"] = cut["token_type_ids"]
    return found


def record():
    """Writes what ``transformers`` makes of all cases."""
    found = {}
    for name, (kind, config, files) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            write(folder, kind, config, files)
            found[name] = rows_of_transformers(folder)
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    RECORDED.write_text(text.replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    record()
