"""Wheels and sdists in bytes that only their files decide.

They do not depend on the day, the user, the folder or the umask of a build: members
stand in the order of their names, with one date and two modes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import tarfile
import time
import zipfile
from io import BytesIO

from release.sbom import bill_of_materials

__all__ = ["repack_sdist", "repack_wheel"]

FIRST_DATE = 315532800  # 1980-01-01, the first that a zip can hold


def repack_wheel(content: bytes) -> bytes:
    """The same wheel with a bill of materials, in bytes that only its files decide."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = [m for m in archive.infolist() if not m.is_dir()]
        files = {m.filename: archive.read(m) for m in members}
        programs = {m.filename for m in members if m.external_attr >> 16 & 0o100}
    (metadata,) = (n for n in files if n.endswith(".dist-info/METADATA"))
    home = metadata.removesuffix("/METADATA")
    package = home.partition("-")[0]
    bill = bill_of_materials(files[metadata].decode("utf-8"))
    files[f"{home}/sboms/{package}.cdx.json"] = bill.encode("utf-8")
    record = f"{home}/RECORD"
    del files[record]
    names = sorted(files, key=lambda name: (name.startswith(home), name))
    rows = [f"{name},{_digest(files[name])},{len(files[name])}" for name in names]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode("utf-8")
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in [*names, record]:
            info = zipfile.ZipInfo(name, time.gmtime(_date())[:6])
            info.create_system = 3  # Unix, whose modes these are
            info.external_attr = (0o100755 if name in programs else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name], compresslevel=9)
    return out.getvalue()


def repack_sdist(content: bytes) -> bytes:
    """The same sdist in bytes that only its files decide."""
    packed = BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(content)) as source,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            info = tarfile.TarInfo(member.name)
            info.type, info.size, info.mtime = member.type, member.size, _date()
            info.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            info.linkname = member.linkname
            target.addfile(info, source.extractfile(member) if member.isreg() else None)
    out = BytesIO()
    with gzip.GzipFile("", "wb", 9, out, mtime=_date()) as file:
        file.write(packed.getvalue())
    return out.getvalue()


def _date() -> int:
    """The date of every member: SOURCE_DATE_EPOCH, if it is set."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", FIRST_DATE)), FIRST_DATE)


def _digest(content: bytes) -> str:
    """A file's digest as RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + digest.decode().rstrip("=")
