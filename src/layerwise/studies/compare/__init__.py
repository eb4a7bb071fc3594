"""`layerwise compare`."""

PAGES = {"comparison": "page:COMPARISON", "paired": "paired:PAIRED_KIND"}
