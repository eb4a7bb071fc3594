"""`layerwise train growth` and `layerwise train schedule`."""

from layerwise.studies.train_growth.importance import schedule as schedule
from layerwise.studies.train_growth.verb import growth as growth

PAGES = {"growth": "page:GROWTH_KIND"}
FINDINGS = ("findings:GROWTH_FINDINGS",)
