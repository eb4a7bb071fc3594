"""Run models that are larger than memory: only some layers are in memory at a time, and the others on disk."""
