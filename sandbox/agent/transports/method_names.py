"""Methods of the protocol that a transport treats apart."""

from __future__ import annotations

ENDLESS = "subscriptions/listen"
"""A request that is answered without an end."""
