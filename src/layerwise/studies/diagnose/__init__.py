"""`layerwise diagnose`."""

PAGES = {"diagnosis": "page:DIAGNOSIS"}
FINDINGS = ("painters:PAINTERS_FINDINGS", "findings:DIAGNOSIS_FINDINGS")
