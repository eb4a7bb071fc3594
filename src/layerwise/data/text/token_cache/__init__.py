"""Tokenized text on disk: encoded once, mapped into memory by every later start and by every process."""
