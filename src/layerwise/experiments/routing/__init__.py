"""Routing: a plan for each prompt, and whether that beats one plan for all at the same mean layers."""
