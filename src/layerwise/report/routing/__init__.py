"""Routings: plans per input beside fixed plans at the same mean layers, with the oracle and what noise would give."""
