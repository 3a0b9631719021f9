"""Tells whether everything that ExBurn stands on works here, and what to do if not.

  exburn doctor
  exburn doctor --json

It looks at versions, devices, the folder of compiled programs and optional packages,
and computes something small. Exit code 1: something is broken.
"""

from __future__ import annotations

import argparse
import dataclasses

from exburn.command_line.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes: nothing of its own."""


def run(options: argparse.Namespace) -> int:
    """Looks, and tells.

    Returns:
        1 if something is broken.
    """
    from exburn.diagnostics.doctor import doctor

    report = doctor()
    checks = [dataclasses.asdict(check) for check in report.checks]
    show(options, {"ok": report.ok, "checks": checks}, report)
    return 0 if report.ok else 1
