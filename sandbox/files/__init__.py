"""The only package that opens paths of a worktree. A hostile guest may be rewriting the same tree at the same time."""
