"""Print what a project declares for its tests, one requirement a line: `declared.py PYPROJECT [WHEEL]`.

Extras come from the wheel's metadata (every back-end writes it), groups from `[dependency-groups]` (PEP 735).
"""

import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WANTED = ("dev", "develop", "test", "tests", "testing")


def of_extras(wheel):
    """Requirements that hold here once a wanted extra is asked for and did not hold before, without their marker."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    own = canonicalize_name(metadata["Name"])
    for line in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if canonicalize_name(requirement.name) != own and any(marker.evaluate({"extra": extra}) for extra in WANTED):
            requirement.marker = None
            yield str(requirement)


def of_groups(pyproject):
    """Requirements of the wanted groups, includes expanded."""
    if not pyproject.is_file():
        return
    groups = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("dependency-groups", {})
    by_name = {canonicalize_name(name): entries for name, entries in groups.items()}
    pending, seen = list(WANTED), set()
    while pending:
        group = canonicalize_name(pending.pop(0))
        if group in seen:
            continue
        seen.add(group)
        for entry in by_name.get(group, []):
            if isinstance(entry, dict):
                pending.append(entry["include-group"])
            else:
                yield entry


if __name__ == "__main__":
    found = list(of_groups(Path(sys.argv[1])))
    if len(sys.argv) > 2:
        found += of_extras(Path(sys.argv[2]))
    print("\n".join(dict.fromkeys(found)))
