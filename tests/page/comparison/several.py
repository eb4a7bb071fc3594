"""Simulated runs of different models for comparisons."""

from collections.abc import Iterable
from dataclasses import replace

from layerwise.page import ReportData
from layerwise.results.rows import Score
from layerwise.studies.compare.side_by_side import compare_side_by_side
from page import planted, synthetic

DEPTHS = {"small": 8, "medium": 10, "large": 12}
CONTRASTS = (
    Score("contrast", "middle_repeat:skip", 0.5, 0.4, 0.6, claim="same_function"),
    Score("contrast", "middle_repeat", 1.0, 0.9, 1.1, claim="same_function"),
)
"""The rows of the claim that middle layers differ in function."""


def named(data: ReportData, name: str, **more: object) -> ReportData:
    return replace(data, manifest={**data.manifest, "model": name, "weight_hash": f"w-{name}", **more})


def sweeps(*names: str) -> list[tuple[str, ReportData]]:
    runs = ((name, synthetic.run(DEPTHS[name], seed=seed)) for seed, name in enumerate(names or tuple(DEPTHS)))
    return [
        (f"runs/{name}", named(replace(data, scores=(*data.scores, *CONTRASTS)), f"org/{name}")) for name, data in runs
    ]


def diagnoses(*names: str) -> list[tuple[str, ReportData]]:
    return [(f"runs/{name}", named(planted.DIAGNOSIS, f"org/{name}")) for name in names or DEPTHS]


def of_rows(*rows: Iterable[Score], depth: int = 8, models: str = "01234567") -> ReportData:
    """`models` has a letter per run; runs with the same letter have the same model."""
    plans = synthetic.plan_records(depth, ("swap_adjacent",))[:1]
    return compare_side_by_side(
        [
            (
                f"runs/{number}",
                ReportData(
                    {"depth": depth, "model": f"m{model}", "weight_hash": f"w{model}", "seed": number},
                    plans,
                    tuple(each),
                ),
            )
            for number, (model, each) in enumerate(zip(models, rows, strict=False))
        ]
    )
