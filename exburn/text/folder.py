"""Settings of a folder's tokenizer in the files beside ``tokenizer.json``.

``tokenizer.json`` says how texts are cut. ``tokenizer_config.json``, and of older
folders ``special_tokens_map.json`` and ``added_tokens.json``, add tokens to it, and say
what tokens are for. Versions of ``transformers`` differ in which file counts where they
contradict each other: then the folder is refused, with the name of the entry.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from exburn.errors import FileFormatError
from exburn.runtime.files.ordinary import read_text
from exburn.saving.pretrained_folder import CONFIG, read_json
from exburn.text.description import steps_of
from exburn.text.settings import TokenizerSettings
from exburn.weights.entries import (
    Field,
    Misfit,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    real,
    text,
    whole,
)

TOKENIZER, CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
_SPECIAL, _ADDED = "special_tokens_map.json", "added_tokens.json"
TEMPLATE, MORE_TEMPLATES = "chat_template.jinja", "additional_chat_templates"
TOKENIZER_FILES = (TOKENIZER, CONFIG_FILE, _SPECIAL, _ADDED, TEMPLATE)
TOKENIZER_FILES += (f"{MORE_TEMPLATES}/",)
_MOST_TEMPLATE, _MOST_TEMPLATES = 1 << 20, 16  # bytes, and files
_MOST = 2**31 - 1
_FLAGS = ("lstrip", "normalized", "rstrip", "single_word", "special")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_BERT = ("BertTokenizer", "BertTokenizerFast")
_LLAMA = ("LlamaTokenizer", "LlamaTokenizerFast")
_GPT2 = ("GPT2Tokenizer", "GPT2TokenizerFast")
_MODELS = {**dict.fromkeys(_BERT, "WordPiece"), **dict.fromkeys(_LLAMA + _GPT2, "BPE")}
_CLASSES = {"bert": _BERT[0], "gpt2": _GPT2[0], "llama": _LLAMA[0]}
# Special tokens that the classes have where a file says nothing.
_END = "<|endoftext|>"
_DEFAULTS = {
    **dict.fromkeys(
        _BERT,
        {name: f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
    ),
    **dict.fromkeys(_LLAMA, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}),
    **dict.fromkeys(_GPT2, dict.fromkeys(("unk", "bos", "eos"), _END)),
}


# ---------------------------------------------------------------------- kinds
def _token(value: Any) -> dict[str, Any]:
    """A token with its flags, of its text or of an object."""
    parts = {"content": value} if isinstance(value, str) else value
    if not isinstance(parts, Mapping) or not {"content", "__type", *_FLAGS} >= {*parts}:
        raise Misfit("a token: a text, or an object with 'content'")
    content, special = parts.get("content"), parts.get("special", True)
    flags = {name: parts.get(name, False) for name in _FLAGS}
    flags |= {"special": special, "normalized": parts.get("normalized", not special)}
    if not _is_token(content):
        raise Misfit("a token, whose 'content' is a text")
    if not all(isinstance(value, bool) for value in flags.values()):
        raise Misfit("a token, whose flags are true or false")
    return {"content": content, **flags}


def _is_token(value: Any) -> bool:
    """Tells whether a value is a text that a token may have."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate
        return False
    return True


def _more_tokens(value: Any) -> list[dict[str, Any]]:
    """Special tokens of a list."""
    return list(list_of(_token)(value))


def _named_or_more(value: Any) -> Mapping[str, Any] | list[dict[str, Any]]:
    """Special tokens of a list, or by their names."""
    if isinstance(value, Mapping):
        return {name: _token(token) for name, token in value.items()}
    return _more_tokens(value)


def _tokens_by_number(value: Any) -> list[tuple[int, dict[str, Any]]]:
    """Tokens by their numbers, in order."""
    if not isinstance(value, Mapping) or not all(map(_NUMBER.fullmatch, value)):
        raise Misfit("an object of numbers and tokens")
    tokens = []
    for number, about in value.items():
        if not isinstance(about, Mapping) or int(number) > _MOST:
            raise Misfit("an object of numbers and tokens")
        # A token whose file says nothing of that is an ordinary one.
        tokens.append((int(number), _token({"special": False, **about})))
    return sorted(tokens, key=lambda pair: pair[0])


def _length(value: Any) -> int | None:
    """Tokens that a text may have; a very large number is written for any number."""
    number = real(1)(value)
    if number != int(number):
        raise Misfit("a whole number of at least 1")
    return None if number > _MOST else int(number)


def _input_names(value: Any) -> bool:
    """Tells whether the names of inputs number the parts of a text."""
    names = list_of(text)(value)
    if (
        not {"input_ids", "attention_mask"}
        <= set(names)
        <= {*("input_ids", "attention_mask", "token_type_ids")}
    ):
        raise Misfit("'input_ids', 'attention_mask' and perhaps 'token_type_ids'")
    return "token_type_ids" in names


def _template(value: Any) -> str | dict[str, str]:
    """The template of chats, or several of them by their names."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    templates: dict[str, str] = {}
    for part in parts:
        match part:
            case {"name": str(name), "template": str(template)}:
                templates[name] = template
    if not parts or len(templates) != len(parts):
        raise Misfit("a template, or a list of objects with 'name' and 'template'")
    return templates


_SIDE = choice(["right", "left"])
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_TOKENS = [
    *(Field(f"{name}_token", name, nullable(_token)) for name in _NAMED),
    Field("additional_special_tokens", "special", nullable(_more_tokens, [])),
    Field("extra_special_tokens", "extra", nullable(_named_or_more, [])),
]
_TABLE = Table(
    CONFIG_FILE,
    [
        *_TOKENS,
        Field("add_bos_token", "add_bos", nullable(flag)),
        Field("add_eos_token", "add_eos", nullable(flag)),
        Field("add_prefix_space", "prefix_space", nullable(flag)),
        Field("added_tokens_decoder", "added", nullable(_tokens_by_number)),
        Field("chat_template", "template", nullable(_template)),
        Field("clean_text", "clean_text", nullable(flag)),
        Field("clean_up_tokenization_spaces", "clean_up", nullable(flag, False), False),
        Field(
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
            "clean_up_all",
            nullable(flag, False),
            False,
        ),
        Field("do_lower_case", "lowercase", nullable(flag)),
        Field("legacy", "legacy", nullable(flag)),
        Field("max_len", "old_length", nullable(_length)),
        Field("model_input_names", "type_ids", nullable(_input_names)),
        Field("model_max_length", "max_length", nullable(_length)),
        Field("padding_side", "padding_side", nullable(_SIDE)),
        Field("strip_accents", "strip_accents", nullable(flag)),
        Field("tokenize_chinese_chars", "chinese_chars", nullable(flag)),
        Field("tokenizer_class", "kind", nullable(text)),
        Field("truncation_side", "truncation_side", nullable(_SIDE)),
        Field("wordpieces_prefix", "prefix", nullable(text)),
    ],
    only={
        "auto_map": (),  # code of the folder's, which does not run
        "backend": ("tokenizers",),
        "do_basic_tokenize": (True,),
        "dropout": (0.0,),
        "fix_mistral_regex": (False,),
        "init_inputs": ([],),
        "never_split": ([],),
        "split_special_tokens": (False,),
    },
    # Of answers that are taken apart, and of texts of users that look like tokens; of
    # the tokenizers in Python and of their files; names of files and of the folder; of
    # batches whose form a call says.
    harmless="""
        _commit_hash _from_auto chat_control_tokens cls_token_box
        device_map errors from_slow full_tokenizer_file is_local language
        local_files_only max_length merges_file name_or_path pad_to_multiple_of
        pad_token_box pad_token_type_id processor_class response_schema
        response_template revision sep_token_box sp_model_kwargs
        spaces_between_special_tokens special_tokens_map_file stride tokenizer_file
        transformers_version trim_offsets truncation_strategy unk_token_box
        use_default_system_prompt use_fast verbose vocab_file vocab_size
    """.split(),
)
_SPECIAL_TABLE = Table(_SPECIAL, _TOKENS)


# ---------------------------------------------------------------------- reading
@dataclasses.dataclass(frozen=True)
class Description:
    """A tokenizer, as the files of a folder describe it together.

    Attributes:
        text: The content of ``tokenizer.json``, with what the other files add.
        settings: What they say beside it.
        files: The texts of all of them, by their names.
        named: Tokens by the names that templates of chats have for them.
    """

    text: str
    settings: TokenizerSettings
    files: Mapping[str, str]
    named: Mapping[str, str]


def read_description(
    folder: Path, content: str, description: dict[str, Any], op: str
) -> Description:
    """The tokenizer that the files beside a ``tokenizer.json`` make of it.

    Args:
        content: The text of its ``tokenizer.json``.
        description: What that describes; it is changed.

    Raises:
        FileFormatError: An entry does not fit, is not done here, contradicts the
            ``tokenizer.json``, or nothing is known of it.
    """
    configs, files = {}, {TOKENIZER: content}
    for name in (CONFIG_FILE, _SPECIAL, _ADDED):
        if (folder / name).exists():
            configs[name], files[name] = read_json(folder / name, op)
    templates = _template_files(folder, op)
    entries = _entries(configs, description, folder, op)
    entries["template"] = _one_template(entries["template"], templates, op)
    reading = _Reading(description, entries, op)
    reading.check()
    changed = reading.add_tokens()
    changed = reading.set_normalizer() or changed
    if changed:
        content = json.dumps(description, ensure_ascii=False)
    return Description(
        content, reading.settings(), files | templates, reading.named_tokens()
    )


def replace_template(files: Mapping[str, str], template: Any) -> dict[str, str]:
    """The files of a tokenizer's folder with another template of chats.

    Args:
        files: Their texts by their names.
        template: A template, several by their names, or ``None``.
    """
    config = json.loads(files.get(CONFIG_FILE, "{}"))
    old = config.pop("chat_template", None)
    if isinstance(template, Mapping):
        config["chat_template"] = [
            {"name": name, "template": text} for name, text in template.items()
        ]
    result = {n: text for n, text in files.items() if not n.endswith(".jinja")}
    if old != config.get("chat_template"):
        result[CONFIG_FILE] = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return result | ({TEMPLATE: template} if isinstance(template, str) else {})


def _template_files(folder: Path, op: str) -> dict[str, str]:
    """The texts of the files with templates of chats, by their paths in the folder.

    Raises:
        FileFormatError: There are too many, or one is too large.
    """
    paths = [folder / TEMPLATE] if (folder / TEMPLATE).exists() else []
    more = folder / MORE_TEMPLATES
    if more.is_dir():
        paths += sorted(path for path in more.iterdir() if path.suffix == ".jinja")
    if len(paths) > _MOST_TEMPLATES:
        raise FileFormatError(op, f"there are {len(paths)} templates of chats")
    return {
        path.relative_to(folder).as_posix(): read_text(path, op, _MOST_TEMPLATE)
        for path in paths
    }


def _one_template(entry: Any, files: Mapping[str, str], op: str) -> Any:
    """The template of chats, or those by their names, of the entry and of files.

    Raises:
        FileFormatError: Both are there, and differ.
    """
    names = {
        "default" if path == TEMPLATE else Path(path).stem: text
        for path, text in files.items()
    }
    templates = names["default"] if [*names] == ["default"] else names
    if entry is None or not names:
        return templates or entry
    if entry != templates:
        raise FileFormatError(
            op,
            f"'chat_template' in {CONFIG_FILE} is another one than {TEMPLATE}",
            hint="Libraries differ in which of the two counts. Remove one of them.",
        )
    return entry


def _entries(
    configs: Mapping[str, Mapping[str, Any]],
    description: Mapping[str, Any],
    folder: Path,
    op: str,
) -> dict[str, Any]:
    """The entries of all files, under the names of the table's arguments."""
    config = dict(configs.get(CONFIG_FILE, {}))
    # Tokens of one model, as "image_token": they are special.
    own = {
        key: config.pop(key)
        for key in list(config)
        if key.endswith("_token") and key not in _TABLE.entries
    }
    entries = _TABLE.read(config, op)
    more = Table(CONFIG_FILE, [Field(key, key, nullable(_token)) for key in own])
    entries["own"] = [token for token in more.read(own, op).values() if token]
    lists = {"additional_special_tokens", "extra_special_tokens"}
    entries["listed"] = not lists.isdisjoint(config)
    if isinstance(entries["extra"], Mapping):
        entries["own"] += entries["extra"].values()
        entries["listed"] &= not entries["extra"]
        entries["extra"] = []
    # Both names are of one list; the newer one counts.
    entries["extra"] = entries["extra"] or entries["special"] or []
    present = {*config}
    if entries["added"] is None:  # an older folder
        present |= {*configs.get(_SPECIAL, {})}
        more = _take_special(entries, configs.get(_SPECIAL, {}), op)
        entries["added"] = _added_tokens(configs.get(_ADDED, {}), entries, op)
        entries["extra"] = [*entries["extra"], *more]
    if entries["kind"] is None and configs and (folder / CONFIG).is_file():
        model, _ = read_json(folder / CONFIG, op)
        kind, own_type = model.get("tokenizer_class"), model.get("model_type")
        kind = kind or (_CLASSES.get(own_type) if isinstance(own_type, str) else None)
        entries["kind"] = kind if isinstance(kind, str) else None
    steps = steps_of(description, "pre_tokenizer", "pretokenizers")
    if entries["kind"] in _LLAMA and any(s.get("type") == "ByteLevel" for s in steps):
        entries["kind"] = None  # many folders of Llama 3 name the class of Llama 2
    defaults = _DEFAULTS.get(entries["kind"] or "", {})
    pad = _object(description.get("padding")).get("pad_token")
    if _is_token(pad) and entries["kind"] not in (*_BERT, *_GPT2):
        defaults = {**defaults, "pad": pad}
    for name, content in defaults.items():
        if f"{name}_token" not in present:
            entries[name] = _token(content)
    return entries


def _take_special(
    entries: dict[str, Any], special: Mapping[str, Any], op: str
) -> list[dict[str, Any]]:
    """Takes what ``special_tokens_map.json`` says, which counts in older folders.

    Args:
        entries: What ``tokenizer_config.json`` says; it is changed.
        special: The content of the other file.

    Returns:
        Further special tokens, under their older name.
    """
    older = _SPECIAL_TABLE.read(special, op)
    for name in _NAMED:
        if special.get(f"{name}_token") is not None:
            entries[name] = older[name]
    if isinstance(older["extra"], Mapping):
        entries["own"] += older["extra"].values()
    elif older["extra"]:
        entries["extra"] = [*entries["extra"], *older["extra"]]
        return []
    return [] if entries["listed"] else list(older["special"] or ())


def _special_tokens(entries: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tokens that are named as special."""
    tokens = [entries[name] for name in _NAMED if entries[name]]
    tokens = [{**token, "special": True} for token in [*tokens, *entries["own"]]]
    return [*tokens, *entries["extra"]]


def _added_tokens(
    contents: Mapping[str, Any], entries: Mapping[str, Any], op: str
) -> list[tuple[int, dict[str, Any]]]:
    """The tokens of ``added_tokens.json``.

    Raises:
        FileFormatError: It is damaged.
    """
    special_names = [entries[name] for name in _NAMED if entries[name]]
    special = {token["content"] for token in [*special_names, *entries["extra"]]}
    table = Table(_ADDED, [Field(key, key, whole(0, _MOST)) for key in contents])
    tokens = []
    for content, number in table.read(contents, op).items():
        if not _is_token(content):
            raise FileFormatError(op, f"{_ADDED} has a token that is no text")
        about = {"content": content, "special": content in special}
        tokens.append((number, _token(about)))
    return sorted(tokens, key=lambda pair: pair[0])


class _Numbers:
    """The numbers that the package gives to tokens.

    Args:
        added: Those that are added already, by their contents.
        vocabulary: Those of the model.
    """

    def __init__(
        self, entries: Mapping[str, Mapping[str, Any]], vocabulary: Mapping[str, int]
    ):
        own = {content: token["id"] for content, token in entries.items()}
        self._known = {**vocabulary, **own}
        self._next = max(max(own.values(), default=-1) + 1, len(vocabulary))

    def of(self, content: str) -> int:
        """The number of a token, which is added if need be."""
        if content not in self._known:
            self._known[content], self._next = self._next, self._next + 1
        return self._known[content]


class _Reading:
    """Entries beside the description that they are of.

    Args:
        described: The content of ``tokenizer.json``, which is changed.
        entries: What the other files say.
    """

    def __init__(self, description: dict[str, Any], entries: dict[str, Any], op: str):
        self._described, self._entries, self._op = description, entries, op
        self._model = _object(description.get("model"))

    def _is(self, classes: tuple[str, ...]) -> bool:
        return self._entries["kind"] in classes

    def _refuse(self, entry: str, value: Any, other: str) -> FileFormatError:
        return FileFormatError(
            self._op,
            f"{entry!r} is {value!r} in {CONFIG_FILE}, and {other} in {TOKENIZER}",
            hint="Libraries differ in which of the two counts. Change one of them.",
        )

    # ------------------------------------------------------------------ checks
    def check(self) -> None:
        """Compares what both files say.

        Raises:
            FileFormatError: They contradict each other.
        """
        self._check_words()
        self._check_spaces()
        self._check_template()

    def _check_words(self) -> None:
        entries = self._entries
        kind, kind_needed = entries["kind"], _MODELS.get(entries["kind"])
        if kind_needed is not None and self._model.get("type") != kind_needed:
            says = f"the model is of type {self._model.get('type')!r}"
            raise self._refuse("tokenizer_class", kind, says)
        unknown = self._unknown()
        if entries["unk"] and unknown not in (None, entries["unk"]["content"]):
            raise self._refuse("unk_token", entries["unk"]["content"], repr(unknown))
        own = self._model.get("continuing_subword_prefix")
        if entries["prefix"] is not None and own not in (None, entries["prefix"]):
            raise self._refuse("wordpieces_prefix", entries["prefix"], repr(own))
        bert = self._bert()
        if self._is(_BERT):
            if bert is None:
                raise self._refuse(
                    "tokenizer_class", kind, "there is no BertNormalizer"
                )
            return  # the entries count
        for key, field, name in _OF_BERT:
            value, own = entries[key], (bert or {}).get(field)
            if bert is None:
                steps = steps_of(self._described, "normalizer", "normalizers")
                lower = any(step.get("type") == "Lowercase" for step in steps)
                own = lower if key == "lowercase" else value
            if value is not None and value != own:
                raise self._refuse(name, value, repr(own))

    def _unknown(self) -> Any:
        """The token of what no other is for."""
        vocabulary, number = self._model.get("vocab"), self._model.get("unk_id")
        if isinstance(vocabulary, list) and isinstance(number, int):
            pair = vocabulary[number] if 0 <= number < len(vocabulary) else None
            return pair[0] if isinstance(pair, list) and pair else None
        return self._model.get("unk_token")

    def _bert(self) -> dict[str, Any] | None:
        """The normalizer of BERT's kind."""
        normalizer = self._described.get("normalizer")
        own = (
            isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
        )
        return normalizer if own else None

    def _check_spaces(self) -> None:
        """Tells whether a text begins with a space, which decides its first token."""
        value, legacy = self._entries["prefix_space"], self._entries["legacy"]
        if value is None and self._is(_GPT2):
            value = False
        own: bool | None = None
        for step in steps_of(self._described, "pre_tokenizer", "pretokenizers"):
            if step.get("type") == "ByteLevel":
                own = own or bool(step.get("add_prefix_space", True))
            if step.get("type") == "Metaspace":
                scheme = step.get("prepend_scheme", "always")
                own = own or scheme != "never"
                expected = {True: "always", False: "first"}.get(legacy)
                if self._is(_LLAMA) and own and expected not in (None, scheme):
                    raise self._refuse("legacy", legacy, f"spaces come {scheme!r}")
        for step in steps_of(self._described, "normalizer", "normalizers"):
            own = own or step.get("type") == "Prepend"
        if value is not None and value != bool(own):
            says = "a text begins with a space" if own else "none begins with a space"
            raise self._refuse("add_prefix_space", value, says)

    def _check_template(self) -> None:
        """Which tokens begin and end a text."""
        first, last = self._ends()
        for entry, name, own in (("add_bos", "bos", first), ("add_eos", "eos", last)):
            value, token = self._entries[entry], self._entries[name]
            content = token["content"] if token else None
            adds = own is not None and own == content
            if value is not None and value != adds:
                says = f"the text {'begins' if name == 'bos' else 'ends'} with {own!r}"
                raise self._refuse(f"{entry}_token", value, says if own else "none is")
        if self._is(_BERT):
            for name, own in (("cls", first), ("sep", last)):
                token = self._entries[name]
                content = token["content"] if token else f"[{name.upper()}]"
                if own != content:
                    raise self._refuse(f"{name}_token", content, repr(own))

    def _ends(self) -> tuple[str | None, str | None]:
        """The special tokens that a template has in front of a text and behind it."""
        first = last = None
        for step in steps_of(self._described, "post_processor", "processors"):
            if step.get("type") in ("BertProcessing", "RobertaProcessing"):
                pairs = [step.get(name) for name in ("cls", "sep")]
                first, last = (
                    p[0] if isinstance(p, list) and p else None for p in pairs
                )
            parts = step.get("single")
            if step.get("type") == "TemplateProcessing" and isinstance(parts, list):
                names = [
                    _object(_object(p).get("SpecialToken")).get("id") for p in parts
                ]
                first, last = (names[0], names[-1]) if names else (None, None)
        return first, last

    # ------------------------------------------------------------------ changes
    def set_normalizer(self) -> bool:
        """Has BERT's normalizer do what the entries say, or their defaults.

        Returns:
            Whether it does something else than before.
        """
        bert = self._bert()
        if bert is None or not self._is(_BERT):
            return False
        entries = self._entries
        fields = {field: entries[key] for key, field, _ in _OF_BERT}
        for field in ("lowercase", "handle_chinese_chars", "clean_text"):
            fields[field] = True if fields[field] is None else fields[field]
        changed = any(bert.get(field) != value for field, value in fields.items())
        bert |= fields
        return changed

    def add_tokens(self) -> bool:
        """Adds the tokens that the other files name.

        Returns:
            Whether there was something to add or to change.

        Raises:
            FileFormatError: A token has another number.
        """
        own, vocabulary = self._own_tokens(), self._vocabulary()
        numbers = _Numbers(own, vocabulary)
        changed = False
        for number, token in self._entries["added"]:
            content = token["content"]
            old = own.get(content)
            place = numbers.of(content)
            if old is None or any(old.get(flag) != token[flag] for flag in _FLAGS):
                own[content], changed = {"id": place, **token}, True
            if place != number:
                entry = f"added_tokens_decoder.{number}"
                raise self._refuse(entry, content, f"that is token {place}")
        names, forms = {*own}, set()
        for token in _special_tokens(self._entries):  # the last one of a name counts
            content, form = token["content"], tuple(token.items())
            if content not in names and form not in forms:
                forms.add(form)
                own[content], changed = {"id": numbers.of(content), **token}, True
        if changed:
            ordered = sorted(own.values(), key=lambda token: token["id"])
            self._described["added_tokens"] = ordered
        return changed

    def _own_tokens(self) -> dict[str, dict[str, Any]]:
        """The tokens that the description itself adds.

        Raises:
            FileFormatError: It is damaged.
        """
        tokens = self._described.get("added_tokens") or []
        own = {}
        for token in tokens if isinstance(tokens, list) else [None]:
            content = token.get("content") if isinstance(token, dict) else None
            number = token.get("id") if isinstance(token, dict) else None
            if not isinstance(content, str) or type(number) is not int:
                raise FileFormatError(
                    self._op, f"'added_tokens' in {TOKENIZER} must be a list of tokens"
                )
            own[content] = token
        return own

    def _vocabulary(self) -> dict[str, int]:
        """Tokens of the model and their numbers."""
        vocabulary = self._model.get("vocab")
        if isinstance(vocabulary, dict):
            return {t: n for t, n in vocabulary.items() if isinstance(n, int)}
        pairs = vocabulary if isinstance(vocabulary, list) else []
        return {
            pair[0]: number
            for number, pair in enumerate(pairs)
            if isinstance(pair, list) and pair and isinstance(pair[0], str)
        }

    # ------------------------------------------------------------------ settings
    def settings(self) -> TokenizerSettings:
        """The settings that the files have beside the description."""
        entries = self._entries
        padding = _object(self._described.get("padding"))
        cutting = _object(self._described.get("truncation"))
        bpe = self._model.get("type") == "BPE" and not entries["clean_up_all"]
        template = entries["template"]
        return TokenizerSettings(
            end=entries["eos"]["content"] if entries["eos"] else None,
            pad=entries["pad"]["content"] if entries["pad"] else None,
            max_length=entries["max_length"] or entries["old_length"],
            padding_side=entries["padding_side"]
            or ("left" if self._is(_LLAMA) and not padding else _side(padding)),
            truncation_side=entries["truncation_side"] or _side(cutting),
            type_ids=entries["type_ids"] is not False,
            # It was made for BERT's words; of byte pairs it would take spaces away.
            clean_up_spaces=entries["clean_up"] and not bpe,
            chat_template=template,
            template_tokens=self.named_tokens() if template else {},
        )

    def named_tokens(self) -> dict[str, str]:
        """Tokens by the names that templates of chats have for them."""
        entries = self._entries
        return {f"{n}_token": entries[n]["content"] for n in _NAMED if entries[n]}


# Entries of BERT's normalizer: the argument, the field, the name in the file.
_OF_BERT = (
    ("lowercase", "lowercase", "do_lower_case"),
    ("strip_accents", "strip_accents", "strip_accents"),
    ("chinese_chars", "handle_chinese_chars", "tokenize_chinese_chars"),
    ("clean_text", "clean_text", "clean_text"),
)


def entries_of(
    settings: TokenizerSettings, end: str | None, special: Collection[str]
) -> dict[str, Any]:
    """The settings of a ``tokenizer_config.json`` beside a ``tokenizer.json``.

    Args:
        settings: What no ``tokenizer.json`` says.
        end: The token that ends a text.
        special: The tokens that texts are cut at first. Only these are told: another
            one would become one of them, and be found within words.
    """
    names = ["input_ids", "attention_mask"]
    if settings.type_ids:
        names.insert(1, "token_type_ids")
    tokens = {n: t for n, t in settings.template_tokens.items() if t in special}
    template: Any = settings.chat_template
    if isinstance(template, Mapping):
        pairs = [{"name": name, "template": text} for name, text in template.items()]
        tokens = {**tokens, "chat_template": pairs}
    entries = {
        **tokens,
        "clean_up_tokenization_spaces": settings.clean_up_spaces,
        "eos_token": end if end in special else None,
        "model_input_names": names,
        "model_max_length": settings.max_length,
        "pad_token": settings.pad if settings.pad in special else None,
        "padding_side": settings.padding_side,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "truncation_side": settings.truncation_side,
    }
    return {key: value for key, value in entries.items() if value is not None}


def _object(value: Any) -> dict[str, Any]:
    """The value, if it is an object of JSON; else an empty one."""
    return value if isinstance(value, dict) else {}


def _side(about: Mapping[str, Any]) -> str:
    return "left" if about.get("direction") == "Left" else "right"
