"""`dataclass` as in the standard library, at a twentieth of what a class costs when its module is imported.

The standard one compiles six functions for each class: 0.4 ms. A short command imports up to 170 such classes and makes
objects of a third of them (docs/adr/0089). Here `__init__` is compiled when the first object of a class is made, and
the other methods are shared code. The fields are the standard library's, so `fields`, `replace` and `asdict` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls: type | None = None, /, *, frozen: bool = False) -> Any:
        """Only `frozen` can be chosen. A class may define none of the methods itself but `__post_init__`."""
        return _defer(cls, frozen) if cls is not None else lambda cls: _defer(cls, frozen)

    _METHODS = frozenset({"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"})
    _DEFAULT = object()

    def _defer(cls: type, frozen: bool) -> type:
        if defined := _METHODS & vars(cls).keys():
            raise TypeError(f"{cls.__name__} defines {', '.join(sorted(defined))}: use dataclasses.dataclass")
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library describes the signature, which is slow
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        if not all(field.init for field in dataclasses.fields(cls)):
            raise TypeError(f"{cls.__name__} has a field with init=False: use dataclasses.dataclass")

        def compile_first(self: Any, /, *arguments: Any, **named: Any) -> None:
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, *arguments, **named)

        cls.__init__ = compile_first
        cls.__repr__ = _describe
        compared = [field for field in dataclasses.fields(cls) if field.compare]
        cls.__eq__ = _equality(_values_of([field.name for field in compared]))
        cls.__hash__ = None
        if frozen:
            hashed = [field.name for field in compared if field.hash is not False]
            cls.__hash__ = _hashing(_values_of(hashed))
            cls.__setattr__, cls.__delattr__ = _refuse_assignment, _refuse_deletion
        return cls

    def _compile_init(cls: type) -> Any:
        """The `__init__` that the standard library would make; it also sets the fields of a frozen object."""
        fields = dataclasses.fields(cls)
        names: dict[str, Any] = {"_set": object.__setattr__, "_default": _DEFAULT}
        body = [_assign(field, names) for field in fields]
        body += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
        plain = [_declare(field) for field in fields if not field.kw_only]
        keyword = [_declare(field) for field in fields if field.kw_only]
        header = ", ".join(["self", *plain, *(["*", *keyword] if keyword else [])])
        source = f"def __init__({header}):\n  " + "\n  ".join(body or ["pass"])
        exec(source, names)  # noqa: S102 - names of fields of our own classes, as `dataclasses` does
        made = names["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        return made

    def _declare(field: dataclasses.Field[Any]) -> str:
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        return f"{field.name}=_default" if optional else field.name

    def _assign(field: dataclasses.Field[Any], names: dict[str, Any]) -> str:
        """One line of the body; what it uses is added to `names`."""
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_factory_{name}"] = field.default_factory
            value = f"_factory_{name}() if {name} is _default else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            value = f"_default_{name} if {name} is _default else {name}"
        return f"_set(self, {name!r}, {value})"

    def _values_of(names: list[str]) -> Any:
        if not names:
            return lambda self: ()
        return attrgetter(*names) if len(names) > 1 else attrgetter(names[0], names[0])

    def _equality(values: Any) -> Any:
        def __eq__(self: Any, other: Any) -> Any:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return __eq__

    def _hashing(values: Any) -> Any:
        def __hash__(self: Any) -> int:
            return hash(values(self))

        return __hash__

    @recursive_repr()
    def _describe(self: Any) -> str:
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _refuse_assignment(self: Any, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_deletion(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
