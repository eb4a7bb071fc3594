"""`layerwise serve` and `layerwise serve status`."""

from layerwise.studies.serve.status import serve_status as serve_status
from layerwise.studies.serve.verb import serve as serve
