"""How texts become rows of a batch, which no ``tokenizer.json`` says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

from exburn.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_text,
    check_unicode,
)
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods

_OP, _SIDES = "TokenizerSettings", ("right", "left")


class TextSettings:
    """Base of dataclasses of settings, which files hold as those that are not usual."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """Those of a mapping, as ``get_config`` gives it; of ``None`` the usual ones.

        Raises:
            ArgumentError, DataError: It is something else, or a value does not fit.
        """
        if isinstance(value, cls):
            return value
        names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        mapping = {} if value is None else value
        if not isinstance(mapping, Mapping) or not names.issuperset(mapping):
            raise ArgumentError(
                cls.__name__,
                f"it is a mapping of {', '.join(sorted(names))}, received {value!r}",
            )
        return cls(**mapping)

    def get_config(self) -> dict[str, Any]:
        """The settings that are not the default, JSON-able."""
        return {
            field.name: _plain(value)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, field.name)) != field.default and value != {}
        }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


@guard_methods
@dataclasses.dataclass(frozen=True)
class TokenizerSettings(TextSettings):
    """The settings that a folder has beside its ``tokenizer.json``.

    Args:
        end: The token that ends a text, where the user names none.
        pad: The token that fills rows up.
        max_length: Tokens that a text of the model may have; ``None`` for any number.
        padding_side: Where rows are filled up: ``"right"`` or ``"left"``.
        truncation_side: Where texts are cut: ``"right"`` or ``"left"``.
        type_ids: Whether the template's numbers of the parts of a text are used; they
            are 0 otherwise.
        clean_up_spaces: Whether spaces in front of punctuation are left out of texts
            that are made of tokens.
        chat_template: The template that makes a text of a chat, as
            ``exburn.text.ChatTemplate`` runs it; or several of them by their names.
        template_tokens: What templates know of tokens, as ``bos_token``.

    Raises:
        ArgumentError, DataError: A value does not fit.

    Example:
        >>> TokenizerSettings(pad="[PAD]").get_config()
        {'pad': '[PAD]'}
    """

    end: str | None = None
    pad: str | None = None
    max_length: int | None = None
    padding_side: str = "right"
    truncation_side: str = "right"
    type_ids: bool = True
    clean_up_spaces: bool = False
    chat_template: str | Mapping[str, str] | None = None
    template_tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for token in (self.end, self.pad):
            if token is not None:
                check_unicode(_OP, token)
        if self.max_length is not None:
            check_count(_OP, "max_length", self.max_length)
        check_choice(_OP, "padding_side", self.padding_side, _SIDES)
        check_choice(_OP, "truncation_side", self.truncation_side, _SIDES)
        check_flag(_OP, "type_ids", self.type_ids)
        check_flag(_OP, "clean_up_spaces", self.clean_up_spaces)
        for name in ("chat_template", "template_tokens"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                parts = {check_text(_OP, name, key): value[key] for key in value}
                object.__setattr__(self, name, Texts(parts))
            elif value is not None or name == "template_tokens":
                check_unicode(_OP, value)


class Texts(dict[str, str]):
    """Texts by their names, which are compared and hashed as they are.

    Raises:
        ArgumentError, DataError: A value is no text.
    """

    def __init__(self, parts: Mapping[str, Any]):
        super().__init__({name: check_unicode(_OP, parts[name]) for name in parts})

    def __hash__(self):  # type: ignore[override]
        return hash(frozenset(self.items()))


# In this order: what one makes may be what another looks for.
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


_CUT = re.compile(r"[^ '] (?=[^'])", re.DOTALL)


def clean_text(text: str) -> str:
    """Leaves out spaces in front of punctuation, as ``transformers`` does.

    Example:
        >>> clean_text("it 's so , is n't it ?")
        "it's so, isn't it?"
    """
    for old, new in _CLEANED:
        text = text.replace(old, new)
    return text


def clean_part(text: str) -> tuple[str, str]:
    """Cleans up what no text behind it can change.

    Args:
        text: A text that is not at its end.

    Returns:
        The clean part, and the rest as it is.

    Example:
        >>> clean_part("it is n't so")
        ("it isn't", ' so')
    """
    # What is looked for begins with a space, and only " ' " has another one; which may
    # also leave a "n't" whose letters were on both sides.
    cut = max((part.end() - 1 for part in _CUT.finditer(text)), default=0)
    return clean_text(text[:cut]), text[cut:]
