"""`layerwise heal`."""

PAGES = {"healing": "page:HEALING_KIND"}
