"""Our state on disk: the only package that touches it. Layout in `home`; schema in `records`."""
