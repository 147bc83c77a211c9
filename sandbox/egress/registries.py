"""The registries of a fetch: from our settings, else from those of this host's package managers, else the public ones.

Only host names, paths of an index, and the CA file are taken from a package manager's settings. A secret in them is
refused: no secret enters a guest.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from sandbox.config import RegistrySettings
from sandbox.egress.destinations import AllowedHost, parse_registry
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

Ecosystem = Literal["python", "node", "rust", "go"]

PUBLIC: Mapping[Ecosystem, tuple[str, ...]] = {
    "python": ("https://pypi.org/simple", "https://files.pythonhosted.org"),
    "node": ("https://registry.npmjs.org",),
    "rust": ("https://index.crates.io", "https://static.crates.io"),
    "go": ("https://proxy.golang.org", "https://sum.golang.org"),
}
_PUBLIC_URLS = frozenset(url for urls in PUBLIC.values() for url in urls)
_PIP_SECTIONS = ("global", "install", "download")
_HINT = (
    "A registry that needs a password is not supported, because no secret enters a guest: name one that needs none in "
    "[registries], such as a mirror of yours that logs in by itself, or set layers.fetch = 'never' "
    "(docs/dependencies.md)."
)


class UnusableRegistry(SandboxError):
    """A setting names a registry that a fetch cannot use."""


@dataclass(frozen=True)
class ClientSettings:
    """What the settings of a package manager on this host say. `indexes`: URLs, the first replaces the public one."""

    indexes: tuple[str, ...] = ()
    ca_file: str = ""
    source: str = ""


@dataclass(frozen=True)
class Registries:
    """The registries of one ecosystem. `indexes`: URLs for the package manager. `source`: who said so, for people."""

    indexes: tuple[str, ...]
    hosts: tuple[AllowedHost, ...]
    ca_file: str
    source: str


def find_registries(
    ecosystem: Ecosystem, settings: RegistrySettings, environ: Mapping[str, str], etc: Path = Path("/etc")
) -> Registries:
    """Find the registries of an ecosystem. `etc`: the folder with the settings of the whole host.

    Raises: `invalid_input` naming the setting with a URL that cannot be used.
    """
    client = _READERS[ecosystem](environ, etc) if ecosystem in _READERS else ClientSettings()
    ca_file = settings.ca_file or client.ca_file
    if own := getattr(settings, ecosystem):
        source = f"registries.{ecosystem}"
        public = PUBLIC[ecosystem]
        files = tuple(url for url in public[1:] if own[0].rstrip("/") == public[0] and url not in own)
        return Registries(own[:1], tuple(_parse(url, source, is_named=True) for url in (*own, *files)), ca_file, source)
    if client.indexes:
        hosts = [_parse(url, client.source, is_named=url.rstrip("/") not in _PUBLIC_URLS) for url in client.indexes]
        if any(url.rstrip("/") == PUBLIC[ecosystem][0] for url in client.indexes):
            hosts += [_parse(url, "", is_named=False) for url in PUBLIC[ecosystem][1:]]
        return Registries(client.indexes, tuple(hosts), ca_file, client.source)
    hosts = [_parse(url, "", is_named=False) for url in PUBLIC[ecosystem]]
    return Registries(PUBLIC[ecosystem][:1], tuple(hosts), ca_file, "the public registry")


def _parse(url: str, source: str, *, is_named: bool) -> AllowedHost:
    try:
        return parse_registry(url, may_be_internal=is_named)
    except ValueError as error:
        shown = url.rpartition("@")[2][:200]  # without a password
        raise UnusableRegistry(
            ErrorCode.INVALID_INPUT, f"The registry {shown} cannot be used", details=f"{source}: {error}", hint=_HINT
        ) from None


def _read_pip(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """pip's own order: the host's file, the user's, then variables. https://pip.pypa.io/en/stable/topics/configuration/"""
    found: dict[str, tuple[str, str]] = {}
    for path in _list_pip_files(environ, etc):
        for name, value in _read_ini(path):
            found[name] = value, str(path)
    for name in ("index-url", "extra-index-url", "cert"):
        variable = f"PIP_{name.upper().replace('-', '_')}"
        if environ.get(variable):
            found[name] = environ[variable], variable
    index, source = found.get("index-url", ("", ""))
    extra, extra_source = found.get("extra-index-url", ("", ""))
    more = tuple(url for url in extra.split() if not url.startswith("file:"))  # a folder of this host: no guest sees it
    indexes = (index or PUBLIC["python"][0], *more) if index or more else ()
    return ClientSettings(indexes, found.get("cert", ("", ""))[0], source or extra_source)


def _list_pip_files(environ: Mapping[str, str], etc: Path) -> list[Path]:
    if own := environ.get("PIP_CONFIG_FILE"):
        return [] if own == "/dev/null" else [etc / "pip.conf", Path(own)]
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".config")
    return [etc / "pip.conf", user / "pip/pip.conf"]


def _read_ini(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and values of the sections that concern a download. A file that cannot be read has none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return
    for section in _PIP_SECTIONS:
        if parser.has_section(section):
            yield from ((name.replace("_", "-"), value) for name, value in parser.items(section))


def _read_npm(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """npm's files have lines `key = value`. https://docs.npmjs.com/cli/configuring-npm/npmrc"""
    user = Path(environ.get("NPM_CONFIG_USERCONFIG") or Path(environ.get("HOME", "/nonexistent")) / ".npmrc")
    found: dict[str, tuple[str, str]] = {}
    for path in (etc / "npmrc", user):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip().strip("\"'"), str(path)
    for name in ("registry", "cafile"):
        for variable in (f"npm_config_{name}", f"NPM_CONFIG_{name.upper()}"):
            if environ.get(variable):
                found[name] = environ[variable], variable
    registry, source = found.get("registry", ("", ""))
    return ClientSettings((registry,) if registry else (), found.get("cafile", ("", ""))[0], source)


_READERS = {"python": _read_pip, "node": _read_npm}
