"""The command ``exburn``: which commands there are, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import exburn
from exburn.command_line import (
    bench,
    completion,
    convert,
    dashboard,
    doctor,
    info,
    predict,
    report,
    runs,
    serve,
    verify,
)
from exburn.command_line.output import add_json, show_error
from exburn.errors import ArgumentError, ExBurnError, printable, unknown_name

# A module each, whose docstring describes the command: add_arguments(parser) declares
# what it takes, run(options) does it, and returns the exit code if that is not 0.
COMMANDS: dict[str, Any] = {
    "doctor": doctor,
    "info": info,
    "convert": convert,
    "serve": serve,
    "predict": predict,
    "bench": bench,
    "runs": runs,
    "dashboard": dashboard,
    "report": report,
    "verify": verify,
    "completion": completion,
}

_ENDS = """exit codes: 0 done, 1 something is wrong (an error's message is on the
standard error, with --json on the standard output, too), 2 a wrong command line,
130 stopped by Ctrl-C"""


class _WrongLine(Exception):
    """A command line that a parser refuses."""

    def __init__(self, parser: argparse.ArgumentParser, message: str):
        super().__init__(message)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """argparse's, whose errors ``main`` tells as text or JSON; so are its parts'."""

    def error(self, message: str) -> NoReturn:
        """Raises, where argparse would print and end the process."""
        raise _WrongLine(self, message)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="exburn",
        description="Models and runs from the command line.",
        epilog=_ENDS,
    )
    add_json(parser)
    parser.add_argument(
        "--version", action="version", version=f"exburn {exburn.__version__}"
    )
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name, command in COMMANDS.items():
        first, _, rest = command.__doc__.partition("\n\n")
        own = commands.add_parser(
            name,
            help=first[0].lower() + first[1:].rstrip("."),
            description=first,
            epilog=rest,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_json(own, default=argparse.SUPPRESS)  # it may stand before the command
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: Of the command line; the process' own by default.

    Returns:
        The exit code: 0 done, 1 an error, 130 stopped by Ctrl-C.

    Raises:
        SystemExit: 2 for a wrong command line, 0 after ``--help`` and ``--version``.
        Exception: A fault of a command's own, which with ``--json`` is also told as
            JSON.

    Example:
        >>> main(["serve", "no-such-file.exburn"])
        1
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = make_parser().parse_args(words)
    except _WrongLine as wrong:
        _refuse(wrong, words)
    run: Callable[[argparse.Namespace], int | None] = options.run
    try:
        return run(options) or 0
    except (ExBurnError, OSError) as error:
        show_error(options, error)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if options.json:
            show_error(options, error)
        raise


def _refuse(wrong: _WrongLine, words: Sequence[str]) -> NoReturn:
    """Tells why a command line is wrong, and ends with 2.

    No options have been read: ``--json`` is looked for among the words.
    """
    command = wrong.parser.prog.removeprefix("exburn").strip() or None
    # argparse takes the beginning of an option's name for the option.
    as_json = any(w.startswith("--j") and "--json".startswith(w) for w in words)
    options = argparse.Namespace(command=command, json=as_json)
    wrong.parser.print_usage(sys.stderr)
    show_error(options, _error_of(wrong, words))
    raise SystemExit(2)


def _error_of(wrong: _WrongLine, words: Sequence[str]) -> ExBurnError:
    """The error for a wrong command line; commands are named with their likes."""
    first = next((word for word in words if not word.startswith("-")), None)
    if wrong.parser.prog == "exburn" and first not in (None, *COMMANDS):
        return unknown_name("command", first, COMMANDS, op="exburn")
    return ArgumentError(
        wrong.parser.prog.removeprefix("exburn ").split()[0],
        printable(str(wrong)),
        hint=f"{wrong.parser.prog} --help",
    )
