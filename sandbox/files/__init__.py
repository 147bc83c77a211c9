"""The only package that opens paths of a worktree. A hostile guest may rewrite the same tree at the same time."""
