"""The bill of materials of a wheel, in CycloneDX' JSON, from its own metadata."""

from __future__ import annotations

import json
import re
import uuid
from email.message import Message
from email.parser import Parser
from typing import Any

__all__ = ["bill_of_materials"]


def bill_of_materials(metadata: str) -> str:
    """The package, and each package that it asks for, by what it asks.

    Nothing is bundled in a wheel of ours, so that no versions are known: those are
    chosen where it is installed. The same metadata gives the same text: it has no time
    stamp, and its serial number is drawn from the metadata.

    Args:
        metadata: The file ``METADATA`` of the wheel.

    Example:
        >>> text = "Name: a\\nVersion: 1\\nRequires-Dist: b>=2\\n"
        >>> [part["purl"] for part in json.loads(bill_of_materials(text))["components"]]
        ['pkg:pypi/b']

    Source: CycloneDX 1.6 (ECMA-424); PEP 770 says where it lies in a wheel.
    """
    fields = Parser().parsestr(metadata, headersonly=True)
    own = _package(fields)
    parts = _requirements(fields.get_all("Requires-Dist") or [])
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, metadata).urn,
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": own},
        "components": parts,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    return json.dumps(bill, indent=2) + "\n"


def _package(fields: Message) -> dict[str, Any]:
    name, version = fields["Name"], fields["Version"]
    purl = f"pkg:pypi/{_normalized(name)}@{version}"
    entry = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": fields["Summary"],
        "licenses": [{"license": {"id": fields["License-Expression"]}}],
        "purl": purl,
    }
    if entry["description"] is None:
        del entry["description"]
    if fields["License-Expression"] is None:
        del entry["licenses"]
    return entry


def _requirements(texts: list[str]) -> list[dict[str, Any]]:
    """A component for each package; what only extras ask for is optional."""
    asked: dict[str, list[str]] = {}
    for text in texts:
        name = re.match(r"[\w.-]+", text)
        assert name, f"{text!r} names no package"
        asked.setdefault(_normalized(name[0]), []).append(text)
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "scope": "optional" if all("extra ==" in t for t in lines) else "required",
            "purl": f"pkg:pypi/{name}",
            "properties": [{"name": "requirement", "value": t} for t in lines],
        }
        for name, lines in sorted(asked.items())
    ]


def _normalized(name: str) -> str:
    """A name as package indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
