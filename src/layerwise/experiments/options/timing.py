"""Options that say how passes are timed."""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.experiments.option import option


@dataclass(frozen=True, kw_only=True)
class TimingOptions:
    """What a pass is given when it is timed, and how."""

    batch: int = option(1, "Texts at once when timed.", metavar="N", least=1, rare=True)
    context: int = option(128, metavar="N", least=1, rare=True)
    graphs: bool = option(True, "On CUDA, replay every pass as a CUDA graph.", setting=True)
