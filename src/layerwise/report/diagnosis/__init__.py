"""The report of a diagnosis: every measure by layer, with its nulls."""
