"""Measure the product on other systems, in virtual machines made of Debian packages alone: `make matrix`.

A row is a system, an engine and a user (`rows.toml`). Its root disk is made once and kept in a cache: `mmdebstrap`
installs Debian's packages, and a first boot loads our images into the engine. Each measurement boots the disk without
changing it, with a second disk that holds this checkout; the machine has no network. In it `measurements.py` drives the
product and writes one line of JSON for each column to a serial port. `matrix_page.py` writes docs/platforms.md.
"""
