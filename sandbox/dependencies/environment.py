"""Where a check finds a layer. Apart from the steps that make one, which load much more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.models.layers import LayerEcosystem

FOLDER = "/sandbox-layers"


def target(ecosystem: LayerEcosystem) -> str:
    """The read-only directory of a layer in a guest."""
    return f"{FOLDER}/{ecosystem}"


def build_environment(ecosystem: LayerEcosystem, path: str) -> Mapping[str, str]:
    """The variables of a check that has the layer. `path`: its PATH without the layer."""
    return _VARIABLES[ecosystem](target(ecosystem), path)


def _use_virtual_environment(folder: str, path: str) -> Mapping[str, str]:
    return {"VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{path}"}


def _use_node_modules(folder: str, path: str) -> Mapping[str, str]:
    """NODE_PATH is for checks that do not link the modules into the tree: `require` looks there, `import` does not."""
    return {"NODE_PATH": f"{folder}/node_modules", "PATH": f"{folder}/node_modules/.bin:{path}"}


def _use_vendored_crates(folder: str, _path: str) -> Mapping[str, str]:
    return {"CARGO_HOME": folder}  # its config.toml names the crates; cargo reads it after a repository's own


def _use_local_lib(folder: str, path: str) -> Mapping[str, str]:
    """The layout of local::lib. Perl looks below lib/perl5 for its architecture by itself."""
    return {"PERL5LIB": f"{folder}/lib/perl5", "PATH": f"{folder}/bin:{path}"}


_VARIABLES: Mapping[LayerEcosystem, Callable[[str, str], Mapping[str, str]]] = {
    "python": _use_virtual_environment,
    "node": _use_node_modules,
    "rust": _use_vendored_crates,
    "perl": _use_local_lib,
    "go": lambda folder, _path: {"GOMODCACHE": folder},
}
