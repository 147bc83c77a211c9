"""`make demo`: the main job, end to end, on real projects from the public registries."""
