"""What the settings of this host's package managers say of registries: pip's, uv's, npm's, cargo's, Go's, cpanm's.

Only addresses of an index and the CA file are read. What leads to a folder of this host is left out: no guest sees it.
A relative path is refused: the current directory may be a checkout of a stranger, and the public registry, which would
be asked instead, is not to see the names of internal packages.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sandbox.models.layers import LayerEcosystem

PUBLIC: Mapping[LayerEcosystem, tuple[str, ...]] = {
    "python": ("https://pypi.org/simple", "https://files.pythonhosted.org"),
    "node": ("https://registry.npmjs.org",),
    "rust": ("https://index.crates.io", "https://static.crates.io"),
    "go": ("https://proxy.golang.org", "https://sum.golang.org"),
    "perl": ("https://cpan.metacpan.org",),
}
_PIP_SECTIONS = ("global", "install", "download")
_MAX_REPLACEMENTS = 8  # of a source by another: more is a circle


@dataclass(frozen=True)
class ClientSettings:
    """What the settings of a package manager on this host say. `indexes`: URLs, the first replaces the public one.
    `source`: which setting says so; `more_source`: which one names the indexes after the first; `ca_source`: the file.
    """

    indexes: tuple[str, ...] = ()
    ca_file: str = ""
    source: str = ""
    more_source: str = ""
    ca_source: str = ""


class UnusableRegistry(SandboxError):
    """A setting names a registry, a file of settings or of certificates that a fetch cannot use."""


def require_absolute(path: str, source: str) -> Path:
    """The path that a setting names. Raises: `UnusableRegistry` for a relative one."""
    if not Path(path).is_absolute():
        raise UnusableRegistry(
            ErrorCode.INVALID_INPUT,
            f"{source} is a relative path, which a fetch does not read",
            details="the current directory may be a checkout of a stranger",
            hint="Give its whole path or unset it, or set [registries], with ca_file, in the config.toml of the home.",
        )
    return Path(path)


def _find_home(environ: Mapping[str, str]) -> Path:
    return require_absolute(environ.get("HOME") or "/nonexistent", "HOME")


def _find_config_folder(environ: Mapping[str, str]) -> Path:
    """That of the user, for pip, uv and Go."""
    own = environ.get("XDG_CONFIG_HOME")
    return require_absolute(own, "XDG_CONFIG_HOME") if own else _find_home(environ) / ".config"


def _expand_home(path: str, environ: Mapping[str, str]) -> str:
    """As pip and npm read it, without the homes of other users."""
    return f"{_find_home(environ)}{path[1:]}" if path.startswith("~/") else path


def _read_python(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """Those of pip; where these name no index, the one of uv."""
    found = _read_pip(environ, etc)
    if found.indexes:
        return found
    url, source = _find_uv_index(environ, etc)
    return ClientSettings((url,), found.ca_file, source, ca_source=found.ca_source) if url else found


def _find_uv_index(environ: Mapping[str, str], etc: Path) -> tuple[str, str]:
    """What stands in place of PyPI, and who says so; empty: nothing does. https://docs.astral.sh/uv/concepts/indexes/

    Its further indexes are left out: uv asks them one after another, and installs from the first that has a package.
    pip would take the highest version of all, also one that a stranger published.
    """
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := environ.get(name):
            return re.sub(r"^[A-Za-z0-9._-]{1,100}=", "", value), name
    if own := environ.get("UV_CONFIG_FILE"):
        paths = [require_absolute(own, "UV_CONFIG_FILE")]
    else:
        paths = [_find_config_folder(environ) / "uv/uv.toml", etc / "xdg/uv/uv.toml", etc / "uv/uv.toml"]
    found, path = _read_first_toml(*paths)
    indexes = found.get("index")
    tables = [one for one in indexes if isinstance(one, dict)] if isinstance(indexes, list) else []
    named = next((url for one in tables if one.get("default") is True and (url := _text(one, "url"))), "")
    return named or _text(found, "index-url") or _text(_table(found, "pip"), "index-url"), str(path)


def _read_pip(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """pip's own order: the host's file, the user's, then variables. https://pip.pypa.io/en/stable/topics/configuration/"""
    found: dict[str, tuple[str, str]] = {}
    for path in _list_pip_files(environ, etc):
        for name, value in _read_ini(path):
            found[name] = value, f"{name} in {path}"
    for name in ("index-url", "extra-index-url", "cert"):
        variable = f"PIP_{name.upper().replace('-', '_')}"
        if environ.get(variable):
            found[name] = environ[variable], variable
    index, source = found.get("index-url", ("", ""))
    extra, extra_source = found.get("extra-index-url", ("", ""))
    more = tuple(url for url in extra.split() if not url.startswith("file:"))  # a folder of this host: no guest sees it
    indexes = (index or PUBLIC["python"][0], *more) if index or more else ()
    ca_file, ca_source = found.get("cert", ("", ""))
    return ClientSettings(indexes, _expand_home(ca_file, environ), source or extra_source, extra_source, ca_source)


def _list_pip_files(environ: Mapping[str, str], etc: Path) -> list[Path]:
    host = [etc / "xdg/pip/pip.conf", etc / "pip.conf"]
    if own := environ.get("PIP_CONFIG_FILE"):
        return [] if own == "/dev/null" else [*host, require_absolute(own, "PIP_CONFIG_FILE")]
    return [*host, _find_home(environ) / ".pip/pip.conf", _find_config_folder(environ) / "pip/pip.conf"]


def _read_ini(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and values of the sections that concern a download. A file that cannot be read has none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(_read_text(path) or "")
    except configparser.Error:
        return
    for section in _PIP_SECTIONS:
        if parser.has_section(section):
            yield from ((name.replace("_", "-"), value) for name, value in parser.items(section))


def _read_npm(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """npm's files have lines `key = value`. https://docs.npmjs.com/cli/configuring-npm/npmrc"""
    user = "~/.npmrc", "HOME"
    for variable in ("npm_config_userconfig", "NPM_CONFIG_USERCONFIG"):
        user = (environ[variable], variable) if environ.get(variable) else user
    found: dict[str, tuple[str, str]] = {}
    for path in (etc / "npmrc", require_absolute(_expand_home(user[0], environ), user[1])):
        for line in (_read_text(path) or "").splitlines():
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip().strip("\"'"), f"{name.strip()} in {path}"
    for name in ("registry", "cafile"):
        for variable in (f"npm_config_{name}", f"NPM_CONFIG_{name.upper()}"):
            if environ.get(variable):
                found[name] = environ[variable], variable
    registry, source = found.get("registry", ("", ""))
    ca_file, ca_source = found.get("cafile", ("", ""))
    ca_file = re.sub(r"\$\{([^${}?]+)\}", lambda name: environ.get(name[1], name[0]), ca_file)  # as npm does
    indexes = (registry,) if registry else ()
    return ClientSettings(indexes, _expand_home(ca_file, environ), source, ca_source=ca_source)


def _read_cargo(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """What replaces crates.io in the user's `config.toml`. https://doc.rust-lang.org/cargo/reference/source-replacement.html

    An index without `sparse+` is a git repository: it is named as one, and so refused.
    """
    del etc  # cargo has no file of the whole host
    own = environ.get("CARGO_HOME")
    home = require_absolute(own, "CARGO_HOME") if own else _find_home(environ) / ".cargo"
    found, path = _read_first_toml(home / "config.toml", home / "config")
    ca_file = environ.get("CARGO_HTTP_CAINFO", "")
    if not ca_file and (name := _text(_table(found, "http"), "cainfo")):
        ca_file = str(home.parent / name)
    sources, name = _table(found, "source"), "crates-io"
    for _ in range(_MAX_REPLACEMENTS):
        source = _table(sources, name)
        if "replace-with" not in source:
            break
        name = _text(source, "replace-with")
    url = _text(_table(sources, name) or _table(_table(found, "registries"), name), "registry", "index")
    index = url.removeprefix("sparse+") if url.startswith("sparse+") else f"git+{url}"
    return ClientSettings((index,) if url else (), ca_file, str(path), ca_source="CARGO_HTTP_CAINFO")


def _read_first_toml(*paths: Path) -> tuple[Mapping[str, Any], Path]:
    for path in paths:
        text = _read_text(path)
        with suppress(ValueError, RecursionError):  # no TOML, or nested too deep
            if text is not None:
                return tomllib.loads(text), path
    return {}, paths[0]


def _read_text(path: Path) -> str | None:
    """The text of a file; None for one that cannot be read, and for a relative path."""
    try:
        return path.read_text(encoding="utf-8") if path.is_absolute() else None
    except (OSError, UnicodeDecodeError):
        return None


def _table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _text(table: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := table.get(name), str)), "")


def _read_go(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """The first proxy of `GOPROXY`: a variable, else a line of the file of `go env -w`. https://go.dev/ref/mod#environment-variables"""
    del etc
    value, source = environ.get("GOPROXY", ""), "GOPROXY"
    own = environ.get("GOENV")
    if not value and own != "off":
        path = require_absolute(own, "GOENV") if own else _find_config_folder(environ) / "go/env"
        value, source = _read_go_file(path).get("GOPROXY", ""), f"GOPROXY in {path}"
    url = next((url for url in re.split("[,|]", value) if url.strip() not in {"", "direct", "off"}), "").strip()
    return ClientSettings() if not url or url.startswith("file:") else ClientSettings((url,), "", source)


def _read_go_file(path: Path) -> dict[str, str]:
    lines = (_read_text(path) or "").splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def _read_cpan(environ: Mapping[str, str], etc: Path) -> ClientSettings:
    """The mirror that variables of Carton and cpanm name. CPAN.pm's own file is a program, and names a mirror without
    TLS by default, so it is not read.
    """
    del etc
    if url := environ.get("PERL_CARTON_MIRROR", ""):
        return _use_mirror(url, "PERL_CARTON_MIRROR")
    found = re.search(r"(?:^|\s)(?:--mirror|--from|-M)[ =](\S+)", environ.get("PERL_CPANM_OPT", ""))
    return _use_mirror(found[1] if found else "", "PERL_CPANM_OPT")


def _use_mirror(url: str, source: str) -> ClientSettings:
    return ClientSettings((url,), "", source) if url.startswith(("http:", "https:")) else ClientSettings()


READERS: Mapping[LayerEcosystem, Callable[[Mapping[str, str], Path], ClientSettings]] = {
    "python": _read_python,
    "node": _read_npm,
    "rust": _read_cargo,
    "go": _read_go,
    "perl": _read_cpan,
}
