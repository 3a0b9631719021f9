"""Prints a script that has a shell complete the command line.

  exburn completion bash > ~/.local/share/bash-completion/completions/exburn
  exburn completion zsh > ~/.zfunc/_exburn
  exburn completion tcsh >> ~/.tcshrc

The script is made by shtab (pip install 'exburn[completion]'), which only this command
needs.
"""

from __future__ import annotations

import argparse

from exburn.command_line.output import show
from exburn.errors import require

_SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh, tcsh"
    )


def run(options: argparse.Namespace) -> None:
    """Prints the script."""
    from exburn.command_line.main import make_parser

    reason = "the script is made by shtab"
    shtab = require("shtab", "completion", reason, extra="completion")
    script = shtab.complete(make_parser(), options.shell)
    show(options, {"shell": options.shell, "script": script}, script)
