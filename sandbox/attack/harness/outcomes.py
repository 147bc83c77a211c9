"""How one attack may end, as exceptions: the text says what was seen."""

from __future__ import annotations


class GotThrough(Exception):
    """The attack had an effect on the host or on another's work; the text says which."""


class Void(Exception):
    """The careless command was not hit, so that the product was not either proves nothing; the text says why."""


class Missing(Exception):
    """This host lacks what the entry needs; the text says what."""
