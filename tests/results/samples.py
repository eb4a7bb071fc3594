"""One row of each table, and the manifest of their run."""

from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, PlanRecord, Score

MANIFEST = Manifest("demo", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("skip", "swap"), ("prose",), 7)
LOSS = Loss("0-3", "prose", "a.txt", 0, 12.5, 10, 4)
SCORE = Score("effect", "delta_nll", 0.1, -0.1, 0.3, 0.4, 0.8, 0.05, claim="0-3", task="prose", documents=3, tokens=90)
RECORD = PlanRecord("0-3", "painters", "skip", 2, None, 4, 4, 4, 4)
