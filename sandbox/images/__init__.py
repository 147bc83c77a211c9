"""The images of checks: list and build them, find the image of a profile, and extract the guests' PID 1."""

from sandbox.images.build import SUPERVISOR, build, build_all
from sandbox.images.build_steps import StepImage, find_step_images, remove_step_image
from sandbox.images.catalogue import Recipe, has_recipe, read_catalogue, tag_of
from sandbox.images.inventory import list_images
from sandbox.images.lookup import ImageBuildContext
from sandbox.images.packages import build_derived, list_derived, remove_derived, resolve_derived
from sandbox.images.resolve import find_usable_image, read_wheelhouse_digest, resolve_image
from sandbox.images.supervisor import SupervisorExtractor, ensure_relay, ensure_supervisor
from sandbox.images.unused import UnusedImage, find_unused_images, remove_unused_image

__all__ = [
    "SUPERVISOR",
    "ImageBuildContext",
    "Recipe",
    "StepImage",
    "SupervisorExtractor",
    "UnusedImage",
    "build",
    "build_all",
    "build_derived",
    "ensure_relay",
    "ensure_supervisor",
    "find_step_images",
    "find_unused_images",
    "find_usable_image",
    "has_recipe",
    "list_derived",
    "list_images",
    "read_catalogue",
    "read_wheelhouse_digest",
    "remove_derived",
    "remove_step_image",
    "remove_unused_image",
    "resolve_derived",
    "resolve_image",
    "tag_of",
]
