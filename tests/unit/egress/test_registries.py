"""Where the registries of a fetch come from: our settings, those of pip and npm, the public ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import RegistrySettings
from sandbox.egress.client_settings import PUBLIC, UnusableRegistry
from sandbox.egress.registries import Registries, find_registries
from sandbox.errors import ErrorCode, SandboxError


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host without settings: `etc`, and a user's `home`."""
    for name in ("etc", "home/.config/pip"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def found(host: Path, which: Any = "python", settings: RegistrySettings | None = None, **environ: str) -> Registries:
    environ = {"HOME": str(host / "home"), **environ}
    return find_registries(which, settings or RegistrySettings(), environ, host / "etc")


def hosts(registries: Registries) -> dict[str, bool]:
    """Each host with its port, and whether it may be internal."""
    return {str(entry.destination): entry.may_be_internal for entry in registries.hosts}


@pytest.mark.parametrize("which", PUBLIC)
def test_public_registries_are_the_default_and_may_not_be_internal(host: Path, which: Any) -> None:
    registries = found(host, which)
    assert registries.indexes == PUBLIC[which][:1]
    assert set(hosts(registries).values()) == {False}
    assert len(registries.hosts) == len(PUBLIC[which])


def test_own_settings_come_first_and_may_be_internal(host: Path) -> None:
    (host / "etc/pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\ncert = /mirror.pem\n")
    settings = RegistrySettings(python=("https://own.example:8443/simple", "https://files.example"))
    registries = found(host, settings=settings)
    assert registries.indexes == ("https://own.example:8443/simple",)
    assert hosts(registries) == {"own.example:8443": True, "files.example:443": True}
    assert registries.ca_file == "/mirror.pem"
    assert registries.source == "registries.python"


def test_the_public_index_that_an_operator_names_brings_its_file_host(host: Path) -> None:
    """For a host that reaches both at private addresses. Another index brings no public host."""
    for url, hosts in (("https://pypi.org/simple/", 2), ("https://mirror.example/simple", 1)):
        found = find_registries("python", RegistrySettings(python=(url,)), {}, host)
        assert len(found.hosts) == hosts
        assert all(allowed.may_be_internal for allowed in found.hosts)


def test_mirror_of_pip_replaces_the_public_registry(host: Path) -> None:
    (host / "etc/pip.conf").write_text("[global]\nindex-url = https://etc.example/simple\n")
    (host / "home/.config/pip/pip.conf").write_text("[global]\nindex_url = https://user.example/simple\n")
    assert hosts(found(host)) == {"user.example:443": True}
    registries = found(host, PIP_INDEX_URL="http://variable.example:3141/simple", PIP_CERT="/ca.pem")
    assert (hosts(registries), registries.ca_file) == ({"variable.example:3141": True}, "/ca.pem")
    assert registries.source == "PIP_INDEX_URL"


def test_further_index_of_pip_is_beside_the_public_one(host: Path) -> None:
    (host / "etc/pip.conf").write_text("[global]\nextra-index-url = file:///srv/simple\n https://more.example/simple\n")
    registries = found(host)
    assert registries.indexes == ("https://pypi.org/simple", "https://more.example/simple")
    assert hosts(registries) == {
        "pypi.org:443": False,
        "more.example:443": True,
        "files.pythonhosted.org:443": False,
    }


def test_public_index_in_the_settings_of_pip_may_not_be_internal(host: Path) -> None:
    assert set(hosts(found(host, PIP_INDEX_URL="https://pypi.org/simple/")).values()) == {False}


def test_folders_of_the_host_and_broken_files_say_nothing(host: Path) -> None:
    (host / "etc/pip.conf").write_text("[global]\nextra-index-url = file:///srv/simple\n")
    (host / "home/.config/pip/pip.conf").write_bytes(b"no section\n\xff")
    assert found(host).source == "the public registry"


def test_settings_of_pip_can_be_switched_off(host: Path) -> None:
    (host / "etc/pip.conf").write_text("[global]\nindex-url = https://etc.example/simple\n")
    assert found(host, PIP_CONFIG_FILE="/dev/null").source == "the public registry"


def test_older_and_host_wide_files_of_pip_are_read(host: Path) -> None:
    for name, folder in (("old", "home/.pip"), ("xdg", "etc/xdg/pip")):
        (host / folder).mkdir(parents=True)
        (host / folder / "pip.conf").write_text(f"[global]\nindex-url = https://{name}.example/simple\n")
    assert hosts(found(host)) == {"old.example:443": True}
    (host / "home/.config/pip/pip.conf").write_text("[global]\nindex-url = https://user.example/simple\n")
    assert hosts(found(host)) == {"user.example:443": True}


def write_uv(host: Path, folder: str, text: str) -> None:
    (host / folder).mkdir(parents=True, exist_ok=True)
    (host / folder / "uv.toml").write_text(text)


def test_index_of_uv_stands_in_place_of_the_public_one_where_pip_names_none(host: Path) -> None:
    write_uv(host, "etc/uv", 'index-url = "https://etc.example/simple"\n')
    assert hosts(found(host)) == {"etc.example:443": True}
    further = '[[index]]\nurl = "https://more.example/simple"\n'
    write_uv(host, "home/.config/uv", f'{further}[[index]]\nurl = "https://user.example/simple"\ndefault = true\n')
    registries = found(host, PIP_CERT="/ca.pem")
    assert (hosts(registries), registries.ca_file) == ({"user.example:443": True}, "/ca.pem")
    for value in ("https://variable.example/a=b", "own=https://variable.example/a=b"):
        registries = found(host, UV_DEFAULT_INDEX=value)
        assert registries.indexes == ("https://variable.example/a=b",)
        assert registries.source == "UV_DEFAULT_INDEX"
    assert found(host, PIP_INDEX_URL="https://pip.example", UV_INDEX_URL="https://uv.example").source == "PIP_INDEX_URL"


@pytest.mark.parametrize(
    "text",
    [
        "broken",
        '[[index]]\nurl = "https://more.example/simple"\n',
        "index = 1\nindex-url = 2\npip = 3\n",
        'index = [1]\n[pip]\nindex-url = ["https://more.example/simple"]\n',
    ],
)
def test_settings_of_uv_that_name_no_default_index_say_nothing(host: Path, text: str) -> None:
    write_uv(host, "home/.config/uv", text)
    assert found(host).source == "the public registry"


def test_index_of_uv_with_a_password_is_refused(host: Path) -> None:
    with pytest.raises(UnusableRegistry) as caught:
        found(host, UV_DEFAULT_INDEX="https://user:hunter2@uv.example/simple")
    assert "hunter2" not in str(caught.value)


def test_mirror_of_npm_replaces_the_public_registry(host: Path) -> None:
    (host / "home/.npmrc").write_text('; a comment\nregistry = "https://npm.example/"\ncafile=/npm.pem\n')
    registries = found(host, "node")
    assert (hosts(registries), registries.ca_file) == ({"npm.example:443": True}, "/npm.pem")
    assert hosts(found(host, "node", npm_config_registry="https://v.example")) == {"v.example:443": True}


def test_mirror_of_cargo_replaces_the_public_registry(host: Path) -> None:
    config = host / "home/.cargo/config.toml"
    config.parent.mkdir()
    config.write_text(
        '[source.crates-io]\nreplace-with = "near"\n[source.near]\nreplace-with = "mirror"\n'
        '[source.mirror]\nregistry = "sparse+https://crates.example/index/"\n[http]\ncainfo = "/crates.pem"\n'
    )
    registries = found(host, "rust")
    assert registries.indexes == ("https://crates.example/index/",)
    assert (hosts(registries), registries.ca_file) == ({"crates.example:443": True}, "/crates.pem")
    assert registries.source == str(config)
    assert found(host, "rust", RegistrySettings(rust=("https://own.example",))).source == "registries.rust"
    assert found(host, "rust", CARGO_HOME="/nonexistent").source == "the public registry"


VENDORED = '[source.crates-io]\nreplace-with = "vendor"\n[source.vendor]\ndirectory = "vendor"\n'
CIRCLE = '[source.crates-io]\nreplace-with = "crates-io"\n'


@pytest.mark.parametrize(
    "text", [VENDORED, CIRCLE, "[", "source = 1\n"], ids=["folder", "circle", "broken", "no table"]
)
def test_folders_and_broken_files_of_cargo_say_nothing(host: Path, text: str) -> None:
    (host / "home/.cargo").mkdir()
    (host / "home/.cargo/config.toml").write_text(text)
    assert found(host, "rust").source == "the public registry"


def test_git_index_of_cargo_is_refused_by_name(host: Path) -> None:
    (host / "home/.cargo").mkdir()
    (host / "home/.cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "m"\n[registries.m]\nindex = "https://git.example/index"\n'
    )
    with pytest.raises(SandboxError) as raised:
        found(host, "rust")
    assert "config.toml" in raised.value.brief
    assert "a git repository" in raised.value.details


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://go.example,direct", {"go.example:443": True}),
        ("off", None),
        ("direct", None),
        ("file:///var/cache/go|https://second.example", None),
        ("https://proxy.golang.org,direct", {"proxy.golang.org:443": False, "sum.golang.org:443": False}),
    ],
)
def test_first_proxy_of_go_replaces_the_public_one(host: Path, value: str, expected: dict[str, bool] | None) -> None:
    """From the variable, and from the file that `go env -w` writes."""
    (host / "home/.config/go").mkdir()
    (host / "home/.config/go/env").write_text(f"GOFLAGS=-mod=mod\nGOPROXY={value}\n")
    public = {"proxy.golang.org:443": False, "sum.golang.org:443": False}
    assert hosts(found(host, "go")) == hosts(found(host, "go", GOENV="/nonexistent", GOPROXY=value))
    assert hosts(found(host, "go")) == (expected or public)
    assert hosts(found(host, "go", GOPROXY="https://v.example")) == {"v.example:443": True}


def test_mirror_of_cpans_clients_replaces_the_public_one(host: Path) -> None:
    """A folder of this host says nothing."""
    assert found(host, "perl").indexes == ("https://cpan.metacpan.org",)
    for options in ("--mirror https://m.example/cpan", "-n --from https://m.example/cpan --mirror-only"):
        assert hosts(found(host, "perl", PERL_CPANM_OPT=options)) == {"m.example:443": True}
    carton = found(host, "perl", PERL_CARTON_MIRROR="https://c.example", PERL_CPANM_OPT="--mirror https://m.example")
    assert (carton.indexes, carton.source) == (("https://c.example",), "PERL_CARTON_MIRROR")
    assert found(host, "perl", PERL_CPANM_OPT="--mirror /srv/cpan --notest").source == "the public registry"


@pytest.mark.parametrize(
    "variable", [{"PERL_CARTON_MIRROR": "http://m.example"}, {"PERL_CPANM_OPT": "-n --mirror http://m.example"}]
)
def test_a_variable_names_no_mirror_of_cpan_without_tls(host: Path, variable: dict[str, str]) -> None:
    """Its hashes come from the mirror, too. Control: our own setting may name it."""
    with pytest.raises(UnusableRegistry, match="no TLS") as raised:
        found(host, "perl", None, **variable)
    assert next(iter(variable)) in raised.value.details
    own = found(host, "perl", RegistrySettings(perl=("http://m.example",)), **variable)
    assert own.indexes == ("http://m.example",)


@pytest.mark.parametrize("url", ["https://user:hunter2@a.example/simple", "ftp://a.example", "a.example"])
def test_url_that_cannot_be_used_is_named_without_its_secret(host: Path, url: str) -> None:
    """The URLs of a list are counted, because no part of one is shown."""
    with pytest.raises(SandboxError) as raised:
        found(host, settings=RegistrySettings(python=("https://b.example", url)))
    assert raised.value.code is ErrorCode.INVALID_INPUT
    assert "registries.python (URL 2)" in raised.value.brief
    assert not re.search(r"hunter2|a\.example", f"{raised.value.brief}{raised.value.details}{raised.value.hint}")


def test_the_setting_with_an_unusable_url_is_named(host: Path) -> None:
    bad = "https://user:hunter2@a.example/simple"
    pip, npmrc = host / "home/.config/pip/pip.conf", host / "home/.npmrc"
    pip.write_text(f"[global]\nindex-url = https://b.example/simple\nextra-index-url = {bad}\n")
    npmrc.write_text(f"registry={bad}\n")
    with pytest.raises(UnusableRegistry, match=rf"of extra-index-url in {pip} "):
        found(host)
    with pytest.raises(UnusableRegistry, match=r"of PIP_EXTRA_INDEX_URL \(URL 2\) "):
        found(host, PIP_EXTRA_INDEX_URL=f"https://b.example {bad}")
    with pytest.raises(UnusableRegistry, match=rf"of registry in {npmrc} "):
        found(host, "node")


OFFERS: dict[str, tuple[Any, str, dict[str, str], str]] = {
    "GOENV": ("go", "{0}env", {"GOENV": "{0}env"}, "GOPROXY=http://10.0.0.5:8080\n"),
    "GOENV=off": ("go", "{0}off", {"GOENV": "{0}off"}, "GOPROXY=http://10.0.0.5:8080\n"),
    "PIP_CONFIG_FILE": ("python", "{0}p", {"PIP_CONFIG_FILE": "{0}p"}, "[global]\nindex-url=http://10.0.0.5:8080\n"),
    "UV_CONFIG_FILE": ("python", "{0}u", {"UV_CONFIG_FILE": "{0}u"}, 'index-url = "http://10.0.0.5:8080"\n'),
    "NPM_CONFIG_USERCONFIG": ("node", "{0}n", {"NPM_CONFIG_USERCONFIG": "{0}n"}, "registry=http://10.0.0.5:8080\n"),
    "CARGO_HOME": (
        "rust", "{0}c/config.toml", {"CARGO_HOME": "{0}c"},
        '[source.crates-io]\nreplace-with = "m"\n[source.m]\nregistry = "sparse+http://10.0.0.5:8080"\n',
    ),
    "XDG_CONFIG_HOME": ("go", "{0}x/go/env", {"XDG_CONFIG_HOME": "{0}x"}, "GOPROXY=http://10.0.0.5:8080\n"),
    "HOME": ("node", "{0}h/.npmrc", {"HOME": "{0}h"}, "registry=http://10.0.0.5:8080\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFERS)
def test_s217_a_file_of_the_current_directory_names_no_registry(
    host: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is refused, as falling back to the public registry would show it the names of internal packages. Control:
    named by its whole path, the same file does.
    """
    which, file, environ, text = OFFERS[name]
    checkout = host / "checkout"
    (checkout / file.format("")).parent.mkdir(parents=True)
    (checkout / file.format("")).write_text(text)
    monkeypatch.chdir(checkout)

    def find(before: str) -> Registries:
        return found(host, which, None, **{key: value.format(before) for key, value in environ.items()})

    assert hosts(find(f"{checkout}/")) == {"10.0.0.5:8080": True}
    if name == "GOENV=off":
        assert find("").source == "the public registry"
        return
    with pytest.raises(UnusableRegistry, match=rf"invalid_input: {name} is a relative path") as raised:
        find("")
    assert raised.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("which", ["python", "go"])
def test_s217_an_index_of_our_own_settings_needs_no_setting_of_a_client(host: Path, which: Any) -> None:
    """Control: without a CA file of our own, the client's could be the one that is meant."""
    own: dict[str, Any] = {which: ("https://own.example",)}
    settings = RegistrySettings(**own, ca_file="/own.pem")
    assert hosts(found(host, which, settings, XDG_CONFIG_HOME="x")) == {"own.example:443": True}
    assert hosts(found(host, "go", None, XDG_CONFIG_HOME="x", GOPROXY="https://v.example")) == {"v.example:443": True}
    with pytest.raises(UnusableRegistry):
        found(host, "python", RegistrySettings(python=("https://own.example",)), XDG_CONFIG_HOME="x")


def test_s217_an_empty_home_is_not_the_current_directory(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / ".npmrc").write_text("registry=http://10.0.0.5:8080\n")
    monkeypatch.chdir(host)
    assert found(host, "node", HOME=str(host)).source != "the public registry"
    assert found(host, "node", HOME="").source == "the public registry"


def test_s217_certificates_of_the_current_directory_are_not_trusted(host: Path) -> None:
    """Control: those of a whole path, and of our own setting."""
    for which, variable in (("python", "PIP_CERT"), ("node", "npm_config_cafile"), ("rust", "CARGO_HTTP_CAINFO")):
        assert found(host, which, None, **{variable: "/ca.pem"}).ca_file == "/ca.pem"
        for value in ("ca.pem", "./ca.pem", "~other/ca.pem"):
            with pytest.raises(UnusableRegistry, match=rf"invalid_input: {variable} is a relative path"):
                found(host, which, None, **{variable: value})
    assert found(host, settings=RegistrySettings(ca_file="/own.pem"), PIP_CERT="ca.pem").ca_file == "/own.pem"


def test_certificates_are_found_as_the_tools_find_them(host: Path) -> None:
    """pip and npm know `~`, npm's files also variables; a file of cargo is relative to the folder above its own."""
    home = host / "home"
    assert found(host, PIP_CERT="~/ca.pem").ca_file == f"{home}/ca.pem"
    assert found(host, "node", npm_config_cafile="~/ca.pem").ca_file == f"{home}/ca.pem"
    (home / ".config/pip/pip.conf").write_text("[global]\ncert = ~/pip.pem\n")
    assert found(host).ca_file == f"{home}/pip.pem"
    for value in ("${HOME}/npm.pem", "~/npm.pem"):
        (home / ".npmrc").write_text(f"cafile={value}\n")
        assert found(host, "node").ca_file == f"{home}/npm.pem"
    (home / ".cargo").mkdir()
    (home / ".cargo/config.toml").write_text('[http]\ncainfo = "certs/ca.pem"\n')
    assert found(host, "rust").ca_file == f"{home}/certs/ca.pem"
    with pytest.raises(UnusableRegistry, match="invalid_input: CARGO_HTTP_CAINFO is a relative path"):
        found(host, "rust", CARGO_HTTP_CAINFO="~/ca.pem")


def test_s217_a_relative_path_in_a_file_is_refused_with_the_file(host: Path) -> None:
    pip, npmrc = host / "home/.config/pip/pip.conf", host / "home/.npmrc"
    pip.write_text("[global]\ncert = ca.pem\n")
    npmrc.write_text("cafile=${UNSET}/ca.pem\n")
    with pytest.raises(UnusableRegistry, match=f"invalid_input: cert in {pip} is a relative path"):
        found(host)
    with pytest.raises(UnusableRegistry, match=f"invalid_input: cafile in {npmrc} is a relative path"):
        found(host, "node")


@pytest.mark.parametrize("name", ["NPM_CONFIG_USERCONFIG", "npm_config_userconfig"])
def test_settings_of_npm_are_found_in_the_home(host: Path, name: str) -> None:
    (host / "home/other").write_text("registry=https://npm.example\n")
    assert hosts(found(host, "node", None, **{name: "~/other"})) == {"npm.example:443": True}
    with pytest.raises(UnusableRegistry, match=f"invalid_input: {name} is a relative path"):
        found(host, "node", None, **{name: "other"})


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2#x@host/simple", "https://user:hunter2?x@host/simple", "https://user:hunter2/x@host/simple",
        "https://user:hunter2@ho\u2100st/simple", "https://user:hunter2[@host/simple", "https://user:1#hunter2@host/",
        "https://user:1?hunter2@host/", "https://user:hunter2@host:99999/", f"https://user:hunter2@{'a' * 70}/",
        "https://user:1/hunter2@host/simple", "https://hunter2/x@host/simple", "https://user:1\\hunter2@host/simple",
        "https://u:hunter2/y", "https://u:hunter2#y", "//u:hunter2/y", "https:/u:hunter2@host/x",
        "https://user%3Ahunter2%40host/simple", "https://user:1/hunter2%40host/simple",
    ],
)  # fmt: skip
def test_no_part_of_a_password_is_shown_or_used(host: Path, url: str) -> None:
    with pytest.raises(UnusableRegistry) as raised:
        found(host, PIP_INDEX_URL=url)
    assert "hunter2" not in f"{raised.value.brief}{raised.value.details}{raised.value.hint}"
    assert "PIP_INDEX_URL" in raised.value.brief
    assert raised.value.__suppress_context__


def test_a_view_of_a_feed_is_no_password(host: Path) -> None:
    """Azure's feeds have an `@` in their path, not in its first segment."""
    url = "https://pkgs.example/org/_packaging/feed@Release/pypi/simple"
    assert found(host, PIP_INDEX_URL=url).indexes == (url,)


def test_a_mirror_without_tls_is_named_without_its_password(host: Path) -> None:
    with pytest.raises(UnusableRegistry, match="no TLS") as raised:
        found(host, "perl", PERL_CARTON_MIRROR="http://u:hunter2/y")
    assert "hunter2" not in f"{raised.value.brief}{raised.value.details}{raised.value.hint}"
