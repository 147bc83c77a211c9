"""Tasks: their life cycle, their worktrees, and everything that reads or changes the files in them."""
