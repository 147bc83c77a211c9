"""The tools of the attacks: the victim, its guests, and a scratch directory for each run."""
