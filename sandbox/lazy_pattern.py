"""A regular expression that is compiled when it is first used.

A short command imports modules with a hundred expressions and uses a dozen; to compile them took a tenth of its
processor time (docs/adr/0100).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    lazy_pattern = re.compile
else:

    class lazy_pattern:
        """As `re.compile`; only attributes of the pattern can be used, such as `pattern.fullmatch(text)`."""

        def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
            self._arguments = pattern, flags

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            compiled = self.__dict__.setdefault("_compiled", None) or re.compile(*self._arguments)
            self._compiled = compiled
            found = self.__dict__[name] = getattr(compiled, name)
            return found
