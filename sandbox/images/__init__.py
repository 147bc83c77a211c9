"""The images checks run in: which there are, building them, finding the one a profile names, and the guests' PID 1."""

from sandbox.images.building import Site, build, list_images
from sandbox.images.catalogue import Recipe, catalogue, tag_of
from sandbox.images.resolving import resolve, wheelhouse_of
from sandbox.images.supervisor import Courier, supervisor

__all__ = [
    "Courier",
    "Recipe",
    "Site",
    "build",
    "catalogue",
    "list_images",
    "resolve",
    "supervisor",
    "tag_of",
    "wheelhouse_of",
]
