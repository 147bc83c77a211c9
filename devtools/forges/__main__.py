"""Install the stand-in and the descriptions."""

from __future__ import annotations

from devtools.forges.packages import install

install()
