"""Which images nothing keeps: decided from tags, labels and days alone."""

from __future__ import annotations

from datetime import date

import pytest

from sandbox.engine.image_types import Image
from sandbox.images.lookup import find_last_use, format_use_tag
from sandbox.images.unused import select_unused

RECIPE, OTHER = "a" * 64, "b" * 64
TAG = f"space-sandbox/acme:{RECIPE[:12]}"
BEFORE = date(2026, 6, 1)
OLD, NEW = date(2026, 5, 31), date(2026, 6, 1)


def image(
    digest: str, *tags: str, name: str = "acme", folder: str = "acme", recipe: str = RECIPE, parent: str = "debian"
) -> Image:
    labels = {
        "space.sandbox.recipe": recipe,
        "space.sandbox.image": name,
        "space.sandbox.folder": folder,
        "space.sandbox.parent": parent,
    }
    return Image(digest, tags, 1, "2026-01-01T00:00:00.000000000Z", labels, (), "", has_volumes=False)


def taken(*images: Image, keep: tuple[str, ...] = ()) -> list[str]:
    return [unused.digest for unused in select_unused(images, keep, BEFORE)]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([TAG], True),
        ([TAG, format_use_tag(TAG, OLD)], True),
        ([TAG, format_use_tag(TAG, OLD), format_use_tag(TAG, NEW)], False),
        ([TAG, "space-sandbox/acme:latest", format_use_tag(TAG, OLD)], True),
        (["space-sandbox/acme:latest"], True),
        ([TAG, "space-sandbox/acme:mine"], False),
        ([TAG, "registry.example/team/acme:1"], False),
        (["mine:latest"], False),
        ([format_use_tag(TAG, OLD)], False),
        (["space-sandbox/acme-two:latest"], False),
    ],
    ids=[
        "never used", "used long ago", "used lately", "latest", "of an earlier version", "another tag", "a registry's",
        "an inherited label", "replaced", "another name",
    ],
)  # fmt: skip
def test_only_what_is_wholly_ours_and_was_not_used_lately_is_taken(tags: list[str], expected: bool) -> None:
    assert (taken(image("one", *tags)) == ["one"]) is expected


def test_variant_of_an_operator_is_never_taken() -> None:
    assert taken(image("one", "space-sandbox/acme:latest", folder="python")) == []


def test_what_a_home_or_container_needs_is_kept_with_all_below_it() -> None:
    low = image("low", TAG.replace("acme", "low"), name="low", folder="low", parent="debian")
    middle = image("middle", TAG.replace("acme", "middle"), name="middle", folder="middle", parent="low")
    high = image("high", TAG, parent="middle")
    assert taken(low, middle, high, keep=("high",)) == []
    assert taken(low, middle, high, keep=("middle",)) == ["high"]
    assert set(taken(low, middle, high)) == {"low", "middle", "high"}


def test_day_that_cannot_be_read_counts_as_today() -> None:
    assert find_last_use(image("one", f"{TAG}-used-99999999")) > BEFORE
    assert find_last_use(image("one", TAG)) == date(2026, 1, 1)
