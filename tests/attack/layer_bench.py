"""A home whose profiles have layers, and a registry of the test's own as the only one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from devtools.guests import remove_guests_of
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Actor, RunSummary
from sandbox.workbench import Watch, Workbench
from tests.unit.conftest import initialised

Registry = TypeVar("Registry")


@dataclass
class LayerBench(Generic[Registry]):
    """`urls`: of the registries, by ecosystem. `lines`: what was said while layers were built; `remarks`: what a reader
    of the verdicts has to know.
    """

    root: Path
    registry: Registry
    urls: Mapping[str, Sequence[str]]
    lines: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def trees(self) -> list[Path]:
        """The layers."""
        return [path for path in (self.home / "repositories/dependencies/trees").glob("*") if path.is_dir()]

    @property
    def rooms(self) -> list[Path]:
        return list((self.home / "repositories/rooms").iterdir())

    def commit(self, files: Mapping[str, object], name: str) -> Path:
        """A repository of these files: texts, or values to write as JSON."""
        repository = initialised(self.root / name)
        for path, content in files.items():
            repository.write(path, (content if isinstance(content, str) else json.dumps(content)).encode())
        repository.commit()
        return repository.root

    def open(self, actor: Actor = Actor.PYTHON) -> Workbench:
        return Workbench(self.home, settings={"registries": self.urls}, allow_file=True, actor=actor)

    def run(self, files: Mapping[str, object], name: str = "project", actor: Actor = Actor.PYTHON) -> RunSummary:
        """Commit the files and run the repository. Without an image the test is skipped."""
        url = str(self.commit(files, name))
        with self.open(actor) as workbench:
            try:
                return workbench.run(url, watch=Watch(building=self.lines.append, warn=self.remarks.append))
            except SandboxError as error:
                if error.code is ErrorCode.IMAGE_MISSING:
                    unavailable(f"{error.brief}: {error.hint}")
                raise


@contextmanager
def open_bench(
    root: Path, registry: Registry, urls: Mapping[str, Sequence[str]], profiles: Mapping[str, str]
) -> Iterator[LayerBench[Registry]]:
    """Lives as long as the block; then no room is left. `profiles`: their texts by name."""
    bench = LayerBench(root, registry, urls)
    (bench.home / "profiles").mkdir(parents=True)
    for name, text in profiles.items():
        (bench.home / f"profiles/{name}.toml").write_text(text)
    yield bench
    remove_guests_of(bench.home)
    assert bench.rooms == []
