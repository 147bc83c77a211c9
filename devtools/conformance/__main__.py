"""Install the conformance suite."""

from __future__ import annotations

from devtools.conformance import install

install()
