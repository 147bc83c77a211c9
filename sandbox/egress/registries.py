"""The registries of a fetch: from our settings, else from those of this host's package managers, else the public ones.

Only host names, paths of an index, and the CA file are taken from a package manager's settings. A secret in them is
refused: no secret enters a guest. So is a relative path: the current directory may be a checkout of a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.config import RegistrySettings
from sandbox.egress.client_settings import (
    PUBLIC,
    READERS,
    ClientSettings,
    UnusableRegistry,
    require_absolute,
)
from sandbox.egress.destinations import AllowedHost, parse_registry
from sandbox.errors import ErrorCode
from sandbox.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sandbox.models.layers import LayerEcosystem

_PUBLIC_URLS = frozenset(url for urls in PUBLIC.values() for url in urls)
_HINT = (
    "A registry that needs a password is not supported, because no secret enters a guest: name one that needs none in "
    "[registries], such as a mirror of yours that logs in by itself, or set layers.fetch = 'never' "
    "(docs/dependencies.md)."
)

_NO_HASHES = frozenset({"perl"})
"""Ecosystems that have no hash of an archive but from where the archive comes from: who can write into a connection
without TLS gives what they like. Only our own setting, which is made for that, may name such a mirror.
"""


@dataclass(frozen=True)
class Registries:
    """The registries of one ecosystem. `indexes`: URLs for the package manager. `source`: who said so, for people."""

    indexes: tuple[str, ...]
    hosts: tuple[AllowedHost, ...]
    ca_file: str
    source: str


def find_registries(
    ecosystem: LayerEcosystem, settings: RegistrySettings, environ: Mapping[str, str], etc: Path = Path("/etc")
) -> Registries:
    """Find the registries of an ecosystem. `etc`: the folder with the settings of the whole host.

    Raises: `invalid_input` naming the setting with a URL, or the relative path, that cannot be used.
    """
    own = getattr(settings, ecosystem)
    client = ClientSettings() if own and settings.ca_file else READERS[ecosystem](environ, etc)
    ca_file = settings.ca_file or (client.ca_file and str(require_absolute(client.ca_file, client.ca_source)))
    if own:
        source = f"registries.{ecosystem}"
        public = PUBLIC[ecosystem]
        files = tuple(url for url in public[1:] if own[0].rstrip("/") == public[0] and url not in own)
        places = [*_number(source, len(own)), *files]
        hosts = [_parse(url, place, is_named=True) for url, place in zip((*own, *files), places, strict=True)]
        return Registries(own[:1], tuple(hosts), ca_file, source)
    if client.indexes:
        _require_tls(ecosystem, client)
        places = [client.source, *_number(client.more_source, len(client.indexes) - 1)]
        hosts = [
            _parse(url, place, is_named=url.rstrip("/") not in _PUBLIC_URLS)
            for url, place in zip(client.indexes, places, strict=True)
        ]
        if any(url.rstrip("/") == PUBLIC[ecosystem][0] for url in client.indexes):
            hosts += [_parse(url, "", is_named=False) for url in PUBLIC[ecosystem][1:]]
        return Registries(client.indexes, tuple(hosts), ca_file, client.source)
    hosts = [_parse(url, "", is_named=False) for url in PUBLIC[ecosystem]]
    return Registries(PUBLIC[ecosystem][:1], tuple(hosts), ca_file, "the public registry")


def _require_tls(ecosystem: LayerEcosystem, client: ClientSettings) -> None:
    for url in client.indexes if ecosystem in _NO_HASHES else ():
        if not url.startswith("https:"):
            raise UnusableRegistry(
                ErrorCode.INVALID_INPUT,
                f"The registry of {client.source} cannot be used: it has no TLS",
                details=f"{client.source}: hashes come from the same mirror, so only TLS protects the archives",
                hint=f"Use https:, or name it in [registries] {ecosystem} in the config.toml of the home.",
            )


def _number(source: str, count: int) -> list[str]:
    """The place of each of so many URLs, for errors: what is no usable URL is not shown, as it may be a password."""
    return [f"{source} (URL {number})" for number in range(1, count + 1)] if count > 1 else [source] * count


def _parse(url: str, place: str, *, is_named: bool) -> AllowedHost:
    try:
        return parse_registry(url, may_be_internal=is_named)
    except ValueError as error:
        brief = f"The registry of {place} cannot be used"
        raise UnusableRegistry(ErrorCode.INVALID_INPUT, brief, details=f"{place}: {error}", hint=_HINT) from None
