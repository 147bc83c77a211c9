"""Read the manifests of a repository as data: bytes in, plain requirements out. Runs no code of the repository.

What comes out may be written into a file of a package manager: names, versions, extras, markers and hashes, each of a
grammar in which no option, address or path can be expressed (docs/adr/0054).
"""
