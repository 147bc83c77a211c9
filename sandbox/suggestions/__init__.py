"""Read what files of a repository suggest for its checks: bytes in, plain values out. No code of it runs.

CI workflows, a devcontainer, lists of tools and `debian/control` say which packages, variables and commands a project
uses. They are read as data, within bounds; what cannot be used is listed with the reason (docs/adr/0059).
"""
