"""Workspaces: their lock files are followed, and no registry is asked for what is in the tree."""

from __future__ import annotations

import base64
import json

import pytest

from sandbox.dependencies import node_steps as steps
from sandbox.dependencies.layer_plan import LayerPlan
from tests.unit.dependencies.manifest_trees import reader

SRI = f"sha512-{base64.b64encode(b'a' * 64).decode()}"
ROOT = {"private": True, "name": "r", "workspaces": ["packages/*"], "devDependencies": {"lerna": "^8.0.0"}}
MEMBERS = {
    "packages/a/package.json": json.dumps({"name": "a", "devDependencies": {"jest": "^29.0.0", "b": "1.0.0"}}),
    "packages/b/package.json": json.dumps({"name": "b", "dependencies": {"lerna": "^7.0.0"}}),
}


def _yarn_1(*entries: str) -> str:
    blocks = (
        f'{entry.rpartition("@")[0]}@^{entry.rpartition("@")[2]}:\n  version "{entry.rpartition("@")[2]}"\n'
        f"  integrity {SRI}\n"
        for entry in entries
    )
    return "# yarn lockfile v1\n\n\n" + "\n".join(blocks)


def _yarn_4(members: dict[str, str], *entries: str) -> str:
    def write(key: str, version: str, resolution: str, needs: str) -> str:
        listed = "".join(f'    {need.rpartition("@")[0]}: "npm:^{need.rpartition("@")[2]}"\n' for need in needs.split())
        needed = f"  dependencies:\n{listed}" if listed else ""
        return f'"{key}":\n  version: {version}\n  resolution: "{resolution}"\n{needed}'

    blocks = [
        write(f"{name}@workspace:{folder}", "0.0.0-use.local", f"{name}@workspace:{folder}", needs)
        for (name, folder), needs in {tuple(key.split()): value for key, value in members.items()}.items()
    ]
    for entry in entries:
        name, _, version = entry.rpartition("@")
        blocks.append(write(f"{name}@npm:^{version}", version, f"{name}@npm:{version}", ""))
    return "__metadata:\n  version: 8\n\n" + "\n".join(blocks)


ALL = ("jest@29.0.0", "lerna@8.0.0", "lerna@7.0.0")
LOCKS = {
    "yarn-1": _yarn_1(*ALL),
    "yarn-4": _yarn_4({"r .": "lerna@8.0.0", "a packages/a": "jest@29.0.0", "b packages/b": "lerna@7.0.0"}, *ALL),
}


def _plan(files: dict[str, str], needs: tuple[str, ...] = ()) -> LayerPlan:
    found = steps.plan_layer(reader(files), needs)
    assert found is not None
    return found


def _places(found: LayerPlan) -> list[str]:
    return [row["file"] for row in json.loads(found.fetch_files["packages.json"])]


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_packages_of_yarns_members_are_placed(lock: str) -> None:
    """Not what they need of each other. Where the root has another version, below the member."""
    found = _plan({"package.json": json.dumps(ROOT), **MEMBERS, "yarn.lock": lock})
    assert _places(found) == ["jest@29.0.0.tgz", "lerna@8.0.0.tgz", "packages+b:lerna@7.0.0.tgz"]
    assert found.refused == ()
    asked = json.loads(found.fetch_files["projects.json"])  # chosen from if the registry lacks what is locked
    assert set(asked) == {""}


def test_members_that_a_newer_yarn_lock_names_are_placed_also_if_the_patterns_are_refused() -> None:
    files = {f"packages/m{n}/package.json": json.dumps({"name": f"m{n}"}) for n in range(61)}
    found = _plan({"package.json": json.dumps(ROOT), **files, **MEMBERS, "yarn.lock": LOCKS["yarn-4"]})
    assert _places(found) == ["jest@29.0.0.tgz", "lerna@8.0.0.tgz", "packages+b:lerna@7.0.0.tgz"]
    assert [refused.text for refused in found.refused] == ["workspace packages/*"]


def _npm_lock(**places: str | dict[str, object]) -> str:
    entries: dict[str, object] = {
        place: entry if isinstance(entry, dict) else {"version": entry, "integrity": SRI}
        for place, entry in places.items()
    }
    links = {f"node_modules/{name}": {"resolved": f"packages/{name}", "link": True} for name in "ab"}
    return json.dumps({"lockfileVersion": 3, "packages": {"": ROOT, **links, **entries}})


def _pnpm_lock(**importers: str) -> str:
    written = "".join(
        f"  {folder}:\n    dependencies:\n"
        + "".join(
            f"      {need.rpartition('@')[0]}:\n        version: {need.rpartition('@')[2]}\n" for need in needs.split()
        )
        for folder, needs in importers.items()
    )
    packages = "".join(f"  {name}:\n    resolution: {{integrity: {SRI}}}\n" for name in ALL)
    return f"lockfileVersion: '9.0'\nimporters:\n{written}packages:\n{packages}"


INCOMPLETE = {
    "npm": ("package-lock.json", _npm_lock(**{"node_modules/lerna": "8.0.0"})),
    "pnpm": ("pnpm-lock.yaml", _pnpm_lock(**{".": "lerna@8.0.0"})),
    "yarn-1": ("yarn.lock", _yarn_1("lerna@8.0.0", "lerna@7.0.0")),
    "yarn-4": ("yarn.lock", _yarn_4({"r .": "lerna@8.0.0"}, "lerna@8.0.0", "lerna@7.0.0")),
}
COMPLETE = {
    "npm": (
        "package-lock.json",
        _npm_lock(
            **{"node_modules/lerna": "8.0.0", "node_modules/jest": "29.0.0", "packages/b/node_modules/lerna": "7.0.0"}
        ),
    ),
    "pnpm": (
        "pnpm-lock.yaml",
        _pnpm_lock(**{".": "lerna@8.0.0", "packages/a": "jest@29.0.0", "packages/b": "lerna@7.0.0"}),
    ),
}


@pytest.mark.parametrize(("path", "lock"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_lock_file_that_lacks_a_package_of_a_member_is_followed_and_asks_for_no_more(path: str, lock: str) -> None:
    """What it lacks may be a package of the tree that was not found, or one of an index that it does not name."""
    found = _plan({"package.json": json.dumps(ROOT), **MEMBERS, path: lock})
    assert "lerna@8.0.0.tgz" in _places(found)
    assert found.asked == ("lerna@^8.0.0",)


@pytest.mark.parametrize(("path", "lock"), COMPLETE.values(), ids=COMPLETE)
def test_a_lock_file_with_all_packages_of_members_is_followed(path: str, lock: str) -> None:
    found = _plan({"package.json": json.dumps(ROOT), **MEMBERS, path: lock})
    assert _places(found) == ["jest@29.0.0.tgz", "lerna@8.0.0.tgz", "packages+b:lerna@7.0.0.tgz"]


def test_a_member_that_the_root_needs_makes_no_lock_file_incomplete() -> None:
    """By a range, not `workspace:`, as npm and yarn 1 write it."""
    root = ROOT | {"dependencies": {"a": "^1.0.0"}}
    found = _plan({"package.json": json.dumps(root), **MEMBERS, "yarn.lock": LOCKS["yarn-1"]})
    assert len(_places(found)) == 3


def test_members_that_are_not_known_end_no_lock_file() -> None:
    files = {f"many/m{n}/package.json": json.dumps({"name": f"m{n}"}) for n in range(61)}
    root = ROOT | {"workspaces": ["packages/*", "many/*"]}
    member = {"packages/a/package.json": json.dumps({"name": "a", "dependencies": {"m1": "1.0.0", "jest": "^29.0.0"}})}
    found = _plan({"package.json": json.dumps(root), **files, **MEMBERS, **member, "yarn.lock": LOCKS["yarn-1"]})
    assert len(_places(found)) == 3


def test_of_a_yarn_member_no_package_of_another_registry_is_asked_for() -> None:
    """The public one may have another of its name. Control: one of the public registry."""
    for host, expected in (("e.test", []), ("registry.yarnpkg.com", ["jest@29.0.0.tgz"])):
        entry = f'  version "29.0.0"\n  resolved "https://{host}/jest/-/jest-29.0.0.tgz#00"\n'
        lock = LOCKS["yarn-1"].replace('  version "29.0.0"\n', entry)
        found = _plan({"package.json": json.dumps(ROOT), **MEMBERS, "yarn.lock": lock})
        assert _places(found) == [*expected, "lerna@8.0.0.tgz", "packages+b:lerna@7.0.0.tgz"]
    lock = LOCKS["yarn-4"].replace("jest@npm:29.0.0", "jest@npm:29.0.0::__archiveUrl=https%3A%2F%2Fe.test")
    found = _plan({"package.json": json.dumps(ROOT), **MEMBERS, "yarn.lock": lock})
    assert _places(found) == ["lerna@8.0.0.tgz", "packages+b:lerna@7.0.0.tgz"]


ELSEWHERE: dict[str, dict[str, object]] = {
    "link": {"link": True, "resolved": "vendor/x"},
    "git": {"version": "1.0.0", "resolved": "git+ssh://git@e.test/x.git"},
}


@pytest.mark.parametrize("entry", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_a_lock_file_takes_from_elsewhere_is_asked_of_no_registry(entry: dict[str, object]) -> None:
    """It is there as far as a lock file can say. Control: nor is it if the lock file lacks another package."""
    root = ROOT | {"dependencies": {"@acme/x": "^1.0.0"}}
    member = {"packages/a/package.json": json.dumps({"name": "a", "dependencies": {"@acme/x": "1", "jest": "^29.0.0"}})}
    files = {"package.json": json.dumps(root), **member}
    places: dict[str, str | dict[str, object]] = {"node_modules/@acme/x": entry, "node_modules/jest": "29.0.0"}
    lock = json.loads(_npm_lock(**places, **{"node_modules/lerna": "8.0.0"}))
    lock["packages"][""] = root
    found = _plan({**files, "package-lock.json": json.dumps(lock)})
    assert (_places(found), found.asked) == (["jest@29.0.0.tgz", "lerna@8.0.0.tgz"], ("lerna@^8.0.0",))
    del lock["packages"]["node_modules/lerna"]
    found = _plan({**files, "package-lock.json": json.dumps(lock)})
    assert (_places(found), found.asked) == ([], ("jest@^29.0.0", "lerna@^8.0.0"))


def test_what_a_pnpm_lock_links_is_asked_of_no_registry() -> None:
    root = {"name": "r", "devDependencies": {"lerna": "^8.0.0", "a": "^1.0.0"}}
    member = json.dumps({"name": "a", "dependencies": {"@acme/x": "^1.0.0", "jest": "^29.0.0"}})
    files = {"package.json": json.dumps(root), "pnpm-workspace.yaml": "packages:\n  - packages/*\n"}
    files["packages/a/package.json"] = member
    lock = _pnpm_lock(**{".": "lerna@8.0.0 a@link:packages/a", "packages/a": "'@acme/x'@link:../x jest@29.0.0"})
    found = _plan({**files, "pnpm-lock.yaml": lock})
    assert (_places(found), found.asked) == (["jest@29.0.0.tgz", "lerna@8.0.0.tgz"], ("lerna@^8.0.0",))
    found = _plan({**files, "pnpm-lock.yaml": lock.replace("      lerna:\n        version: 8.0.0\n", "")})
    assert (_places(found), found.asked) == ([], ("jest@^29.0.0", "lerna@^8.0.0"))


@pytest.mark.parametrize("pattern", ["{libs,apps}/*", "@(libs|apps)/*", "libs/{s,t}", "+(libs)/s"])
def test_with_members_that_a_pattern_hides_none_is_asked_for(pattern: str) -> None:
    """Marks that are not read: what a member needs may be one of those. With a lock file, and without one."""
    root = ROOT | {"workspaces": ["packages/*", pattern]}
    files = {
        "package.json": json.dumps(root),
        "packages/a/package.json": json.dumps({"name": "a", "dependencies": {"@acme/secret": "^1.0.0"}}),
        "libs/s/package.json": json.dumps({"name": "@acme/secret"}),
    }
    found = _plan(files)
    assert found.asked == ("lerna@^8.0.0",)
    assert [entry.text for entry in found.refused] == [f"workspace {pattern}"]
    lock = json.loads(_npm_lock(**{"node_modules/lerna": "8.0.0"}))
    lock["packages"][""] = root
    assert _places(_plan({**files, "package-lock.json": json.dumps(lock)})) == ["lerna@8.0.0.tgz"]


@pytest.mark.parametrize("per_folder", [45, 59])
def test_a_lock_file_is_read_before_members_and_members_beyond_the_limit_are_not_asked_for(per_folder: int) -> None:
    folders = ("packages", "apps", "libs")
    root = ROOT | {"workspaces": [f"{folder}/*" for folder in folders]}
    files = {"package.json": json.dumps(root)}
    for folder in folders:
        for number in range(per_folder):
            needs = {"jest": "^29.0.0", f"@acme/libs{per_folder - 1}": "^1.0.0"}
            member = {"name": f"@acme/{folder}{number}", "dependencies": needs}
            files[f"{folder}/{number}/package.json"] = json.dumps(member)
    assert _plan(files).asked == ("lerna@^8.0.0",)
    lock = json.loads(_npm_lock(**{"node_modules/lerna": "8.0.0", "node_modules/jest": "29.0.0"}))
    lock["packages"][""] = root
    found = _plan({**files, "package-lock.json": json.dumps(lock)})
    assert (_places(found), found.refused) == (["jest@29.0.0.tgz", "lerna@8.0.0.tgz"], ())
    assert len(_places(_plan({**files, "yarn.lock": LOCKS["yarn-1"]}))) >= 1


@pytest.mark.parametrize("text", ["{", "[]"])
def test_with_a_member_that_cannot_be_read_none_is_asked_for(text: str) -> None:
    files = {"package.json": json.dumps(ROOT), **MEMBERS, "packages/c/package.json": text}
    assert _plan(files).asked == ("lerna@^8.0.0",)


def test_a_member_that_needs_the_root_asks_no_registry_for_it() -> None:
    """The root itself may name a published version of its own."""
    root = ROOT | {"name": "@acme/root"}
    member = json.dumps({"name": "a", "dependencies": {"@acme/root": "^1.0.0", "jest": "^29.0.0"}})
    files = {"packages/a/package.json": member}
    assert _plan({"package.json": json.dumps(root), **files}).asked == ("jest@^29.0.0", "lerna@^8.0.0")


CATALOG = (
    "packages:\n  - 'packages/*'\ncatalog:\n  vitest: ^2.0.0\n  '@s/x': ^1.0.0\n"
    "catalogs:\n  old:\n    react: ^17.0.0\n  odd:\n    bad: github:a/b\n"
)
USES = {
    "package.json": json.dumps({"name": "r", "devDependencies": {"vitest": "catalog:", "@s/x": "catalog:default"}}),
    "packages/a/package.json": json.dumps({"name": "a", "dependencies": {"react": "catalog:old"}}),
    "pnpm-workspace.yaml": CATALOG,
}


def test_ranges_of_a_catalog_of_pnpm_are_asked_for() -> None:
    """Control: names that no catalog has, and what may not stand in package.json either, are refused."""
    found = _plan(USES)
    assert found.wanted == ("@s/x@^1.0.0", "react@^17.0.0", "vitest@^2.0.0")
    assert found.refused == ()
    bad = {"bad": "catalog:odd", "none": "catalog:", "lost": "catalog:lost"}
    found = _plan(USES | {"package.json": json.dumps({"dependencies": bad | {"vitest": "catalog:"}})})
    assert [(entry.text, entry.reason.value) for entry in found.refused] == [
        ("bad github:a/b", "version_control"),
        ("none catalog:", "version"),
        ("lost catalog:lost", "version"),
    ]


def test_what_a_lock_file_places_of_a_catalog_is_not_shown_as_refused() -> None:
    entries = "".join(
        f"  '{name}':\n    resolution: {{integrity: {SRI}}}\n"
        for name in ("vitest@2.1.0", "@s/x@1.0.0", "react@17.0.2")
    )
    importers = (
        "  .:\n    devDependencies:\n      vitest:\n        specifier: 'catalog:'\n        version: 2.1.0\n"
        "      '@s/x':\n        specifier: catalog:default\n        version: 1.0.0\n"
        "  packages/a:\n    dependencies:\n      react:\n        specifier: catalog:old\n        version: 17.0.2\n"
    )
    lock = f"lockfileVersion: '9.0'\nimporters:\n{importers}packages:\n{entries}"
    found = _plan(USES | {"pnpm-lock.yaml": lock})
    assert _places(found) == ["@s+x@1.0.0.tgz", "react@17.0.2.tgz", "vitest@2.1.0.tgz"]
    assert found.refused == ()
