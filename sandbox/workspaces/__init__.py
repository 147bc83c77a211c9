"""Workspaces: the file tree of a task. One kind so far, `worktree`, as an overlay or as a full checkout."""
