"""Push: send one commit to one branch, and explain why a remote refused it."""
