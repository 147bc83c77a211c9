"""Each kind of forge has all its parts: a missing one is named, with the file to edit."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from sandbox.config import RemoteSettings
from sandbox.credentials import TOKEN_VARIABLES, load_credentials
from sandbox.forges.forge import Forge
from sandbox.forges.table import FORGE_ROWS, ForgeRow, compare_url
from sandbox.models import Host
from sandbox.remotes import FORGE_HOSTS, ForgeHosts, explain_unknown_host, map_hosts, parse_remote

ROOT = Path(__file__).parents[3]
OPERATIONS = [name for name in vars(Forge) if not name.startswith("_")]
CONTRACT = "tests/contract/test_forges.py"


def missing_parts(kind: Host) -> list[str]:
    """The forgotten places of a kind of forge, as the files to edit: those of the checklist in docs/architecture.md."""
    hosts, row = FORGE_HOSTS.get(kind), FORGE_ROWS.get(kind)
    missing = [] if kind in list(Host) else ["sandbox/models/words.py: a value of Host"]
    missing += ["sandbox/remotes.py: a row in FORGE_HOSTS"] if hosts is None else missing_addresses(hosts)
    missing += ["sandbox/forges/table.py: a row in FORGE_ROWS"] if row is None else missing_operations(row.adapter)
    missing += [] if (ROOT / f"devtools/forges/{kind}.py").exists() else [f"devtools/forges/{kind}.py: a stand-in"]
    return missing + missing_texts(CONTRACT, [f'"{kind}": '])


def missing_addresses(hosts: ForgeHosts) -> list[str]:
    """What is forgotten of the hosts of a kind, their setting and their tokens, in the code and on the pages."""
    setting, variables = f"remotes.{hosts.setting}", [name for host in hosts.defaults for name in variables_of(host)]
    known = hosts.setting in RemoteSettings.model_fields
    return [
        *([] if known else [f"sandbox/config.py: RemoteSettings.{hosts.setting}"]),
        *(f"sandbox/credentials.py: token variables of {host}" for host in hosts.defaults if not variables_of(host)),
        *(f"sandbox/forges/table.py: {host} is still in _COMPARE_PAGES" for host in hosts.defaults if has_page(host)),
        *missing_texts("docs/pull-requests.md", [setting, *hosts.defaults, *variables]),
        *missing_texts("docs/configuration.md", [setting]),
        *missing_texts("docs/credentials.md", [setting, *hosts.defaults, *variables]),
        *missing_texts("docs/troubleshooting.md", [setting]),
    ]


def missing_texts(path: str, texts: Sequence[str]) -> list[str]:
    page = (ROOT / path).read_text(encoding="utf-8")
    return [f"{path}: {text.strip()}" for text in texts if text not in page]


def variables_of(hostname: str) -> list[str]:
    def hosts_with(name: str) -> set[str]:
        return {entry.host for entry in load_credentials(Path("/nonexistent"), {name: "secret"})}

    return [name for name in TOKEN_VARIABLES if hostname in hosts_with(name)]


def has_page(hostname: str) -> bool:
    return compare_url(parse_remote(f"https://{hostname}/owner/name"), "head", "base") is not None


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
    tests = ["devtools/forges/imaginary.py: a stand-in", 'tests/contract/test_forges.py: "imaginary":']
    assert missing_parts(imaginary) == [
        "sandbox/models/words.py: a value of Host",
        "sandbox/remotes.py: a row in FORGE_HOSTS",
        "sandbox/forges/table.py: a row in FORGE_ROWS",
        *tests,
    ]
    hosts = ForgeHosts(("codeberg.org",), "imaginary_hosts", "Imaginary")
    monkeypatch.setitem(cast("dict[Host, ForgeHosts]", FORGE_HOSTS), imaginary, hosts)
    rows = cast("dict[Host, ForgeRow]", FORGE_ROWS)
    monkeypatch.setitem(rows, imaginary, ForgeRow("sandbox.forges.imaginary:Imaginary", "/api/v1"))
    assert missing_parts(imaginary)[1:] == [
        "sandbox/config.py: RemoteSettings.imaginary_hosts",
        "sandbox/credentials.py: token variables of codeberg.org",
        "sandbox/forges/table.py: codeberg.org is still in _COMPARE_PAGES",
        "docs/pull-requests.md: remotes.imaginary_hosts",
        "docs/pull-requests.md: codeberg.org",
        "docs/configuration.md: remotes.imaginary_hosts",
        "docs/credentials.md: remotes.imaginary_hosts",
        "docs/credentials.md: codeberg.org",
        "docs/troubleshooting.md: remotes.imaginary_hosts",
        "sandbox.forges.imaginary:Imaginary: the adapter",
        *tests,
    ]
    monkeypatch.setitem(rows, imaginary, ForgeRow("sandbox.forges.forge:Project", "/api/v1"))
    assert f"sandbox.forges.forge:Project: {OPERATIONS[0]}()" in missing_parts(imaginary)


def test_a_token_variable_that_a_page_lacks_is_named() -> None:
    assert variables_of("github.com") == ["GH_TOKEN", "GITHUB_TOKEN"]
    assert missing_texts("docs/credentials.md", [*TOKEN_VARIABLES, "IMAGINARY_TOKEN"]) == [
        "docs/credentials.md: IMAGINARY_TOKEN"
    ]


def test_the_hint_for_an_unknown_host_names_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ForgeHosts((), "imaginary_hosts", "Imaginary")
    monkeypatch.setitem(cast("dict[Host, ForgeHosts]", FORGE_HOSTS), cast("Host", "imaginary"), hosts)
    hint = explain_unknown_host()
    assert "a GitHub Enterprise or GitLab or Imaginary server" in hint
    assert "remotes.github_hosts or remotes.gitlab_hosts or remotes.imaginary_hosts" in hint


def test_configured_hosts_add_to_the_public_ones_and_win() -> None:
    kinds = map_hosts({"gitlab_hosts": ["Lab.Example", "github.com"]})
    assert kinds == {"github.com": Host.GITLAB, "gitlab.com": Host.GITLAB, "lab.example": Host.GITLAB}
