"""What the attacks are carried out with: the victim, its guests, and a scratch directory for each run."""
