"""What an index would serve: the wheel, installed into an environment of its own, away from the checkout."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections import defaultdict
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

import sandbox
from devtools.daemon import serving
from devtools.indexpage import without_relative_links

pytestmark = pytest.mark.xdist_group("package")  # one environment, which takes longest to make

ROOT = Path(sandbox.__file__).parents[1]
SITE = next(path for path in sys.path if path.endswith("site-packages"))
_RELATIVE = re.compile(r"\]\((?!https?://|#)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-I", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (found,) = folder.glob("space_sandbox-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without an index the dependencies are those of this environment: what the wheel requires, and no extra.

    The pip is of this environment too, and compiles nothing: to install one and to compile all takes 5 s.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-I", "-m", "pip", "--python", folder / "bin" / "python", "install"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*map(str, [*pip, *options, wheel])], check=True, capture_output=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    link_dependencies(site, find_dependencies("space-sandbox"))
    return folder


def find_dependencies(name: str) -> set[NormalizedName]:
    """The names of the distributions that a plain installation of `name` brings, directly or not."""
    todo, found = [(name, "")], {(name, "")}
    while todo:
        name, extra = todo.pop()
        for requirement in map(Requirement, metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                new = {(requirement.name, one) for one in {"", *requirement.extras}} - found
                found |= new
                todo += new
    return {canonicalize_name(name) for name, _ in found} - {"space-sandbox"}


def link_dependencies(site: Path, wanted: set[NormalizedName]) -> None:
    """Link the packages of these distributions below `site`; one that others own too (a namespace) file by file."""
    files: dict[str, list[tuple[NormalizedName, Path]]] = defaultdict(list)
    for distribution in metadata.distributions(path=[SITE]):
        name = canonicalize_name(distribution.name)  # which is read from a file each time
        for file in distribution.files or []:
            if file.parts[0] != "..":
                files[file.parts[0]].append((name, Path(file)))
    for top, owned in files.items():
        shared = not {owner for owner, _ in owned} <= wanted
        for path in {path for owner, path in owned if owner in wanted} if shared else {Path(top)}:
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            if not (site / path).exists():
                (site / path).symlink_to(Path(SITE, path))


def printed(*argv: object, cwd: Path) -> str:
    done = subprocess.run([*map(str, argv)], cwd=cwd, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["space-sandbox", "sandbox"])
def test_the_wheel_has_a_command_of_either_name(environment: Path, tmp_path: Path, name: str) -> None:
    """`uvx space-sandbox` looks for a command that is named as the package is."""
    assert printed(environment / "bin" / name, "--version", cwd=tmp_path).endswith(sandbox.__version__)


def test_the_installed_package_is_typed_and_carries_its_resources(environment: Path, tmp_path: Path) -> None:
    words = (
        "import sandbox; from sandbox.config import find_resources; print(sandbox.__file__, find_resources('policies'))"
    )
    module, policies = printed(environment / "bin" / "python", "-I", "-c", words, cwd=tmp_path).split()
    assert Path(module).is_relative_to(environment), "void: it is the checkout"
    assert Path(module).with_name("py.typed").is_file()
    assert Path(policies).is_relative_to(environment)
    assert (Path(policies) / "container.toml").is_file()
    assert (Path(policies).parent / "images" / "init" / "init.c").is_file()


def test_pages_that_messages_name_are_installed(environment: Path, tmp_path: Path) -> None:
    assert printed(environment / "bin" / "sandbox", "docs", "docs/profiles.md", cwd=tmp_path).startswith("# Profiles")


def test_the_list_of_threats_is_installed(environment: Path, tmp_path: Path) -> None:
    words = ("doctor", "--attack", "--explain", "--only", "S01")
    assert "with `-I`" in printed(environment / "bin" / "sandbox", *words, cwd=tmp_path)


def test_a_client_of_the_installed_package_starts_its_own_interpreter(environment: Path, tmp_path: Path) -> None:
    snippet = printed(environment / "bin" / "space-sandbox", "mcp", "config", "codex", cwd=tmp_path)
    assert f'command = "{environment}/bin/python"\nargs = ["-I", "-m", "sandbox"' in snippet


def test_a_plain_installation_serves_its_home(environment: Path, tmp_path: Path) -> None:
    """The daemon imports what commands use, some of which needs an extra."""
    command = ["env", "-i", str(environment / "bin" / "python")]
    looks = [*command, "-I", "-c", "import temporalio"]
    assert subprocess.run(looks, capture_output=True, check=False).returncode, "void"
    with serving(tmp_path / "home", program=[*command, "-I", "-m", "sandbox"]) as daemon:
        assert daemon.call("space_repo_list") == {"repositories": []}


def test_a_command_that_needs_an_extra_names_it(environment: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [environment / "bin" / "sandbox", "--home", home, "cluster", "workers"]
    variables = {**os.environ, "SANDBOX_CLUSTER_ADDRESS": "127.0.0.1:1"}
    done = subprocess.run([*map(str, words)], env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert "space-sandbox[temporal]" in done.stderr, done.stderr


def about(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_index_says_what_it_is_and_links_nowhere_that_is_not_there(wheel: Path) -> None:
    said = about(wheel)
    assert "Typing :: Typed" in (said.get_all("Classifier") or [])
    text = str(said.get_payload())
    assert text.startswith("# Space Sandbox")
    assert _RELATIVE.search((ROOT / "README.md").read_text()), "void: there are no such links"
    assert not _RELATIVE.search(text)
    assert "`docs/agents.md`" in text


def test_links_to_elsewhere_stay() -> None:
    text = "[a](https://x.example) [b](#c) [d](docs/e.md#f)\n\n## Documentation\n\n[g](h.md)\n\nMIT licence.\n"
    assert without_relative_links(text) == "[a](https://x.example) [b](#c) `docs/e.md#f`\n\nMIT licence.\n"


def test_images_of_the_checkout_are_left_out() -> None:
    text = "a\n\n![b](docs/c.svg)\n\nd ![e](https://x.example/f.svg)\n"
    assert without_relative_links(text) == "a\n\nd ![e](https://x.example/f.svg)\n"
