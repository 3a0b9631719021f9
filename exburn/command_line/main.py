"""The command ``exburn``: which commands there are, and how they end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import exburn
from exburn.command_line import (
    bench,
    completion,
    convert,
    dashboard,
    doctor,
    info,
    report,
    runs,
    serve,
    verify,
)
from exburn.command_line.output import add_json, show_error
from exburn.errors import ExBurnError

__all__ = ["COMMANDS", "main", "make_parser"]

# A module each, whose docstring describes the command: add_arguments(parser) declares
# what it takes, run(options) does it, and returns the exit code if that is not 0.
COMMANDS: dict[str, Any] = {
    "doctor": doctor,
    "info": info,
    "convert": convert,
    "serve": serve,
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


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="exburn",
        description="Models and runs from the command line.",
        epilog=_ENDS,
    )
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
        add_json(own)
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

    Example:
        >>> main(["serve", "no-such-file.exburn"])
        1
    """
    options = make_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int | None] = options.run
    try:
        return run(options) or 0
    except (ExBurnError, OSError) as error:
        show_error(options, error)
        return 1
    except KeyboardInterrupt:
        return 130
