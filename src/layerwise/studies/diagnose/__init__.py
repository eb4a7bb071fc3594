"""`layerwise diagnose`."""

PAGES = {"diagnosis": "page:DIAGNOSIS"}
FINDINGS = ("findings:DIAGNOSIS_FINDINGS",)
