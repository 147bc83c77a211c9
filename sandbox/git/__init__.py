"""The git adapter: the only package that runs git.

git sees only objects, refs and private indexes of bare repositories that the controller owns. It never opens a path of
a worktree.
"""
