"""`layerwise robustness`, `layerwise robustness merge` and `layerwise train robust`."""

from layerwise.studies.robustness.merge_verb import merge as merge
from layerwise.studies.robustness.training_verb import train_robust as train_robust
from layerwise.studies.robustness.verb import robustness as robustness

PAGES = {"robustness": "page:ROBUSTNESS_KIND"}
FINDINGS = ("findings:LAYERSHUFFLE_FINDINGS",)
