"""The git adapter: the only package that runs git.

git sees objects, refs and private indexes of controller-owned bare repositories. It never opens a path of a worktree.
"""
