"""The texts that every machine with Python has: the standard library, and generated skills."""
