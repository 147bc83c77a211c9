"""The images of checks: list and build them, find the image of a profile, and extract the guests' PID 1."""

from sandbox.images.build import build
from sandbox.images.catalogue import Recipe, catalogue, tag_of
from sandbox.images.inventory import list_images
from sandbox.images.lookup import Site
from sandbox.images.resolve import resolve, wheelhouse_of
from sandbox.images.supervisor import Courier, supervisor
from sandbox.images.unused import Unused, find_unused, remove_unused

__all__ = [
    "Courier",
    "Recipe",
    "Site",
    "Unused",
    "build",
    "catalogue",
    "find_unused",
    "list_images",
    "remove_unused",
    "resolve",
    "supervisor",
    "tag_of",
    "wheelhouse_of",
]
