"""Tasks: their life cycle, their worktrees, and all use-cases that read or change the files in them."""
