"""`layerwise sweep`."""

PAGES = {"sweep": "page:SWEEP"}
FINDINGS = ("painters:PAINTERS_FINDINGS",)
