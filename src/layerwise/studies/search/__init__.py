"""`layerwise search`."""

PAGES = {"search": "page:SEARCH_KIND"}
