"""Searches: the front that was reached, and the chosen plan beside its controls on text that chose nothing."""
