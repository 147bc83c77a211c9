"""How one attack may end, as exceptions. The text says what was observed."""

from __future__ import annotations


class GotThrough(Exception):
    """The attack had an effect on the host or on other tasks; the text says which."""


class Void(Exception):
    """The control was not hit, so the result of the product is no proof; the text says why."""


class NotSupported(Exception):
    """This host lacks what the entry needs; the text says what."""
