"""`layerwise time`."""

PAGES = {"timing": "page:TIMING"}
