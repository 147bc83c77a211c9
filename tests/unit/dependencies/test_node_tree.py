from __future__ import annotations

import time

import pytest

from devtools.host_speed import slowness
from sandbox.dependencies import node_tree
from sandbox.dependencies.node_tree import (
    Package,
    Place,
    describe_archive,
    lay_out,
    parse_place,
    require_folder,
    write_file_name,
)
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason


def graph(**needs: str) -> dict[str, Package]:
    """Packages by key: `a1="b1 c2"` is the package `a` of version 1, which needs `b` 1 and `c` 2."""
    return {
        key: Package(key[0], f"{key[1]}.0.0", needs={need[0]: need for need in text.split()})
        for key, text in needs.items()
    }


def places(packages: dict[str, Package], **projects: str) -> dict[str, str]:
    wanted = {base.replace("root", ""): {key[0]: key for key in text.split()} for base, text in projects.items()}
    return {
        write_file_name(p.place, p.package.name, "0.0.0")[:-10]: p.package.version for p in lay_out(packages, wanted)
    }


def find(placed: dict[str, str], user: str, name: str) -> str:
    """The version that Node finds for `name` in the package at a place."""
    names = user.split(",")
    levels = [",".join([*names[:length], name]) for length in range(len(names), -1, -1)]
    return next(placed[level] for level in levels if level in placed)


def test_packages_are_placed_as_high_as_possible() -> None:
    placed = places(graph(a1="b1", b1="c1", c1=""), root="a1")
    assert placed == {"a": "1.0.0", "b": "1.0.0", "c": "1.0.0"}


def test_another_version_is_placed_below_its_user() -> None:
    placed = places(graph(a1="b2", b1="", b2=""), root="a1 b1")
    assert placed == {"a": "1.0.0", "b": "1.0.0", "a,b": "2.0.0"}


def test_a_package_does_not_hide_what_another_found_above() -> None:
    """c1 below a needs b1 of the top; then d1 below a needs b2: not in a's folder, or c1 would find it."""
    packages = graph(a1="c2 d2", b1="", b2="", c1="", c2="b1", d1="", d2="b2")
    placed = places(packages, root="a1 b1 c1 d1")
    assert find(placed, "a,c", "b") == "1.0.0"
    assert find(placed, "a,d", "b") == "2.0.0"


def test_packages_that_need_each_other_end() -> None:
    assert places(graph(a1="b1", b1="a1"), root="a1") == {"a": "1.0.0", "b": "1.0.0"}


def test_a_graph_that_nests_for_ever_is_refused() -> None:
    with pytest.raises(RefusedTextError) as raised:
        places(graph(a1="b1", b1="a2", a2="b2", b2="a1"), root="a1")
    assert raised.value.reason is RefusalReason.LIMIT


def test_s188_where_a_package_was_found_is_not_looked_through_for_each_other_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many find one version of `x` at the top, and many others need another one below two packages."""
    monkeypatch.setattr(node_tree, "MAX_EDGES", 10**6)
    monkeypatch.setattr(node_tree, "MAX_LOCKED", 10**6)
    packages = {"x": Package("x", "0.0.0"), "w": Package("w", "0.0.0")}
    for at in range(3_000):
        packages[f"a{at}"] = Package(f"a{at}", "1.0.0", needs={"w": f"w{at}"})
        packages[f"w{at}"] = Package("w", f"{at}.0.0", needs={"x": f"x{at}"})
        packages[f"x{at}"] = Package("x", f"{at}.0.0")
    wanted = {"": {key: key for key in packages if key[0] == "a" or len(key) == 1}}
    members = {f"m{number}": {"x": "x"} for number in range(50_000)}
    began = time.process_time()
    assert len(lay_out(packages, {**wanted, **members})) == len(packages)
    assert time.process_time() - began < 5 * slowness()  # 37 s when each placement compared all finds


@pytest.mark.parametrize("counted", [False, True], ids=["control", "counted"])
def test_s215_a_package_under_many_names_does_not_queue_its_needs_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch, *, counted: bool
) -> None:
    """It needs itself under 300 names, and each of them is a place of its own with 300 needs."""
    queued, place = 0, node_tree._Placement._place

    def count(self: node_tree._Placement, wish: node_tree._Wish) -> list[node_tree._Wish]:
        nonlocal queued
        wishes = place(self, wish)
        queued += len(wishes)
        return wishes

    monkeypatch.setattr(node_tree, "MAX_LOCKED", 100)
    monkeypatch.setattr(node_tree, "MAX_EDGES", 20_000)
    monkeypatch.setattr(node_tree._Placement, "_place", count)
    if not counted:
        monkeypatch.setattr(node_tree._Placement, "_count", lambda *_: None)
    packages = {"a": Package("a", "1.0.0", needs=dict.fromkeys([f"b{at}" for at in range(300)], "a"))}
    with pytest.raises(RefusedTextError) as raised:
        lay_out(packages, {"": {"a": "a"}})
    assert raised.value.reason is RefusalReason.LIMIT
    assert (queued <= node_tree.MAX_EDGES) is counted


def test_s215_the_needs_of_all_projects_are_counted_before_they_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tree, "MAX_EDGES", 10)
    assert lay_out({}, {"": {f"a{at}": "a" for at in range(10)}}) == []
    with pytest.raises(RefusedTextError):
        lay_out({}, {f"m{at}": {"a": "a"} for at in range(11)})


def test_members_of_a_workspace_have_their_own_place() -> None:
    placed = places(graph(a1="", a2=""), root="a1", member="a2")
    assert placed == {"a": "1.0.0", "member:a": "2.0.0"}


@pytest.mark.parametrize(
    ("path", "name", "file"),
    [
        ("node_modules/a", "a", "a@1.0.0-rc.1+b.tgz"),
        ("node_modules/@s/a/node_modules/b", "b", "@s+a,b@1.0.0-rc.1+b.tgz"),
        ("node_modules/a", "@s/real", "a=@s+real@1.0.0-rc.1+b.tgz"),
        ("packages/x/node_modules/a", "a", "packages+x:a@1.0.0-rc.1+b.tgz"),
    ],
)
def test_the_name_of_an_archive_says_where_it_belongs(path: str, name: str, file: str) -> None:
    assert write_file_name(parse_place(path), name, "1.0.0-rc.1+b") == file
    found = describe_archive(file, "0" * 64)
    assert (found.name, found.version, found.file) == (name, "1.0.0-rc.1+b", file)


@pytest.mark.parametrize(
    "file",
    ["a.tgz", "a@1.0.tgz", "a@1.0.0.tar.gz", "..@1.0.0.tgz", "-a@1.0.0.tgz", "a,..@1.0.0.tgz", "a=a@1.0.0.tgz",
     "..+x:a@1.0.0.tgz", "+x:a@1.0.0.tgz", "@s+a+b@1.0.0.tgz", "node_modules@1.0.0.tgz", ":a@1.0.0.tgz",
     "\u0430@1.0.0.tgz"],
)  # fmt: skip
def test_what_has_no_name_of_an_archive_is_refused(file: str) -> None:
    with pytest.raises(ValueError, match="not the name of an npm archive"):
        describe_archive(file, "0" * 64)


@pytest.mark.parametrize("path", ["a", "node_modules/..", "../node_modules/a", "/x/node_modules/a", "node_modules/a/b"])
def test_a_place_outside_of_node_modules_is_refused(path: str) -> None:
    with pytest.raises(RefusedTextError):
        parse_place(path)


def test_a_folder_of_a_member_is_inside() -> None:
    assert require_folder("./packages/a/") == "packages/a"
    for text in ("..", "a/../..", "/a", ".", "a/node_modules", 1):
        with pytest.raises(RefusedTextError):
            require_folder(text)
    assert parse_place("packages/a/node_modules/x") == Place("packages/a", ("x",))
