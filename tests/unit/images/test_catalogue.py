"""The pure parts of images: catalogue, fingerprint, base order, contexts, names and the errors' wording."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from sandbox.config import find_resources
from sandbox.engine.build_context import write_build_context
from sandbox.engine.build_output import build_error, find_line, plain_lines, read_step
from sandbox.engine.images import parse_image
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.build import build_args
from sandbox.images.catalogue import (
    Recipe,
    fingerprint_recipe,
    lineage,
    read_catalogue,
    read_lineage,
    recipe_digests,
    tag_of,
)
from sandbox.images.debian import (
    BOOTSTRAPPED,
    PUBLISHED,
    BaseImageAttempt,
    BaseImageSource,
    bootstrap_commands,
    plan_attempts,
)
from sandbox.images.resolve import missing_image_error, not_built_error
from sandbox.store.home import Home
from tests.unit.conftest import refused


def make_folder(root: Path, name: str, recipe: str = "") -> Path:
    folder = root / "images" / name
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    if recipe:
        (folder / "recipe.toml").write_text(recipe)
    return folder


def code_of(raised: pytest.ExceptionInfo[SandboxError]) -> ErrorCode:
    return raised.value.code


def test_shipped_catalogue_has_what_profiles_and_guests_need(tmp_path: Path) -> None:
    recipes = read_catalogue(Home(tmp_path))
    assert {"base", "build", "init", "python"} <= set(recipes)
    assert recipes["base"].parent == ""
    assert recipes["python"].wheelhouse
    assert not recipes["build"].wheelhouse


def test_a_recipe_like_another_has_its_files_on_another_parent(tmp_path: Path) -> None:
    home = Home(tmp_path)
    recipes = read_catalogue(home)
    python, newer = recipes["python"], recipes["python3.13"]
    assert (newer.folder, newer.parent, newer.wheelhouse) == (python.folder, "trixie", True)
    assert newer.file.parent.name == "python3.13"
    line = read_lineage(home, "python3.13")
    assert [recipe.name for recipe in line] == ["base", "trixie", "python3.13"]
    assert recipe_digests(line, "")[-1] != recipe_digests(read_lineage(home, "python"), "")[-1]

    own = make_folder(tmp_path, "python")
    assert read_catalogue(home)["python3.13"].folder == own, "the operator's files, if they replace the shipped ones"
    for name, text, why in (
        ("one", 'like = "two"', "without a Dockerfile"),
        ("two", 'like = "../base"', "two/recipe"),
        ("empty", "", "no `like`"),
    ):
        (make_folder(tmp_path, name, text or "parent = 'base'") / "Dockerfile").unlink()
        assert why in read_catalogue(home)[name].problem


def test_operators_folder_wins_over_the_shipped_one(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "python", 'parent = "build"')
    recipe = read_catalogue(Home(tmp_path))["python"]
    assert recipe == Recipe("python", folder, "build")


def test_folder_without_recipe_starts_from_base_and_one_without_dockerfile_is_no_image(tmp_path: Path) -> None:
    make_folder(tmp_path, "acme")
    (tmp_path / "images" / "notes").mkdir()
    recipes = read_catalogue(Home(tmp_path))
    assert recipes["acme"].parent == "base"
    assert "notes" not in recipes


@pytest.mark.parametrize("recipe", ["parnet = 'base'", "parent = 3", "not toml"], ids=["typo", "type", "syntax"])
def test_damaged_recipe_is_refused(tmp_path: Path, recipe: str) -> None:
    folder = make_folder(tmp_path, "acme", recipe)
    with pytest.raises(SandboxError) as raised:
        lineage(read_catalogue(Home(tmp_path)), "acme")
    assert code_of(raised) is ErrorCode.INVALID_INPUT
    assert "acme" in raised.value.brief
    assert str(folder / "recipe.toml") in raised.value.details


def test_damaged_recipe_stops_no_other_one(tmp_path: Path) -> None:
    make_folder(tmp_path, "acme", "not toml")
    make_folder(tmp_path, "on-acme", 'parent = "acme"')
    recipes = read_catalogue(Home(tmp_path))
    assert [recipe.name for recipe in lineage(recipes, "python")] == ["base", "python"]
    with pytest.raises(SandboxError, match="'acme' cannot be built"):
        lineage(recipes, "on-acme")


@pytest.mark.parametrize("name", ["Acme", "a b", "-a", "a--b"])
def test_folder_whose_name_cannot_be_a_tag_is_refused(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path, name)
    with pytest.raises(SandboxError) as raised:
        lineage(read_catalogue(Home(tmp_path)), name)
    assert "cannot be the name" in raised.value.details


def test_tag_of_a_name() -> None:
    assert tag_of("python-acme") == "space-sandbox/python-acme:latest"
    assert tag_of("python", "0123456789abcdef") == "space-sandbox/python:0123456789ab"


@pytest.mark.parametrize("name", ["base", "python", "acme", "on-acme", "gone", "orphan"])
def test_line_of_one_name_is_the_one_of_the_whole_catalogue(tmp_path: Path, name: str) -> None:
    for folder, parent in (("acme", "python"), ("on-acme", "acme"), ("orphan", "nothing")):
        make_folder(tmp_path, folder, f'parent = "{parent}"')
    home = Home(tmp_path)
    try:
        expected: object = lineage(read_catalogue(home), name)
    except SandboxError as error:
        expected = error.code
    try:
        found: object = read_lineage(home, name)
    except SandboxError as error:
        found = error.code
    assert found == expected


def test_digest_of_a_recipe_changes_with_its_parents_recipe_and_the_debian_below_and_nothing_else(
    tmp_path: Path,
) -> None:
    one, two = ([Recipe(name, make_folder(tmp_path / side, name)) for name in ("low", "high")] for side in "ab")
    assert recipe_digests(one, "") == recipe_digests(two, "")
    assert not set(recipe_digests(one, "")) & set(recipe_digests(one, "registry/debian:bookworm"))
    before = recipe_digests(one, "")
    (one[0].folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN true\n")
    assert not set(recipe_digests(one, "")) & set(before)
    (two[1].folder / "tool").write_text("more")
    assert recipe_digests(two, "")[0] == before[0]
    assert recipe_digests(two, "")[1] != before[1]


def recipes_of(**parents: str) -> dict[str, Recipe]:
    return {name: Recipe(name, Path("/nowhere"), parent) for name, parent in parents.items()}


def test_lineage_starts_at_debian() -> None:
    line = lineage(recipes_of(base="", python="base", acme="python"), "acme")
    assert [recipe.name for recipe in line] == ["base", "python", "acme"]


@pytest.mark.parametrize(
    ("parents", "code"),
    [
        ({"acme": "gone"}, ErrorCode.INVALID_INPUT),
        ({"acme": "other", "other": "acme"}, ErrorCode.INVALID_INPUT),
        ({"other": ""}, ErrorCode.NOT_FOUND),
    ],
    ids=["unknown parent", "circle", "unknown name"],
)
def test_lineage_that_leads_nowhere_is_refused(parents: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(SandboxError) as raised:
        lineage(recipes_of(**parents), "acme")
    assert code_of(raised) is code


def test_fingerprint_changes_with_everything_that_decides_the_image(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "acme")
    recipe = Recipe("acme", folder)
    seen = [
        fingerprint_recipe(recipe, "sha256:1"),
        fingerprint_recipe(recipe, "sha256:2"),
        fingerprint_recipe(recipe, "sha256:1", "wheels"),
    ]
    script = folder / "tool"
    script.write_text("one")
    seen.append(fingerprint_recipe(recipe, "sha256:1"))
    script.chmod(0o755)
    seen.append(fingerprint_recipe(recipe, "sha256:1"))
    script.write_text("two")
    seen.append(fingerprint_recipe(recipe, "sha256:1"))
    script.rename(folder / "other")
    seen.append(fingerprint_recipe(recipe, "sha256:1"))
    assert len(set(seen)) == len(seen)


def test_fingerprint_ignores_where_the_folder_is_and_when_it_was_written(tmp_path: Path) -> None:
    one, two = (make_folder(tmp_path / side, "acme") for side in "ab")
    assert fingerprint_recipe(Recipe("acme", one), "x") == fingerprint_recipe(Recipe("acme", two), "x")


@pytest.mark.parametrize(
    ("configured", "present", "tools", "expected"),
    [
        ("mine:1", {"mine:1", PUBLISHED}, {"mmdebstrap"}, [BaseImageAttempt(BaseImageSource.USE, "mine:1")]),
        ("mine:1", {BOOTSTRAPPED, PUBLISHED}, {"mmdebstrap"}, [BaseImageAttempt(BaseImageSource.PULL, "mine:1")]),
        ("", {BOOTSTRAPPED, PUBLISHED}, {"mmdebstrap"}, [BaseImageAttempt(BaseImageSource.USE, BOOTSTRAPPED)]),
        ("", {PUBLISHED}, {"mmdebstrap"}, [BaseImageAttempt(BaseImageSource.USE, PUBLISHED)]),
        (
            "",
            set(),
            {"debootstrap", "mmdebstrap"},
            [
                BaseImageAttempt(BaseImageSource.PULL, PUBLISHED),
                BaseImageAttempt(BaseImageSource.BOOTSTRAP, "mmdebstrap"),
            ],
        ),
        (
            "",
            set(),
            {"debootstrap"},
            [
                BaseImageAttempt(BaseImageSource.PULL, PUBLISHED),
                BaseImageAttempt(BaseImageSource.BOOTSTRAP, "debootstrap"),
            ],
        ),
        ("", set(), set(), [BaseImageAttempt(BaseImageSource.PULL, PUBLISHED)]),
    ],
    ids=["configured", "configured absent", "bootstrapped", "published", "both tools", "debootstrap", "no tool"],
)
def test_order_of_the_base(
    configured: str, present: set[str], tools: set[str], expected: list[BaseImageAttempt]
) -> None:
    assert list(plan_attempts(configured, present, tools)) == expected


@pytest.mark.parametrize("tool", ["mmdebstrap", "debootstrap"])
def test_bootstrap_names_a_mirror_only_when_one_is_configured(tool: str) -> None:
    target = Path("/somewhere/root.tar")
    assert not any("://" in part for argv in bootstrap_commands(tool, target, "", is_root=True) for part in argv)
    assert (
        bootstrap_commands(tool, target, "http://mirror.test/debian", is_root=True)[0][-1]
        == "http://mirror.test/debian"
    )
    assert bootstrap_commands(tool, target, "", is_root=True)[0][:2] == ["unshare", "--mount"]  # no mount outlives it


def test_without_root_the_tool_makes_its_own_namespaces() -> None:
    assert bootstrap_commands("mmdebstrap", Path("/x/root.tar"), "", is_root=False)[0][0] == "mmdebstrap"


def test_build_arguments_are_the_parent_and_what_was_set_of_proxies_and_index() -> None:
    environ = {"https_proxy": "http://proxy:3128", "no_proxy": "", "PIP_INDEX_URL": "https://index.test/", "HOME": "/x"}
    plain = Recipe("build", Path("/nowhere"))
    assert build_args(plain, "sha256:1", environ) == {"BASE": "sha256:1", "https_proxy": "http://proxy:3128"}
    wheels = Recipe("python", Path("/nowhere"), wheelhouse=True)
    assert build_args(wheels, "sha256:1", environ)["PIP_INDEX_URL"] == "https://index.test/"


def test_context_holds_files_owned_by_root_with_their_executable_bit(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "acme")
    (folder / "sub").mkdir()
    (folder / "sub" / "tool").write_text("#!/bin/sh\n")
    (folder / "sub" / "tool").chmod(0o4755)
    target = io.BytesIO()
    write_build_context(target, folder, {".generated/ca.crt": b"CA"})
    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        entries = {entry.name: (entry.mode, entry.uid, entry.mtime) for entry in archive}
    assert entries == {".generated/ca.crt": (0o644, 0, 0), "Dockerfile": (0o644, 0, 0), "sub/tool": (0o755, 0, 0)}


def test_context_refuses_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "acme")
    (folder / "leak").symlink_to("/etc/passwd")
    with pytest.raises(SandboxError, match="not a regular file"):
        write_build_context(io.BytesIO(), folder, {})


def test_build_output_becomes_plain_bounded_lines() -> None:
    assert plain_lines("Step 1\r\n\n\x1b[31mred\x1b[0m \n" + "x" * 9000) == ["Step 1", "red", "x" * 500]


# Tails as Engine 20.10 sends them.
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("W: Failed to fetch mirror Temporary failure resolving 'mirror'", ErrorCode.NETWORK_ERROR),
        ("NewConnectionError: Failed to establish a new connection: [Errno 111]", ErrorCode.NETWORK_ERROR),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer",
            ErrorCode.NETWORK_ERROR,
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", ErrorCode.INTERNAL),
        ("E: Unable to locate package nonsense", ErrorCode.INTERNAL),
    ],
    ids=["resolver", "refused", "tls", "hashes", "package"],
)
def test_failed_build_is_classified_and_keeps_its_tail(line: str, code: ErrorCode) -> None:
    error = build_error("space-sandbox/acme:latest", [line], "The command '/bin/sh' returned a non-zero code: 1")
    assert error.code is code
    assert error.details.splitlines() == [line, "The command '/bin/sh' returned a non-zero code: 1"]
    assert error.hint


RECIPE = """# comment
ARG BASE
FROM ${BASE}
RUN true && \\
    # comment
    true

RUN false
"""


def test_a_failed_step_is_named_with_its_line() -> None:
    """What a step prints is no step, unless it looks like the very next one: it changes the words only."""
    step = None
    for line in ("Step 1/4 : ARG BASE", "Step 2/4 : FROM x", "STEP 3/4: RUN true &&     true", "Step 9/9 : RUN evil"):
        step = read_step(line, step)
    assert step is not None
    assert (step.number, find_line(RECIPE, step)) == (3, 4)
    step = read_step("Step 4/4 : RUN false", step)
    assert step is not None
    assert find_line(RECIPE, step) == 8
    assert find_line("FROM x", step) is None
    error = build_error("t", ["output"], "returned a non-zero code: 1", step, 8)
    assert error.brief == "The image 't' could not be built: line 8 of its Dockerfile, step 4 of 4: RUN false"
    assert (error.reason, (error.data or {})["line"]) == ("build_failed", 8)
    assert (build_error("t", [], "dockerfile parse error on line 3: unknown").data or {})["line"] == 3


FAKE_APT = """#!/bin/sh
echo "$@" >>"$LOG"
"""


@pytest.mark.parametrize(("bundle", "trusted"), [(b"a certificate", True), (b"", False)], ids=["TLS", "none"])
def test_packages_are_fetched_with_the_operators_certificates_which_go_afterwards(
    tmp_path: Path, bundle: bytes, trusted: bool
) -> None:
    apt, ca, log = tmp_path / "apt-get", tmp_path / "ca.crt", tmp_path / "log"
    apt.write_text(FAKE_APT)
    apt.chmod(0o755)
    ca.write_bytes(bundle)
    script = (find_resources("images") / "base" / "install-packages").read_text()
    harmless = script.replace("/var/", f"{tmp_path}/var/")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MIRROR_CA": str(ca), "LOG": str(log)}
    subprocess.run(["sh", "-s", "git", "make"], input=harmless.encode(), env=env, check=True)
    option = f"-o Acquire::https::CaInfo={ca} " if trusted else ""
    assert log.read_text() == f"{option}update\n{option}install -y --no-install-recommends git make\n"
    assert not ca.exists()


def test_every_image_knows_the_names_of_ports_and_protocols() -> None:
    words = (find_resources("images") / "base" / "Dockerfile").read_text().split()
    assert "netbase" in words[words.index("install-packages") :]


def test_the_build_image_has_all_that_autoreconf_calls() -> None:
    words = (find_resources("images") / "build" / "Dockerfile").read_text().split()
    assert {"autoconf", "automake", "libtool", "autopoint"} <= set(words)


def test_the_python_image_has_what_build_backends_ask_for_in_a_hook() -> None:
    """scikit-build-core and meson-python: no manifest names these, and the hook is not called before the build."""
    words = (find_resources("images") / "python" / "Dockerfile").read_text().split()
    assert {"cmake", "ninja-build", "patchelf"} <= set(words)


@pytest.mark.parametrize("name", ["base", "build", "python"])
def test_recipe_that_installs_packages_takes_the_certificates(name: str) -> None:
    lines = (find_resources("images") / name / "Dockerfile").read_text().splitlines()
    used = next(i for i, line in enumerate(lines) if line.startswith("RUN install-packages "))
    assert lines[used - 1] == "COPY .generated/mirror-ca.crt /tmp/mirror-ca.crt"
    assert not [line for line in lines if "apt-get" in line]


def test_missing_catalogue_image_names_its_command() -> None:
    for others in (False, True):
        error = not_built_error("python", others=others)
        assert error.code is ErrorCode.IMAGE_MISSING
        assert "sandbox images build python" in error.hint
        assert ("another version" in error.details) is others


def test_missing_unknown_image_names_what_looks_like_it() -> None:
    hint = missing_image_error("pyhton", ["base", "python"], ["space-sandbox/python-acme:latest", "nginx:1"]).hint
    assert "python" in hint
    assert "nginx" not in hint
    assert "Did you mean" not in missing_image_error("zzz", ["base"], []).hint


def test_image_with_volumes_is_recognised_and_null_config_is_not() -> None:
    digest = "sha256:" + "0" * 64
    assert parse_image({"Id": digest, "Config": {"Volumes": {"/data": {}}}}).has_volumes
    assert not parse_image({"Id": digest, "Config": {"Volumes": None, "Labels": None, "Env": None}}).has_volumes
    assert not parse_image({"Id": digest, "Config": None, "RepoTags": None}).has_volumes


def test_no_dockerfile_of_ours_declares_what_a_check_would_inherit(tmp_path: Path) -> None:
    for recipe in read_catalogue(Home(tmp_path)).values():
        lines = (recipe.folder / "Dockerfile").read_text().splitlines()
        assert not {line.split(" ", 1)[0] for line in lines} & {"VOLUME", "ENTRYPOINT", "HEALTHCHECK", "ONBUILD"}
        assert [line for line in lines if line.startswith("USER")][-1] == "USER 64000:64000"


def test_a_name_that_is_no_image_is_told_with_those_that_are(tmp_path: Path) -> None:
    with refused(ErrorCode.NOT_FOUND) as error:
        read_lineage(Home(tmp_path), "pyton")
    assert "Available: base, build" in error.value.hint
