"""Names of rows in tests: what a row is about, as one text that is easy to compare."""

from layerwise.results.rows import Score


def named(row: Score) -> str:
    model = row.variant or "all"
    if row.seed is not None:
        model += f"/{row.seed}" + ("" if row.tuning_seed is None else f".{row.tuning_seed}")
    return (f"{row.plan} of " if row.plan else "") + model + (f" - {row.against}" if row.against else "")
