"""The packages of a layer as a CycloneDX document, for tools that look for known vulnerabilities and licences. Pure.

Slow to import (0.3 s): load it when a document is asked for.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from sandbox.models.layers import Layer, LayerPackage
from sandbox.version import __version__

_PURL_TYPES: Mapping[str, str] = {"python": "pypi", "node": "npm", "rust": "cargo", "go": "golang", "perl": "cpan"}
_PREFIX = "space-sandbox"


def write_bill_of_materials(layer: Layer) -> str:
    """The CycloneDX 1.6 document of a layer, as JSON. The same layer always gives the same document.

    Which package needs which is not known, so the layer is said to need each of them.
    """
    root = Component(
        type=ComponentType.PLATFORM,
        name=f"{_PREFIX}-layer-{layer.ecosystem}",
        version=layer.key,
        bom_ref=layer.key,
        properties=_describe(layer),
    )
    packages = [_write_component(layer.ecosystem, package) for package in _unique(layer.packages)]
    tool = Component(type=ComponentType.APPLICATION, name=_PREFIX, version=__version__)
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{_PREFIX}:{layer.key}"),
        metadata=BomMetaData(component=root, timestamp=layer.built_at, tools=ToolRepository(components=[tool])),
        components=packages,
    )
    bom.register_dependency(root, packages)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def find_package_url(ecosystem: str, name: str, version: str) -> PackageURL:
    """The identifier of a package: https://github.com/package-url/purl-spec. A scope, a path or an author is its
    namespace."""
    kind = _PURL_TYPES[ecosystem]
    if kind == "pypi":
        name = re.sub(r"[-_.]+", "-", name).lower()
    namespace, _, last = name.rpartition("/") if kind in {"npm", "golang", "cpan"} else ("", "", name)
    return PackageURL(type=kind, namespace=namespace or None, name=last, version=version)


def _write_component(ecosystem: str, package: LayerPackage) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=f"{package.name}@{package.version}:{package.sha256[:16]}",
        purl=find_package_url(ecosystem, package.name, package.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
        properties=[Property(name=f"{_PREFIX}:file", value=package.file)],
    )


def _unique(packages: Iterable[LayerPackage]) -> Iterable[LayerPackage]:
    """Each archive once, also if it lies in several places of a layer. A go.mod without its module is no component."""
    found = {(package.name, package.version, package.sha256): package for package in packages}
    return [package for package in found.values() if not package.version.endswith("/go.mod")]


def _describe(layer: Layer) -> list[Property]:
    facts = {"image": layer.image_digest, "platform": layer.platform, "runtime": layer.runtime}
    return [Property(name=f"{_PREFIX}:{name}", value=value) for name, value in facts.items()]
