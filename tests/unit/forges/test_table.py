"""Each kind of forge has all its parts: a missing one is named, with the file to edit."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import cast

import pytest

from sandbox.config import RemoteSettings
from sandbox.credentials import TOKEN_VARIABLES, load_credentials
from sandbox.forges.forge import Forge
from sandbox.forges.table import FORGE_ROWS, ForgeRow
from sandbox.models import Host
from sandbox.remotes import FORGE_HOSTS, ForgeHosts, map_hosts

GUIDE = Path(__file__).parents[3] / "docs" / "pull-requests.md"
OPERATIONS = [name for name in vars(Forge) if not name.startswith("_")]


def missing_parts(kind: Host) -> list[str]:
    """The forgotten places of a kind of forge, as the files to edit."""
    hosts, row = FORGE_HOSTS.get(kind), FORGE_ROWS.get(kind)
    missing = [] if kind in list(Host) else ["sandbox/models/words.py: a value of Host"]
    if hosts is None:
        missing.append("sandbox/remotes.py: a row in FORGE_HOSTS")
    else:
        if hosts.setting not in RemoteSettings.model_fields:
            missing.append(f"sandbox/config.py: RemoteSettings.{hosts.setting}")
        if f"remotes.{hosts.setting}" not in GUIDE.read_text():
            missing.append(f"docs/pull-requests.md: remotes.{hosts.setting}")
        missing += [f"sandbox/credentials.py: token variables of {h}" for h in hosts.defaults if not has_token(h)]
    if row is None:
        missing.append("sandbox/forges/table.py: a row in FORGE_ROWS")
    else:
        missing += missing_operations(row.adapter)
    return missing


def has_token(hostname: str) -> bool:
    environ = dict.fromkeys(TOKEN_VARIABLES, "secret")
    return any(entry.host == hostname for entry in load_credentials(Path("/nonexistent"), environ))


def missing_operations(adapter: str) -> list[str]:
    try:
        found = pkgutil.resolve_name(adapter)
    except (ImportError, AttributeError):
        return [f"{adapter}: the adapter"]
    return [f"{adapter}: {name}()" for name in OPERATIONS if not hasattr(found, name)]


@pytest.mark.parametrize("kind", [kind for kind in Host if kind is not Host.UNKNOWN])
def test_a_forge_has_all_its_parts(kind: Host) -> None:
    assert missing_parts(kind) == []


def test_a_row_has_a_kind() -> None:
    assert FORGE_ROWS.keys() == FORGE_HOSTS.keys() == set(Host) - {Host.UNKNOWN}


def test_each_forgotten_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    imaginary = cast("Host", "imaginary")
    assert missing_parts(imaginary) == [
        "sandbox/models/words.py: a value of Host",
        "sandbox/remotes.py: a row in FORGE_HOSTS",
        "sandbox/forges/table.py: a row in FORGE_ROWS",
    ]
    monkeypatch.setitem(
        cast("dict[Host, ForgeHosts]", FORGE_HOSTS), imaginary, ForgeHosts(("imaginary.com",), "imaginary_hosts")
    )
    rows = cast("dict[Host, ForgeRow]", FORGE_ROWS)
    monkeypatch.setitem(rows, imaginary, ForgeRow("sandbox.forges.imaginary:Imaginary", "/api/v1"))
    assert missing_parts(imaginary)[1:] == [
        "sandbox/config.py: RemoteSettings.imaginary_hosts",
        "docs/pull-requests.md: remotes.imaginary_hosts",
        "sandbox/credentials.py: token variables of imaginary.com",
        "sandbox.forges.imaginary:Imaginary: the adapter",
    ]
    monkeypatch.setitem(rows, imaginary, ForgeRow("sandbox.forges.forge:Project", "/api/v1"))
    assert f"sandbox.forges.forge:Project: {OPERATIONS[0]}()" in missing_parts(imaginary)


def test_configured_hosts_add_to_the_public_ones_and_win() -> None:
    kinds = map_hosts({"gitlab_hosts": ["Lab.Example", "github.com"]})
    assert kinds == {"github.com": Host.GITLAB, "gitlab.com": Host.GITLAB, "lab.example": Host.GITLAB}
