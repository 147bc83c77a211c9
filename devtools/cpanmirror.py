"""A mirror of CPAN of a test's own on loopback: an index of modules, archives in authors' folders, and CHECKSUMS."""

from __future__ import annotations

import gzip
import hashlib
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from devtools.coderegistries import make_tar
from sandbox.attack.harness.loopback_http import serve_http

_INDEX = "/modules/02packages.details.txt.gz"


@dataclass
class CpanMirror:
    """What is served. `files`: content by path. `lines`: of the index. `asked`: paths of all requests."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    folders: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, path: str, content: bytes, modules: Mapping[str, str]) -> None:
        """Publish an archive at a path such as `H/HA/HAARG/Moo-2.0.tar.gz`. `modules`: their versions, by name."""
        folder, _, name = path.rpartition("/")
        self.files[f"/authors/id/{path}"] = content
        self.folders.setdefault(folder, {})[name] = hashlib.sha256(content).hexdigest()
        self.files[f"/authors/id/{folder}/CHECKSUMS"] = write_checksums(self.folders[folder])
        for module, version in modules.items():
            self.add_line(module, version, path)

    def add_line(self, module: str, version: str, path: str) -> None:
        """Put a line into the index."""
        self.lines.append(f"{module:<36} {version:<8} {path}")
        head = f"File: 02packages.details.txt\nLine-Count: {len(self.lines)}\n\n"
        self.files[_INDEX] = gzip.compress((head + "".join(f"{line}\n" for line in self.lines)).encode())

    def answer(self, path: str) -> bytes | None:
        """The content of a path."""
        self.asked.append(path)
        return self.files.get(path)


def make_distribution(
    name: str, version: str, files: Mapping[str, str], requires: Mapping[str, str] | None = None
) -> bytes:
    """A distribution with one module of its name, a Makefile.PL and a META.json. `files` may replace each."""
    module = name.replace("-", "::")
    meta = {
        "name": name,
        "version": version,
        "abstract": "none",
        "author": ["none"],
        "dynamic_config": 0,
        "generated_by": "none",
        "license": ["perl_5"],
        "meta-spec": {"version": "2"},
        "release_status": "stable",
        "prereqs": {"runtime": {"requires": requires or {}}},
    }
    usual = {
        "META.json": json.dumps(meta),
        "Makefile.PL": f"use ExtUtils::MakeMaker;\nWriteMakefile(NAME => '{module}', VERSION => '{version}');\n",
        f"lib/{name.replace('-', '/')}.pm": f"package {module};\nour $VERSION = '{version}';\n1;\n",
    }
    return make_tar({f"{name}-{version}/{path}": text for path, text in {**usual, **files}.items()})


def write_checksums(sums: Mapping[str, str]) -> bytes:
    """CHECKSUMS as PAUSE writes it: a Perl structure, sha256 by file name."""
    entries = "".join(
        f"  '{name}' => {{\n    'mtime' => '2020-01-01',\n    'sha256' => '{value}',\n    'size' => 1\n  }},\n"
        for name, value in sorted(sums.items())
    )
    return f"0&&<<''; # this PGP-signed message is also valid perl\n$cksum = {{\n{entries}}};\n".encode()


@contextmanager
def serve_cpan(tls: ssl.SSLContext | None = None) -> Iterator[CpanMirror]:
    """Serve a mirror on loopback. `tls`: of a server with a certificate for `localhost`."""
    mirror = CpanMirror("")
    with serve_http(mirror.answer, tls) as port:
        mirror.url = f"{'https' if tls else 'http'}://localhost:{port}"
        yield mirror
