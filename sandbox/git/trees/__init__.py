"""A tree of a repository as an immutable value: read and changed over git's objects, without files (docs/adr/0096)."""
