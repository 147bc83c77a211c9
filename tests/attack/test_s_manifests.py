"""THREATS S19, S170: manifests that smuggle options, addresses, paths or code into the package manager.

The control of each: pip's own reader of the same text, which does as it says.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.dependencies.allowed_pythons import read_allowed_pythons
from sandbox.dependencies.collection import MAX_ENTRIES, MAX_FILES, MAX_LOOKS
from sandbox.dependencies.python_manifest import read_python_manifest
from sandbox.dependencies.requirement_text import parse_requirement
from sandbox.models.dependencies import Manifest, RefusalReason, RefusedEntry, Requirement, RequirementRole

pytestmark = [pytest.mark.must]

SECONDS = 10.0  # for the largest file that is read, on a slow machine

SMUGGLED = {
    "--index-url=https://evil.example/simple": RefusalReason.OPTION,
    "--extra-index-url https://evil.example/simple": RefusalReason.OPTION,
    "-f https://evil.example": RefusalReason.OPTION,
    "-i https://evil.example/simple": RefusalReason.OPTION,
    "a --global-option=--evil": RefusalReason.SYNTAX,
    "a --config-settings=x=y": RefusalReason.SYNTAX,
    "a @ https://evil.example/a.whl": RefusalReason.URL,
    "https://evil.example/a.tar.gz": RefusalReason.PATH,
    "a @ git+https://evil.example/a": RefusalReason.VERSION_CONTROL,
    "git+ssh://git@evil.example/a.git#egg=a": RefusalReason.VERSION_CONTROL,
    "git@evil.example:a.git": RefusalReason.VERSION_CONTROL,
    "-e git+https://evil.example/a#egg=a": RefusalReason.OPTION,
    "a @ file:///etc/passwd": RefusalReason.PATH,
    "file:///etc/passwd": RefusalReason.PATH,
    "../../etc/evil": RefusalReason.PATH,
    "/etc/evil": RefusalReason.PATH,
    "~/evil": RefusalReason.PATH,
    "./evil": RefusalReason.PATH,
    "vendor/evil": RefusalReason.PATH,
    "C:\\evil": RefusalReason.PATH,
    "evil.zip": RefusalReason.PATH,
    "evil.tar.gz": RefusalReason.PATH,
    "evil-1.0-py3-none-any.whl": RefusalReason.PATH,
    "a===../evil": RefusalReason.VERSION,
    "a===${HOME}": RefusalReason.VERSION,
    "${HOME}": RefusalReason.NAME,
    "_evil": RefusalReason.NAME,
    "a; __import__('os').system('x')": RefusalReason.MARKER,
    'a; python_version > "3" or os_name == " --global-option=x"': RefusalReason.MARKER,
    'a; os_name == "--index-url=x"': RefusalReason.MARKER,
    'a; os_name == "${HOME}"': RefusalReason.MARKER,
    "a; " + "(" * 400: RefusalReason.LIMIT,
    "a\n--index-url=https://evil.example": RefusalReason.SYNTAX,
    "a\u2028b": RefusalReason.SYNTAX,
    "\u0430bc": RefusalReason.SYNTAX,
    "a" * 2_000: RefusalReason.LIMIT,
}


def _read(path: str, content: str | bytes, listing: bytes | None = None) -> Manifest:
    """`listing`: the folders of the tree that have a manifest."""
    tree = {path: content.encode() if isinstance(content, str) else content}

    def read(asked: str) -> bytes | None:
        if len(asked) > 1_000:  # git gets it as an argument: the kernel refuses very long ones
            subprocess.run(["true", asked], check=True)
        return listing if asked.startswith("/**/") else tree.get(asked)

    return read_python_manifest(read)


@pytest.mark.parametrize("text", SMUGGLED, ids=lambda text: ascii(text[:50]))
def test_s19_a_smuggled_requirement_is_refused_by_name(text: str) -> None:
    refused = parse_requirement(text, RequirementRole.RUNTIME, "requirements.txt")
    assert isinstance(refused, RefusedEntry)
    assert refused.reason is SMUGGLED[text]
    assert refused.text.isprintable()


def test_s19_a_plain_requirement_is_not_refused() -> None:
    """The control of the table: the reader refuses what is smuggled, not everything."""
    for text in ("a", "A.b_c[x]>=1.0.post1,!=2.*; python_version < '3.12' and extra == 'x'", "a==1+local.1"):
        assert isinstance(parse_requirement(text, RequirementRole.RUNTIME, "x"), Requirement)


def test_s19_an_option_within_a_marker_reaches_an_ordinary_pip(tmp_path: Path) -> None:
    """The control: pip splits such a line at the option, whatever quotes are around it."""
    from pip._internal.req.req_file import break_args_options  # noqa: PLC0415  # pip's own reader

    line = 'a; python_version > "3" or os_name == " --global-option=x"'
    assert "--global-option" in break_args_options(line)[1]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("requirements.txt", "-r https://evil.example/list.txt\n"),
        ("requirements.txt", "-r /etc/evil.txt\n"),
        ("requirements.txt", "-r ../evil.txt\n"),
        ("requirements.txt", "-r ${HOME}/evil.txt\n"),
        ("requirements.txt", "a --hash=md5:00\n"),
        ("tox.ini", "[testenv]\ndeps = -r../evil.txt\n"),
        ("tox.ini", "[testenv]\ndeps = {env:HOME}\n"),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = {git = "https://evil.example/a"}\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = {version = "1", source = "evil"}\n'),
        ("pyproject.toml", '[project]\ndependencies = {evil = "1"}\n'),
        ("pyproject.toml", '[project]\ndependencies = ["a @ file:///x"]\n'),
        ("uv.lock", '[[package]]\nname = "a"\nversion = "1"\nsource = {git = "https://evil.example/a"}\n'),
        ("uv.lock", '[[package]]\nname = "a"\nversion = "1; --evil"\n'),
        ("uv.lock", '[[package]]\nname = "--evil"\nversion = "1"\n'),
        ("poetry.lock", '[[package]]\nname = "a"\nversion = "1"\nsource = {type = "url", url = "https://evil"}\n'),
        ("pylock.toml", '[[packages]]\nname = "a"\nversion = "1"\narchive = {url = "https://evil"}\n'),
        ("pdm.lock", '[[package]]\nname = "a"\nversion = "1"\ngit = "https://evil.example/a"\n'),
        ("pdm.lock", '[[package]]\nname = "a"\nversion = "1"\nurl = "https://evil.example/a.whl"\n'),
        ("pdm.lock", '[[package]]\nname = "a"\nversion = "1"\npath = "../a"\n'),
        ("setup.py", "setup(install_requires=__import__('os').listdir('/'))"),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {git = "https://evil.example/a"}\n',
        ),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["A_b"]\n[tool.uv.sources]\na-b = [{url = "https://evil.whl"}]\n',
        ),
        ("pyproject.toml", '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {path = "../../a"}\n'),
        ("pyproject.toml", '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {workspace = true}\n'),
        pytest.param(
            "pyproject.toml",
            '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {path = """' + "aaa\\\n" * 50_000 + '"""}\n',
            id="a long path",
        ),
        ("Pipfile", '[packages]\na = {path = ["x"]}\nb = {path = {x = "."}}\n'),
        ("Pipfile", '[packages]\na = {git = "https://evil.example/a", ref = "x"}\n'),
        ("Pipfile", '[packages]\na = {file = "https://evil.example/a.whl"}\n'),
        ("Pipfile", '[dev-packages]\na = {path = "../a", editable = true}\n'),
        ("Pipfile", '[packages]\na = {version = "*", index = "evil"}\n'),
        ("Pipfile", '[[source]]\nname = "pypi"\nurl = "https://evil"\n[packages]\na = {index = "pypi"}\n'),
        ("Pipfile", "[packages]\na = '==1 --index-url=https://evil'\n'--evil' = '*'\n"),
        ("Pipfile", '[packages]\na = {version = "*", os_name = "== \'$(evil)\'"}\n'),
        ("Pipfile", '[packages]\na = {version = 1}\nb = {extras = "x"}\n'),
        ("Pipfile.lock", '{"default": {"a": {"git": "https://evil.example/a", "ref": "x"}}}'),
        ("Pipfile.lock", '{"default": {"a": {"file": "https://evil.example/a.whl"}}}'),
        ("Pipfile.lock", '{"default": {"a": {"version": "==1", "hashes": ["md5:00"]}, "--evil": {"version": "==1"}}}'),
        ("Pipfile.lock", '{"default": ["evil"], "develop": {"a": "==1"}}'),
    ],
)
def test_s19_a_manifest_that_points_elsewhere_gives_no_requirement(path: str, content: str) -> None:
    manifest = _read(path, content)
    assert manifest.refused
    assert (manifest.requirements, manifest.locked) == ((), ())


def test_s19_an_index_of_the_repository_is_never_read() -> None:
    manifest = _read(
        "pyproject.toml",
        '[project]\ndependencies = ["a", "b", "c"]\n[[tool.uv.index]]\nurl = "https://evil.example"\ndefault = true\n'
        '[[tool.poetry.source]]\nname = "evil"\nurl = "https://evil.example"\n'
        '[tool.uv.sources]\na = {index = "evil"}\nb = {git = "https://evil.example/b"}\n[tool.pip]\nindex-url = "https://evil.example"\n',
    )
    assert "evil" not in manifest.model_dump_json()
    assert [found.name for found in manifest.requirements] == ["c"]  # the control: the list itself is read


def _folders_that_name_others() -> str:
    sources = "".join(f'a{n} = {{path = "a{n}"}}\n' for n in range(5_000))
    return f"[tool.uv.workspace]\nmembers = {['**/a*'] * 500}\n[tool.uv.sources]\n{sources}"


_PATTERNS = f"[tool.uv.workspace]\nmembers = {['**/a/**/x'] * 100}\n"


def _groups_that_include_others() -> str:
    """8 to the power of 12 entries, unless each group is read once."""
    lines = [f"test{n} = [" + f'{{include-group = "test{n + 1}"}}, ' * 8 + "]\n" for n in range(12)]
    return "[dependency-groups]\n" + "".join(lines).replace("test0 ", "test ")


def _groups_in_a_chain() -> str:
    """Each group includes the next one: all of them were expanded for each, with a look at all names for each entry."""
    lines = [f'a{n} = [{{include-group = "a{n + 1}"}}]\n' for n in range(6_000)]
    return "[dependency-groups]\n" + "".join(lines)


def _extras_in_a_chain() -> str:
    """Each extra asks for the next one, and for 30 that are not there."""
    absent = [",".join(f"x{30 * n + m}" for m in range(30)) for n in range(1_100)]
    lines = [f'e{n} = ["p[e{n + 1},{others}]"]\n' for n, others in enumerate(absent)]
    return '[project]\nname = "p"\n[project.optional-dependencies]\ntest = ["p[e0]"]\n' + "".join(lines)


def _sum(name: str, depth: int) -> str:
    return name if depth == 0 else f"({_sum(name, depth - 1)} + {_sum(name, depth - 1)})"


BOMBS: dict[str, tuple[str, str | bytes]] = {
    "a file that is too large": ("requirements.txt", b"a\n" * 200_000),
    "dots of a key": ("pyproject.toml", "a." * 30_000 + "b = 1\n"),
    "nested arrays": ("pyproject.toml", "a = \n" + "[\n" * 50_000),
    "an unclosed array": ("uv.lock", "a = [\n" + "1,\n" * 300_000),
    "a multi-line string": ("pyproject.toml", 'a = """' + '\\"' * 100_000),
    "spaces of a version": ("setup.py", "python_requires" + " " * 200_000 + "\npython_requires" * 10_000),
    "spaces of .ini lines": ("setup.cfg", "[a]\n" + ("b" + " " * 99) * 2_000 + "\n"),
    "spaces of an .ini line": ("setup.cfg", "[a]\nb" + " " * 200_000 + "c\n"),
    "sections of an .ini": ("setup.cfg", "".join(f"[s{n}]\n" for n in range(4_000))),
    "lines of an .ini": ("setup.cfg", "[a]\n" + "b\n" * 130_000),
    "lines of an .ini in TOML": ("pyproject.toml", "[tool.tox]\nlegacy_tox_ini = '''[a]\n" + "b\n" * 125_000 + "'''"),
    "nested brackets of Python": ("setup.py", "setup(install_requires=" + "[" * 200_000),
    "unary operators of Python": ("setup.py", "x = " + "-" * 200_000 + "1"),
    "tables of a Pipfile": ("Pipfile", "".join(f"[a{n}.b]\nc = 1\n" for n in range(15_000))),
    "members that name each other": ("pyproject.toml", _folders_that_name_others()),
    "patterns of deep folders": ("pyproject.toml", _PATTERNS),
    "folders that share what is below them": ("pyproject.toml", _PATTERNS),
    "sums of Python": ("setup.py", "setup(install_requires=" + "+".join(["[]"] * 60_000) + ")"),
    "attributes of Python": ("setup.py", "x" + ".a" * 100_000),
    "a NUL byte": ("setup.py", "setup(\0)"),
    "bytes that are no text": ("requirements.txt", b"\xff\xfe" * 1_000),
    "too many requirements": ("requirements.txt", "".join(f"a{n}\n" for n in range(30_000))),
    "markers": ("requirements.txt", ("a; " + "(" * 300 + "\n") * 500),
    "sums of long lists": (
        "setup.py",
        "a0 = ["
        + "'x'," * 50_000
        + "]\n"
        + "".join(f"a{n + 1} = a{n} + a{n}\n" for n in range(9))
        + "setup(install_requires=a9)",
    ),
    "lists that name themselves": ("setup.py", "a = a + a\nsetup(install_requires=a)"),
    "groups that include others many times": ("pyproject.toml", _groups_that_include_others()),
    "groups in a chain": ("pyproject.toml", _groups_in_a_chain()),
    "extras in a chain": ("pyproject.toml", _extras_in_a_chain()),
    "sums of empty lists": (
        "setup.py",
        f"c = []\nb = {_sum('c', 8)}\na = {_sum('b', 9)}\n" + "setup(install_requires=a)\n" * 5_000,
    ),
    "expressions of an f-string": ("setup.py", "x = f'" + "{a}" * 80_000 + "'"),
    "spaces of PKG-INFO": ("PKG-INFO", ("Requires-Dist: a" + " " * 980 + "x\n") * 260),
}
LISTINGS = {
    "patterns of deep folders": "\n".join(f"{'a/' * 18}{n}/y" for n in range(5_000)).encode(),
    "folders that share what is below them": "\n".join(f"{'a/' * 18}{n}/y" for n in range(2**17)).encode(),
}
UNREFUSED = {  # they are valid, and cheap to read
    "tables of a Pipfile",
    "sections of an .ini",
    "groups that include others many times",
    "extras in a chain",
}
QUICK_SECONDS = {"spaces of PKG-INFO": 1.5, "extras in a chain": 2.0}
"""Where what the reader took without a bound is not much longer than what the largest file may take."""


@pytest.mark.parametrize("name", BOMBS)
def test_s19_a_manifest_cannot_exhaust_its_reader(name: str) -> None:
    path, content = BOMBS[name]
    asked = (content.encode() if isinstance(content, str) else content) + b"\n# python"  # the word it is read for
    begun = time.process_time()
    manifest = _read(*BOMBS[name], LISTINGS.get(name))
    assert read_allowed_pythons({path: asked}.get) == ""
    assert time.process_time() - begun < QUICK_SECONDS.get(name, SECONDS) * slowness()
    assert manifest.refused or name in UNREFUSED
    assert len(manifest.requirements) <= 2_000


def test_s19_files_that_include_many_others_cannot_exhaust_the_reader() -> None:
    tree = {f"r{n}.txt": b"a\n" * 120_000 for n in range(64)}
    tree["requirements.txt"] = "".join(f"-r {name}\n" for name in tree).encode()
    begun = time.process_time()
    manifest = read_python_manifest(tree.get)
    assert time.process_time() - begun < SECONDS * slowness()
    assert RefusalReason.LIMIT in {refused.reason for refused in manifest.refused}
    assert manifest.requirements, "void: the files are read"


OF_TREE = {
    "pyproject.toml": '[project]\nname = "app"\ndependencies = ["secret-lib", "plain"]\n',
    "libs/x/pyproject.toml": '[project]\nname = "Secret_Lib"\ndependencies = ["inner"]\n',
}


def _read_tree(tree: dict[str, str]) -> tuple[Manifest, list[str]]:
    """What the manifests declare, and the paths that were read."""
    asked = list[str]()

    def read(path: str) -> bytes | None:
        asked.append(path)
        return tree[path].encode() if path in tree else None

    return read_python_manifest(read), asked


@pytest.mark.parametrize(
    "line",
    [
        "-e ../x",
        "-e ./libs/../../x",
        "libs/../../x/",
        "-e /libs/x",
        "file:///libs/x",
        "file:../x",
        "-e ~/x",
        "-e $HOME/x",
    ],
)
def test_s170_a_folder_of_a_requirements_file_stays_in_the_tree(line: str) -> None:
    manifest, asked = _read_tree(
        OF_TREE | {"requirements.txt": f"{line}\n", "../x/pyproject.toml": '[project]\nname = "x"'}
    )
    assert not [path for path in asked if path.startswith(("/l", "~", "$", "file")) or ".." in path.split("/")]
    assert [found.text for found in manifest.refused] == [line]


def test_s170_a_package_that_a_requirements_file_names_by_its_folder_is_asked_of_no_registry() -> None:
    """Who registers the name there would be installed. Control: without the line the name is asked for."""
    plain, _ = _read_tree(OF_TREE)
    assert [found.name for found in plain.requirements] == ["secret-lib", "plain"]
    named, _ = _read_tree(OF_TREE | {"requirements.txt": "-e ./libs/x\n"})
    assert [found.name for found in named.requirements] == ["plain", "inner"]


def test_s170_many_folders_of_a_requirements_file_cannot_exhaust_the_reader() -> None:
    lines = "".join(f"-e ./f{number}\n" for number in range(20_000))
    begun = time.process_time()
    manifest, asked = _read_tree({"requirements.txt": lines})
    assert len(asked) <= MAX_LOOKS
    assert len(manifest.refused) <= MAX_ENTRIES + MAX_FILES
    assert time.process_time() - begun < SECONDS * slowness()
