"""Mutation score: how many of a frozen list of mutants the fast tests kill, before and after a refactoring."""
