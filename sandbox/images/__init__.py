"""The images checks run in: which there are, building them, and finding the one a profile names."""

from sandbox.images.building import Site, build, list_images
from sandbox.images.catalogue import Recipe, catalogue, tag_of
from sandbox.images.resolving import resolve

__all__ = ["Recipe", "Site", "build", "catalogue", "list_images", "resolve", "tag_of"]
