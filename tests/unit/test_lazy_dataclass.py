"""`lazy_dataclass.dataclass` is held to the standard one: same objects, same errors, for each kind of field."""

from __future__ import annotations

import dataclasses
from dataclasses import field, fields, replace
from typing import Any

import pytest

from sandbox import lazy_dataclass


def define(decorator: Any) -> tuple[type, type, type]:
    """A plain, a frozen and a derived class of the same shape for each decorator."""

    @decorator
    class Plain:
        a: int
        many: list[int] = field(default_factory=list)

    @decorator(frozen=True)
    class Frozen:
        a: int
        b: str = "b"
        unseen: str = field(default="x", compare=False, repr=False)
        named: int = field(default=3, kw_only=True)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @decorator(frozen=True)
    class Derived(Frozen):
        c: tuple[int, ...] = ()

    return Plain, Frozen, Derived


OURS, STANDARD = define(lazy_dataclass.dataclass), define(dataclasses.dataclass)
PAIRS = pytest.mark.parametrize(
    ("ours", "standard"), [*zip(OURS, STANDARD, strict=True)], ids=("plain", "frozen", "derived")
)


@PAIRS
@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1,), {}), ((1, "c"), {}), ((), {}), ((1, "b", "x", (1,), 5), {}), ((1,), {"named": 4}), ((1,), {"other": 4})],
)
def test_objects_are_made_shown_and_compared_like_standard_ones(
    ours: Any, standard: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    def describe(cls: Any) -> object:
        try:
            made = cls(*arguments, **named)
        except TypeError as error:
            return str(error)
        hashable = cls.__hash__ is not None
        one_more = cls(*arguments, **named)
        equal = (made == one_more, made != one_more, made == (1,), hashable and hash(made) == hash(one_more))
        return repr(made), vars(made), equal, hashable, [(f.name, f.default) for f in fields(made)]

    assert describe(ours) == describe(standard)


def test_a_default_list_is_new_for_each_object() -> None:
    plain = OURS[0]
    assert plain(1).many is not plain(1).many
    assert plain(1, [2]).many == [2]


def test_a_frozen_object_cannot_be_changed_and_its_copy_is_checked() -> None:
    frozen = OURS[1](1, unseen="y")
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del frozen.a
    assert replace(frozen, a=2) == OURS[1](2), "what is not compared does not count"
    assert replace(frozen, a=2).unseen == "y"
    with pytest.raises(ValueError, match="negative"):
        replace(frozen, a=-1)
    assert OURS[2](1) != OURS[1](1), "another class"


def test_an_object_that_holds_itself_is_shown() -> None:
    plain = OURS[0](1)
    plain.many.append(plain)
    assert "..." in repr(plain)


def test_a_class_that_needs_what_is_not_offered_is_refused() -> None:
    with pytest.raises(TypeError, match="__repr__"):

        @lazy_dataclass.dataclass
        class _Wrong:
            def __repr__(self) -> str:
                return ""

    with pytest.raises(TypeError, match="init=False"):

        @lazy_dataclass.dataclass
        class _AlsoWrong:
            a: int = field(init=False)
