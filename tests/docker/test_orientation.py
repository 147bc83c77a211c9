"""`repo fetch` and `repo map` on repositories that are hard to orient in: real git, real ctags in a real container."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.context import ctags
from sandbox.engine.connection import DockerEngine
from sandbox.errors import SandboxError
from sandbox.store.mapped_tree import Symbol
from sandbox.workbench import Workbench

ENVELOPE_BYTES = 8 * 1024
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
ENVELOPE_FIELDS = ("tree", "tree_total", "tree_truncated", "readme", "entrypoints", "doc_hints", "signals")

Make = Callable[[Path], None]


def adoc(folder: Path) -> None:
    (folder / "content").mkdir()
    (folder / "docs").mkdir()
    (folder / "README.adoc").write_text("= A book\n")
    for number in range(20):
        (folder / "content" / f"chapter{number}.adoc").write_text("== Chapter\n")
        (folder / "docs" / f"note{number}.md").write_text("# Note\n")


def licence_only(folder: Path) -> None:
    (folder / "LICENSE").write_text("MIT\n")


def many_files(folder: Path) -> None:
    for number in range(10_000):
        path = folder / f"d{number % 50}" / f"module_{number:05}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"def function_{number}(argument):\n    return argument\n")


def odd_names(folder: Path) -> None:
    for name in (b"caf\xe9.py", b"\xff\xfe.txt", "café.py".encode(), b"-rf.py", b"sp ace.py", b"100%25.py"):
        (folder / os.fsdecode(name)).write_bytes(b"def odd():\n    pass\n")


def huge_readme(folder: Path) -> None:
    (folder / "README.md").write_text("# Long\n" + "word \N{SNOWMAN} " * 700_000)
    (folder / "main.c").write_text("int main(void) { return 0; }\n")


def only_symlinks(folder: Path) -> None:
    for name, target in (
        ("passwd", "/etc/passwd"),
        ("self", "self"),
        ("up", "../../.."),
        ("README.md", "/etc/hostname"),
    ):
        (folder / name).symlink_to(target)


def lfs_pointer(folder: Path) -> None:
    (folder / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (folder / "model.bin").write_bytes(LFS_POINTER)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=/dev/null")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def repository(folder: Path, make: Make) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    make(folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "content")
    return folder


@pytest.fixture
def workbench(tmp_path: Path, engine: DockerEngine, base_image: str) -> Iterator[Workbench]:
    assert engine
    assert base_image
    with Workbench(tmp_path / "home", allow_file=True) as found:
        yield found


@pytest.mark.parametrize(
    "make",
    [adoc, licence_only, many_files, odd_names, huge_readme, only_symlinks, lfs_pointer],
    ids=lambda m: m.__name__,
)
def test_any_repository_gets_an_envelope_a_checkout_and_a_map_within_budget(
    workbench: Workbench, tmp_path: Path, make: Make
) -> None:
    remote = repository(tmp_path / "remote", make)

    fetched = workbench.fetch(str(remote))

    envelope = {k: v for k, v in fetched.model_dump(mode="json").items() if k in ENVELOPE_FIELDS}
    assert len(json.dumps(envelope, ensure_ascii=False).encode()) <= ENVELOPE_BYTES
    present = [p for p in fetched.local_path.rglob("*") if p.is_symlink() or p.is_file()]
    assert fetched.files_count == fetched.tree_total == len(present)
    repo_id = workbench.repositories()[0].id
    for budget in (1, 50, 1500):
        found = workbench.map(repo_id, budget)
        assert found.tokens_estimated <= budget
        assert len(found.map) <= 4 * budget
        assert found.files_total == fetched.tree_total


def test_a_book_does_not_look_empty_and_a_licence_does(workbench: Workbench, tmp_path: Path) -> None:
    book = workbench.clone(str(repository(tmp_path / "book", adoc))).context
    licence = workbench.clone(str(repository(tmp_path / "licence", licence_only))).context

    assert (book.signals.sparse, book.signals.has_docs_dir, book.signals.has_readme) == (False, True, True)
    assert book.signals.doc_file_count == 41
    assert book.readme is not None
    assert {"content/**", "docs/**"} <= set(book.doc_hints)
    assert (licence.signals.sparse, licence.readme) == (True, None)


def test_links_are_never_followed_out_of_the_checkout(workbench: Workbench, tmp_path: Path) -> None:
    fetched = workbench.fetch(str(repository(tmp_path / "remote", only_symlinks)))

    assert fetched.readme is None  # a link named README.md, to a file of the host
    assert (fetched.local_path / "passwd").is_symlink()
    assert workbench.map(workbench.repositories()[0].id).map == ""


def test_a_pointer_stays_a_pointer(workbench: Workbench, tmp_path: Path) -> None:
    fetched = workbench.fetch(str(repository(tmp_path / "remote", lfs_pointer)))

    assert (fetched.local_path / "model.bin").read_bytes() == LFS_POINTER


def test_a_submodule_stays_empty_and_is_not_fetched(workbench: Workbench, tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner", licence_only)
    outer = repository(tmp_path / "outer", lfs_pointer)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    git(outer, "commit", "-q", "-m", "submodule")

    fetched = workbench.fetch(str(outer))

    assert "sub" in fetched.tree
    assert not (fetched.local_path / "sub" / "LICENSE").exists()


def test_one_directory_alone(workbench: Workbench, tmp_path: Path) -> None:
    remote = repository(tmp_path / "remote", adoc)

    fetched = workbench.fetch(str(remote), subpath="docs/")

    assert fetched.files_count == 20
    assert sorted(p.name for p in fetched.local_path.iterdir()) == ["docs"]
    with pytest.raises(SandboxError, match="no directory"):
        workbench.fetch(str(remote), subpath="nope")
    with pytest.raises(SandboxError, match="traversal"):
        workbench.fetch(str(remote), subpath="../docs")


def test_the_map_finds_what_matters(workbench: Workbench, tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "engine.py").write_text(
            "class CentralEngine:\n    def start_engine(self):\n        pass\n\nunused_thing = 1\n"
        )
        for number in range(5):
            (folder / f"user{number}.py").write_text(
                "from engine import CentralEngine\nCentralEngine().start_engine()\n"
            )

    workbench.clone(str(repository(tmp_path / "remote", make)))
    repo_id = workbench.repositories()[0].id

    found = workbench.map(repo_id, 30)

    assert found.map.splitlines()[:2] == ["engine.py", "  1: class CentralEngine"]
    assert workbench.map(repo_id, 1500, ["user*.py"]).files_total == 5


def test_a_map_of_more_than_ctags_may_print_says_so(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(folder: Path) -> None:
        (folder / "a.py").write_text("def first_function(argument): pass\n" * 50)

    workbench.clone(str(repository(tmp_path / "remote", make)))
    repo_id = workbench.repositories()[0].id
    assert workbench.map(repo_id).map.count("first_function") == 50
    assert "ctags printed more" not in caplog.text

    monkeypatch.setattr(ctags, "OUTPUT_BYTES", 1000)
    other = workbench.clone(str(repository(tmp_path / "other", make))).repository.id

    assert 1 <= workbench.map(other).map.count("first_function") < 50
    assert workbench.map(repo_id).map.count("first_function") == 50  # kept, and what was cut is not
    monkeypatch.undo()
    assert workbench.map(other).map.count("first_function") == 50
    assert "ctags printed more than 1000 bytes" in caplog.text


def test_ctags_prints_no_more_of_a_symbol_than_the_map_shows(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints of a large repository is bounded, so each byte too many costs a symbol."""
    printed: list[bytes] = []

    def parse(output: bytes) -> list[tuple[str, Symbol]]:
        printed.append(output)
        return []

    monkeypatch.setattr(ctags, "parse_symbols", parse)

    def make(folder: Path) -> None:
        (folder / "a.c").write_text(
            "static int once(int argument) { return argument; } /* a long rest of the line */\n"
        )

    workbench.clone(str(repository(tmp_path / "remote", make)))
    workbench.map(workbench.repositories()[0].id)

    assert b"\n".join(printed) == b"once\t./0/a.c\t1\tfunction\t\t(int argument)\n"


def test_own_code_is_shown_and_an_edit_costs_the_edit(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(folder: Path) -> None:
        for path, text in (
            ("external/big/lib.c", "int library_function(int a) { return a; }\n"),
            ("bundle/gen.c", "int generated_function(int a) { return a; }\n"),
            (".gitattributes", "bundle/** linguist-vendored\n"),
            ("src/game.fnl", "(fn start-game [world]\n  (library world))\n"),
            ("src/main.c", "int own_function(int a) { return a; }\n"),
        ):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    profiles = workbench.home / "profiles"
    profiles.mkdir()
    (profiles / "game.toml").write_text(
        'label = "g"\nimage = "base"\npriority = 99\n[[detect.any]]\nfile = "src/game.fnl"\n[[definition]]\n'
        'language = "Fennel"\nsuffixes = [".fnl"]\npattern = \'^ *\\(fn +([a-z-]+)\'\n'
    )
    asked: list[list[str]] = []
    read_symbols = ctags.read_symbols

    def read(run: ctags.CtagsRun, paths: dict[str, str]) -> ctags.FoundSymbols:
        asked.append(sorted(path.partition("/")[2] for path in paths))
        return read_symbols(run, paths)

    monkeypatch.setattr(ctags, "read_symbols", read)
    repo_id = workbench.clone(str(repository(tmp_path / "remote", make))).repository.id

    first = workbench.map(repo_id)
    assert {line.split(": ")[-1] for line in first.map.splitlines()} == {
        "src/main.c", "src/game.fnl", "function own_function(int a)", "function start-game",
    }  # fmt: skip
    assert first.vendored == {"external": 1, "bundle": 1}
    assert workbench.map(repo_id) == first
    assert "library_function" in workbench.map(repo_id, include_globs=["external/*"]).map
    task = workbench.create_task(repo_id, "edit").id
    workbench.write_file(task, "src/added.c", "int added_function(void) { return 1; }\n", None)
    workbench.commit(task, "add")
    assert "added_function" in workbench.map(task).map
    assert "own_function" in workbench.map(task).map
    assert asked[1:] == [["lib.c"], ["added.c"]]
