"""Texts as numbers, and back: a tokenizer of the package ``tokenizers``.

A tokenizer is the text of a ``tokenizer.json``, which is read when it is first used: so
a model's file with a tokenizer loads without the package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_unicode
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    FileFormatError,
    require,
)
from exburn.errors.boundary import guard_methods
from exburn.runtime.files.atomic import write_atomically
from exburn.runtime.files.ordinary import read_text
from exburn.runtime.files.together import changing, finish_changes
from exburn.saving.json_text import MAX_VALUES, parse_json
from exburn.text.chat_template import ChatTemplate
from exburn.text.description import check_description
from exburn.text.folder import (
    CONFIG_FILE,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_FILES,
    entries_of,
    read_description,
    replace_template,
)
from exburn.text.settings import TokenizerSettings, clean_text

_LARGEST = 64 << 20  # bytes of a file
_LAST_TOKEN = 2**32 - 1  # the package's numbers have 32 bits
_HEXADECIMAL = "0123456789abcdefABCDEF"
# What the token that ends a text is called, in the order in which it is looked for.
_ENDS = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eot_id|>", "[EOS]")


@guard_methods
class Tokenizer:
    """Turns texts into token numbers and back.

    Args:
        text: The content of a ``tokenizer.json``.
        end: The token that ends a text; that of the settings if ``None``, or else found
            by its usual names.
        settings: What no ``tokenizer.json`` says, as a mapping of the arguments of
            ``exburn.text.TokenizerSettings``, or one of these.

    Raises:
        ArgumentError, DataError: One of them is no text, or a setting does not fit.
        FileFormatError: It is no JSON object.

    Example:
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> tokenizer.decode(tokenizer.encode("it was so"))
        'it was so'

    Source: Sennrich et al., *Neural Machine Translation of Rare Words with Subword
    Units*, 2016.
    """

    def __init__(self, text: str, end: str | None = None, settings: Any = None):
        self._text, self._made = check_unicode("Tokenizer", text), None
        self._growth = check_description(_parse_object(self._text))
        self._end = None if end is None else check_unicode("Tokenizer", end)
        self._settings = TokenizerSettings.of(settings)
        self._files: dict[str, str] = {}  # of the folder that it comes from
        self._named: dict[str, str] = {}  # tokens, as templates name them

    # ------------------------------------------------------------------ making
    @classmethod
    def train(
        cls,
        texts: str | Iterable[str],
        vocabulary_size: int,
        *,
        end: str = "<|endoftext|>",
        special: Sequence[str] = (),
        min_frequency: int = 2,
    ) -> Tokenizer:
        """Learns byte pairs from texts, as GPT-2's were: any text can be encoded.

        Args:
            texts: A text or an iterable of them.
            vocabulary_size: Number of tokens at most; at least 256 and the special
                ones.
            end: The token that ends a text.
            special: More tokens that no text is cut into.
            min_frequency: How often a pair has to come to be one token.

        Raises:
            ArgumentError: The size is too small, or something is no text.
            DataError: A text is no Unicode text.
            MissingDependencyError: ``tokenizers`` is not installed.
        """
        package = _package()
        op = "Tokenizer.train"
        tokens = list(
            dict.fromkeys(check_unicode(op, token) for token in [end, *special])
        )
        size = check_count(op, "vocabulary_size", vocabulary_size, 256 + len(tokens))
        check_count(op, "min_frequency", min_frequency)
        engine = package.Tokenizer(package.models.BPE())
        engine.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=tokens,
            min_frequency=min_frequency,
            show_progress=False,
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        )
        lines = [texts] if isinstance(texts, str) else texts
        if not isinstance(lines, Iterable):
            raise ArgumentError(
                op, f"texts must be texts, received {type(texts).__name__}"
            )
        engine.train_from_iterator((check_unicode(op, line) for line in lines), trainer)
        return cls(engine.to_str(), end)

    @classmethod
    def load(
        cls, path: str | os.PathLike, end: str | None = None, *, lazy: bool = False
    ) -> Tokenizer:
        """Reads a ``tokenizer.json``, or all files that a folder has of a tokenizer.

        ``tokenizer_config.json``, and of older folders ``special_tokens_map.json`` and
        ``added_tokens.json``, add tokens, and say which one ends a text and which fills
        rows up. An entry that is not honoured is an error that names it.

        Args:
            path: The file, which is read alone, or the folder.
            end: The token that ends a text; found by its usual names if ``None``.
            lazy: Whether the package reads the text when it is first used.

        Raises:
            MissingFileError: There is none.
            FileFormatError: It is too large, or no tokenizer; or a file of the folder
                has an entry that is not honoured.
            MissingDependencyError: ``tokenizers`` is not installed.
        """
        path, op = Path(path).expanduser(), "Tokenizer.load"
        if path.is_dir():
            finish_changes(path, op)
            text = read_text(path / TOKENIZER, op, _LARGEST)
            description = read_description(path, text, _parse_object(text), op)
            result = cls(description.text, end, description.settings)
            result._files = dict(description.files)
            result._named = dict(description.named)
        else:
            result = cls(read_text(path, op, _LARGEST), end)
        if not lazy:
            result._tokens()
        return result

    def save(self, path: str | os.PathLike) -> None:
        """Writes a ``tokenizer.json``, or all files of a tokenizer into a folder.

        What was there before survives any failure.

        Args:
            path: The file, which does not say the settings; or the folder.

        Raises:
            SaveError: The disk is full, or writing is not permitted.
        """
        path, op = Path(path).expanduser(), "Tokenizer.save"
        if not path.is_dir():
            data = self._text.encode()
            write_atomically(path, lambda file: file.write(data), op=op)
            return
        files = self.files()
        with changing(path, op=op) as changes:
            for name, text in files.items():
                changes.write(name, text.encode())
            for name in TOKENIZER_FILES:
                if name not in files:  # it is of another tokenizer
                    changes.remove(name)

    def files(self) -> dict[str, str]:
        """The texts of the files of a folder, by their names.

        They are those of the folder that it comes from. A token that ends texts or
        fills rows up is told if it is one of those that texts are cut at first.

        Example:
            >>> list(Tokenizer.train(["so it is"] * 9, 260).files())
            ['tokenizer.json', 'tokenizer_config.json']
        """
        if self._files:
            return dict(self._files)
        extra = _parse_object(self._text).get("added_tokens")
        tokens = extra if isinstance(extra, list) else []
        special = {str(t.get("content")) for t in tokens if isinstance(t, dict)}
        end = self._end or self._settings.end
        entries = entries_of(self._settings, end, special)
        config = json.dumps(entries, indent=2, sort_keys=True) + "\n"
        template = self._settings.chat_template
        more = {TEMPLATE: template} if isinstance(template, str) else {}
        return {TOKENIZER: self._text, CONFIG_FILE: config, **more}

    def to_json(self) -> str:
        """The content of its file."""
        return self._text

    def state_dict(self) -> dict[str, Any]:
        """What makes an equal one: JSON-able."""
        settings = self._settings.get_config()
        more = {"settings": settings} if settings else {}
        return {"text": self._text, "end": self._end, **more}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Tokenizer:
        """The inverse of ``state_dict``.

        Raises:
            FileFormatError: It is no such state.
        """
        text, end = state.get("text"), state.get("end")
        if not isinstance(text, str) or not isinstance(end, str | None):
            raise FileFormatError("Tokenizer", "it is no state of a tokenizer")
        try:
            return cls(text, end, TokenizerSettings.of(state.get("settings", {})))
        except (ArgumentError, DataError) as error:
            raise FileFormatError("Tokenizer", error.reason, error.details) from None

    # ------------------------------------------------------------------ chats
    @property
    def chat_template(self) -> ChatTemplate | None:
        """What makes a text of a chat, or ``None``."""
        settings = self._settings
        if settings.chat_template is None:
            return None
        return ChatTemplate(settings.chat_template, settings.template_tokens)

    def with_chat_template(
        self,
        template: str | Mapping[str, str] | None,
        tokens: Mapping[str, str] | None = None,
    ) -> Tokenizer:
        """This tokenizer with another template of chats.

        Args:
            template: As of ``exburn.text.ChatTemplate``; ``None`` for none.
            tokens: What the template knows of tokens, as ``bos_token``; those of the
                folder, or else ``eos_token`` and ``pad_token``, if ``None``.

        Raises:
            ArgumentError, DataError: It is no text.

        Example:
            >>> from exburn.text import CHATML
            >>> special = ["<|im_start|>", "<|im_end|>"]
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 270, special=special)
            >>> tokenizer = tokenizer.with_chat_template(CHATML)
            >>> tokenizer.chat_template.render([{"role": "user", "content": "so"}])
            '<|im_start|>user\\nso<|im_end|>\\n'
        """
        settings = self._settings
        if tokens is None:
            named = {"eos_token": self.end, "pad_token": settings.pad}
            named = {name: token for name, token in named.items() if token}
            tokens = settings.template_tokens or self._named or named
        settings = dataclasses.replace(
            settings,
            chat_template=template,
            template_tokens=tokens if template is not None else {},
        )
        result = Tokenizer(self._text, self._end, settings)
        result._named = self._named
        if self._files:
            result._files = replace_template(self._files, settings.chat_template)
        return result

    # ------------------------------------------------------------------ using
    def encode(self, text: Any, *, special: bool = True) -> Any:
        """Token numbers: an array for a text, a list of them for several.

        Args:
            text: A text or a sequence of them.
            special: Whether tokens that begin or end texts are added, where the
                tokenizer has a rule for them.

        Raises:
            ArgumentError: It is no text.
            DataError: It is no Unicode text: it has a lone surrogate.
            FileFormatError: The tokenizer's file is damaged.
            MissingDependencyError: ``tokenizers`` is not installed.
        """
        engine, op = self._tokens(), "Tokenizer.encode"
        if isinstance(text, str):
            line = check_unicode(op, text)
            self._growth.check_text(line, engine.normalizer, op)
            with _failures(op):
                result = engine.encode(line, add_special_tokens=special)
            return np.array(result.ids, np.int32)
        if not isinstance(text, list | tuple):
            check_unicode(op, text)
        lines = [check_unicode(op, line) for line in text]
        for line in lines:
            self._growth.check_text(line, engine.normalizer, op)
        with _failures(op):
            result = engine.encode_batch(lines, add_special_tokens=special)
        return [np.array(one.ids, np.int32) for one in result]

    def encode_with_offsets(
        self, texts: Sequence[str], *, special: bool = False
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Token numbers of texts, and which characters each of them is made of.

        Args:
            texts: Texts.
            special: As of `encode`.

        Shape:
            each result: [tokens], [tokens, 2]

        Returns:
            For each text its tokens, and the first character of each and the one behind
            its last; both are the same of tokens that no character is made into.

        Raises: as of `encode`.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 270)
            >>> [(tokens, offsets)] = tokenizer.encode_with_offsets(["so is"])
            >>> offsets.tolist()
            [[0, 2], [2, 5]]
        """
        engine, op = self._tokens(), "Tokenizer.encode"
        lines = [check_unicode(op, line) for line in texts]
        for line in lines:
            self._growth.check_text(line, engine.normalizer, op)
        with _failures(op):
            rows = engine.encode_batch(lines, add_special_tokens=special)
            parts = [(row.ids, row.offsets) for row in rows]
        return [
            (np.array(ids, np.int32), np.array(places, np.int32).reshape(-1, 2))
            for ids, places in parts
        ]

    def decode(
        self, tokens: Any, *, special: bool = False, clean_up: bool | None = None
    ) -> Any:
        """The text of token numbers; a list of texts for several rows.

        Args:
            tokens: Integers, or a sequence of rows of them.
            special: Whether special tokens are written, too.
            clean_up: Whether spaces in front of punctuation are left out; as the
                settings say if ``None``.

        Raises:
            ArgumentError: It is a single number.
            DTypeError: They are no integers.
            DataError: A number is negative, or too large for any token.
        """
        if isinstance(tokens, list | tuple) and any(np.ndim(t) for t in tokens):
            return [
                self.decode(row, special=special, clean_up=clean_up) for row in tokens
            ]
        ids = np.asarray(tokens)
        if ids.size and ids.dtype.kind not in "iu":
            raise DTypeError(
                "Tokenizer.decode", f"integers are needed, received {ids.dtype}"
            )
        if not ids.ndim:
            raise ArgumentError(
                "Tokenizer.decode",
                f"a sequence of token numbers is needed, received {tokens!r}",
                hint="[number] for a single one.",
            )
        if ids.ndim >= 2:
            return [self.decode(row, special=special, clean_up=clean_up) for row in ids]
        for number in (ids.min(), ids.max()) if ids.size else ():
            if not 0 <= number <= _LAST_TOKEN:
                raise DataError(
                    "Tokenizer.decode",
                    f"token numbers are from 0 to {_LAST_TOKEN}, received {number}",
                )
        text = self.decode_row(ids.tolist(), special=special)
        cleans = self._settings.clean_up_spaces if clean_up is None else clean_up
        return clean_text(text) if cleans else text

    def decode_row(self, numbers: list[int], *, special: bool = False) -> str:
        """As ``decode``, of one row of checked numbers: for each token of a stream.

        Spaces are those that the decoder makes.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
            >>> tokenizer.decode_row(tokenizer.encode("so").tolist())
            'so'
        """
        engine, op = self._tokens(), "Tokenizer.decode"
        self._growth.check_tokens(numbers, engine.id_to_token, op)
        try:  # a context manager would take a quarter as long as the call
            return engine.decode(numbers, skip_special_tokens=not special)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise _failure(op, error) from error

    def batch(
        self, texts: Sequence[str], *, max_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Rows of one length, as the settings say: where they are filled up, and cut.

        Args:
            texts: Texts.
            max_length: Tokens that a row may have; longer texts are cut, and keep the
                tokens that begin and end them. ``None`` cuts nothing.

        Shape:
            each array: [texts, tokens]

        Returns:
            ``input_ids``, ``attention_mask`` (0 where a row is filled up) and
            ``token_type_ids``, the parts of the text.

        Raises:
            ArgumentError: ``max_length`` is less than what the template adds, or
                something is no text.
            DataError: A text is no Unicode text.
            FileFormatError: The tokenizer's file is damaged.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
            >>> tokenizer.batch(["so", "it"], max_length=1)["attention_mask"].tolist()
            [[1], [1]]
        """
        engine, op, settings = self._tokens(), "Tokenizer.batch", self._settings
        lines = [check_unicode(op, line) for line in texts]
        for line in lines:
            self._growth.check_text(line, engine.normalizer, op)
        room = None
        if max_length is not None:
            extra = engine.num_special_tokens_to_add(False)
            room = check_count(op, "max_length", max_length, max(extra, 1)) - extra
        with _failures(op):
            rows = engine.encode_batch(lines, add_special_tokens=False)
            for row in rows:
                if room is not None and len(row.ids) > room:
                    row.truncate(room, direction=settings.truncation_side)
            rows = [engine.post_process(row, None, True) for row in rows]
        width = max((len(row.ids) for row in rows), default=0)
        ids = np.full((len(rows), width), self._pad_number, np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        left = settings.padding_side == "left"
        for number, row in enumerate(rows):
            size = len(row.ids)
            place = slice(width - size, width) if left else slice(size)
            ids[number, place], mask[number, place] = row.ids, 1
            if settings.type_ids:
                types[number, place] = row.type_ids
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    @property
    def settings(self) -> TokenizerSettings:
        """The settings that no ``tokenizer.json`` has."""
        return self._settings

    @property
    def _pad_number(self) -> int:
        return self.number_of(self._settings.pad or "[PAD]") or 0

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens, special ones included."""
        return self._tokens().get_vocab_size()

    def number_of(self, token: str) -> int | None:
        """The number of a token, or ``None`` if there is no such token.

        Raises:
            ArgumentError, DataError: It is no text.
        """
        return self._tokens().token_to_id(check_unicode("Tokenizer.number_of", token))

    def token_of(self, number: int) -> str | None:
        """The token of a number, or ``None`` if there is no such token.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
            >>> tokenizer.token_of(tokenizer.number_of("<|endoftext|>"))
            '<|endoftext|>'
        """
        number = check_count("Tokenizer.token_of", "number", number, 0)
        return self._tokens().id_to_token(number) if number <= _LAST_TOKEN else None

    @functools.cached_property
    def special_numbers(self) -> frozenset[int]:
        """The numbers of the tokens that texts are written without.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
            >>> tokenizer.special_numbers == {tokenizer.number_of("<|endoftext|>")}
            True
        """
        tokens = self._tokens().get_added_tokens_decoder()
        return frozenset(n for n, token in tokens.items() if token.special)

    @functools.cached_property
    def byte_numbers(self) -> frozenset[int]:
        """The numbers of tokens of one byte each, ``<0x0A>``, of SentencePiece's kind.

        Example:
            >>> Tokenizer.train(["so it is"] * 9, 260).byte_numbers
            frozenset()
        """
        digits = itertools.product(_HEXADECIMAL, repeat=2)
        numbers = map(self.number_of, (f"<0x{a}{b}>" for a, b in digits))
        return frozenset(number for number in numbers if number is not None)

    def is_special(self, token: str) -> bool:
        """Whether there is such a token, and texts are written without it.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
            >>> tokenizer.is_special("<|endoftext|>"), tokenizer.is_special("s")
            (True, False)
        """
        tokens = self._tokens().get_added_tokens_decoder().values()
        return any(one.special and one.content == token for one in tokens)

    @property
    def end(self) -> str | None:
        """The token that ends a text, or ``None``."""
        own = self._end or self._settings.end
        names = _ENDS if own is None else (own,)
        return next((name for name in names if self.number_of(name) is not None), None)

    @property
    def begin(self) -> str | None:
        """The token that begins a text, as its folder names it, or ``None``."""
        named = self._settings.template_tokens or self._named
        name = named.get("bos_token")
        return name if name and self.number_of(name) is not None else None

    def _tokens(self) -> Any:
        """The package's tokenizer, which neither fills up nor cuts."""
        if self._made is None:
            self._made = _parse(_package(), self._text)
        return self._made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (
            (self._text, self._end, self._settings)
            == (other._text, other._end, other._settings)
        )

    def __hash__(self) -> int:
        return hash((self._text, self._end, self._settings))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None}

    def __repr__(self) -> str:
        return f"Tokenizer({len(self._text)} bytes, end={self._end!r})"


@contextlib.contextmanager
def _failures(op: str) -> Iterator[None]:
    """What the package says of a tokenizer that was read but does not work.

    Raises:
        FileFormatError: It failed.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        raise _failure(op, error) from error


def _failure(op: str, cause: BaseException) -> FileFormatError:
    return FileFormatError(
        op,
        "the tokenizer does not work",
        {"cause": cause},
        hint="Take another copy of its file.",
    )


def _package() -> Any:
    return require(
        "tokenizers", "Tokenizer", "texts are cut by `tokenizers`", extra="text"
    )


def _parse_object(text: str) -> dict[str, Any]:
    """The JSON object that the text is."""
    most = MAX_VALUES + len(text) // 5  # a token may have no more than its comma
    value = parse_json(text, "Tokenizer", TOKENIZER, "the tokenizer's file", most=most)
    if not isinstance(value, dict) or "model" not in value:
        raise FileFormatError("Tokenizer", "it is no JSON object with a model")
    return value


def _parse(package: Any, text: str) -> Any:
    try:
        engine = package.Tokenizer.from_str(text)
        engine.no_padding()
        engine.no_truncation()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        cause = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise FileFormatError(
            "Tokenizer",
            "the file describes no tokenizer that the package `tokenizers` knows",
            {"cause": cause},
        ) from None
    return engine
