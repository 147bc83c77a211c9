"""Our state on disk: the only package that touches it. Layout in DESIGN section 3; schema in `records`."""
