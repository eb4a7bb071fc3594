"""Texts that need no files: the standard library of Python, and generated skills."""
