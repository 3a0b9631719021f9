"""Archives: the same bytes of the same files, and a bill of materials in a wheel."""

import base64
import hashlib
import io
import json
import tarfile
import zipfile

from tests.checkout import load

archives = load("release.archives")

METADATA = """Metadata-Version: 2.4
Name: ex-burn
Version: 1.2
Summary: Nothing
License-Expression: Apache-2.0
Requires-Dist: numpy>=2.0
Requires-Dist: jax>=0.10; python_version < "3.14"
Requires-Dist: jax[cuda]>=0.10; extra == "cuda"
Requires-Dist: Ray_Lib>=2; extra == "ray"

Requires-Dist: nothing in the description counts
"""
FILES = {
    "ex_burn/b.py": b"b = 1\n" * 50,
    "ex_burn/a.py": b"",
    "ex_burn-1.2.dist-info/METADATA": METADATA.encode(),
    "ex_burn-1.2.dist-info/RECORD": b"ex_burn/a.py,,\n",
}


def wheel(names, date, mode):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name, date)
            info.external_attr = mode << 16
            archive.writestr(info, FILES[name])
    return out.getvalue()


def sdist(names, **facts):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(f"ex-burn-1.2/{name}")
            info.size = len(FILES[name])
            for key, value in facts.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(FILES[name]))
    return out.getvalue()


def test_a_wheel_is_decided_by_its_files_alone():
    first = archives.repack_wheel(wheel(FILES, (2026, 1, 2, 3, 4, 6), 0o100644))
    again = wheel([*FILES][::-1], (1999, 1, 1, 0, 0, 0), 0o100600)
    assert archives.repack_wheel(again) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
        assert names[:2] == ["ex_burn/a.py", "ex_burn/b.py"]
        assert names[-1] == "ex_burn-1.2.dist-info/RECORD"  # as readers like it best
        for line in archive.read(names[-1]).decode().splitlines()[:-1]:
            name, digest, size = line.split(",")
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            assert digest == f"sha256={expected.decode().rstrip('=')}"
            assert int(size) == len(content)
            names.remove(name)
        assert names == ["ex_burn-1.2.dist-info/RECORD"]
        assert {m.external_attr >> 16 for m in archive.infolist()} == {0o100644}


def test_an_sdist_is_decided_by_its_files_alone():
    first = archives.repack_sdist(sdist(FILES, mtime=1e9, uid=3, uname="a", mode=0o600))
    again = archives.repack_sdist(sdist([*FILES][::-1], mtime=5, gid=7, gname="b"))
    assert again == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == sorted(archive.getnames())
        read = {
            m.name.partition("/")[2]: archive.extractfile(m).read()
            for m in archive.getmembers()
        }
    assert read == FILES


def test_the_date_is_asked_for(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")  # in 2026
    content = archives.repack_wheel(wheel(FILES, (1999, 1, 1, 0, 0, 0), 0o100644))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {m.date_time[0] for m in archive.infolist()} == {2026}


def test_the_bill_of_materials():
    content = archives.repack_wheel(wheel(FILES, (1999, 1, 1, 0, 0, 0), 0o100644))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        bill = json.loads(archive.read("ex_burn-1.2.dist-info/sboms/ex_burn.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    own = bill["metadata"]["component"]
    assert own["purl"] == "pkg:pypi/ex-burn@1.2"
    assert own["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    parts = {part["name"]: part for part in bill["components"]}
    assert {name: part["scope"] for name, part in parts.items()} == {
        "jax": "required",
        "numpy": "required",
        "ray-lib": "optional",
    }
    assert [p["value"] for p in parts["jax"]["properties"]] == [
        'jax>=0.10; python_version < "3.14"',
        'jax[cuda]>=0.10; extra == "cuda"',
    ]
    (root, *others) = bill["dependencies"]
    assert root["dependsOn"] == [other["ref"] for other in others]
