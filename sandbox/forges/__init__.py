"""Where pull requests live: one protocol, GitHub and GitLab behind it."""
