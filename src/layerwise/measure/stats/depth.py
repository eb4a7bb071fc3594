"""How many layers a comparison of layers needs."""

from __future__ import annotations

FEWEST_LAYERS = 4
"""Below this there is no middle to compare with the ends, and a ranking says nothing that chance would not."""
