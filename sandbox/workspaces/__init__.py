"""Workspaces: the file tree a task owns. So far one kind, `worktree`, laid out in full by our own writer."""
