"""`python -m sandbox` is the `sandbox` command."""

from __future__ import annotations

import sys

from sandbox.cli import main

sys.exit(main())
