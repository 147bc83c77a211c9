"""The only package that reads and writes our state on disk. Layout in `home`; schema in `records`."""
