"""The results of commands: text for people, or one object of JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exburn.core.printing import print_text
from exburn.errors import ExBurnError


def add_json(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Declares ``--json``."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one object of JSON instead of text",
        **options,
    )


def whole(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number of at least so much."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} on, received {text!r}"
            )
        return value

    return number


def above_zero(text: str) -> float:
    """The type of an argument that is a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, received {text!r}")
    return value


def show(options: argparse.Namespace, result: Any, text: Any) -> None:
    """Prints a result, as the command line asks for it.

    Args:
        result: The result as JSON values; numbers that are not finite become text.
    """
    if options.json:
        json.dump(plain(result), sys.stdout, allow_nan=False)
        print()
    else:
        print_text(text)


def show_error(options: argparse.Namespace, error: BaseException) -> None:
    """Prints an error on the standard error, and as JSON where that was asked for."""
    if getattr(options, "json", False):
        facts: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
        if isinstance(error, ExBurnError):
            facts |= {"reason": error.reason, "hint": error.hint}
        show(options, facts, "")
    said = str(error)
    command = options.command or ""
    for op in (command.partition(" ")[0], "exburn"):  # once is enough
        said = said.removeprefix(f"{op}: ")
    print_text(f"{f'exburn {command}'.strip()}: {said}", file=sys.stderr)


def plain(value: Any) -> Any:
    """A value as JSON has it; numbers that are not finite become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    as_list = getattr(value, "tolist", None)
    return str(value) if as_list is None else plain(as_list())
