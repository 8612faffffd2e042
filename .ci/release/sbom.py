"""A bill of materials in CycloneDX's JSON: crates of the module, and Python's packages.

It names no folder and no time of the machine that it is made on: the same commit has the same bill.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from . import crates, licences


def bill(
    version: str,
    when: str,
    found: list[crates.Crate],
    requirements: list[str],
    packages: list[metadata.Distribution],
) -> dict[str, Any]:
    """The bill of a release.

    Args:
        version: the release's.
        when: its time, in ISO 8601.
        found: the crates that are compiled into the module.
        requirements: what the wheel asks of Python's packages: names and bounds.
        packages: those that it was tried with; an installation may have others within the bounds.
    """
    own = f"pkg:pypi/hushtable@{version}"
    components = [_crate(crate) for crate in found] + [_package(one) for one in packages]
    made_of = sorted(component["bom-ref"] for component in components)
    body: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": when,
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "hushtable",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [
                {"name": "hushtable:requires", "value": one} for one in sorted(requirements)
            ],
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": made_of}],
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    return {**body, "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"}


def _crate(crate: crates.Crate) -> dict[str, Any]:
    purl = f"pkg:cargo/{crate.name}@{crate.version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": crate.name,
        "version": crate.version,
        "purl": purl,
        "scope": "required",
        "licenses": [{"expression": crate.expression.replace("/", " OR ")}],
        "hashes": [{"alg": "SHA-256", "content": crate.sha256}],
    }
    if crate.repository:
        component["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return component


def _package(found: metadata.Distribution) -> dict[str, Any]:
    name = licences.normalised(found.metadata["Name"])
    purl = f"pkg:pypi/{name}@{found.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found.version,
        "purl": purl,
        "scope": "required",
        "licenses": [{"expression": licences.expression_of(found)}],
        "properties": [{"name": "hushtable:tried", "value": "installed by pip, not in the wheel"}],
    }


def write(path: Path, body: dict[str, Any]) -> None:
    """Writes a bill."""
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")


def installed(site: Path, requirements: list[str]) -> list[metadata.Distribution]:
    """What is installed in a folder of packages, of what requirements need, by name.

    Raises:
        ValueError: something that they name is not.
    """
    found = {
        licences.normalised(one.metadata["Name"]): one
        for one in licences.needed_by(requirements, site)
    }
    for text in requirements:
        if licences.normalised(Requirement(text).name) not in found:
            raise ValueError(f"{text} is not installed in {site}")
    return [found[name] for name in sorted(found)]
