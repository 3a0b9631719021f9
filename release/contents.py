"""What a wheel must be, beside what check-wheel-contents and twine look at."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

__all__ = ["MOST_BYTES", "bill_fault", "faults"]

MOST_BYTES = 3_000_000  # it holds sources alone; data would be many times that


def faults(wheel: Path) -> list[str]:
    """What of a wheel is not as promised."""
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
    names = {member.filename for member in members}
    reasons = []
    if (size := wheel.stat().st_size) > MOST_BYTES:
        reasons.append(f"{size:,} bytes are more than {MOST_BYTES:,}")
    links = [m.filename for m in members if stat.S_ISLNK(m.external_attr >> 16)]
    reasons += [f"{name} is a link" for name in links]
    if "exburn/py.typed" not in names:
        reasons.append("exburn/py.typed is missing")
    if not any(name.endswith(".dist-info/sboms/exburn.cdx.json") for name in names):
        reasons.append("there is no bill of materials")
    return reasons


def bill_fault(wheel: Path) -> str | None:
    """What CycloneDX' schema has against a wheel's bill of materials."""
    from cyclonedx.schema import SchemaVersion  # one of the release's tools
    from cyclonedx.validation.json import JsonStrictValidator

    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".cdx.json"))
        text = archive.read(name).decode("utf-8")
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return None if fault is None else f"{name}: {fault}"
