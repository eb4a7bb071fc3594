"""`layerwise train elc`."""

from layerwise.studies.train_elc.verb import elc as elc

PAGES = {"pretraining": "page:PRETRAINING"}
FINDINGS = ("findings:ELC_FINDINGS",)
