"""`layerwise evaluate`."""

PAGES = {"evaluation": "page:EVALUATION", "probing": "probing:PROBING_KIND"}
