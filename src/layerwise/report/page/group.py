"""What the kinds of run share beside their pictures: banners of what is not complete, and tiles of arms."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from layerwise.report.page.wording import counted, listed

STOPPED = "the run was interrupted, or is still going. Resume it and write the report again."


def arm_tiles(arms: Collection[str], seeds: Mapping[str, Collection[int]]) -> tuple[tuple[str, str], ...]:
    """How many arms a run has, and the most seeds that any of them was trained with."""
    most = max((len(seeds.get(arm, ())) for arm in arms), default=0)
    return ((f"{len(arms):,}", "arms"), *(((f"{most:,}", "seeds"),) if most else ()))


def incomplete(*parts: tuple[Collection[str], str]) -> str | None:
    """The banner that names what is not complete, each kind with its noun; `None` where nothing is missing."""
    named = [(names, noun) for names, noun in parts if names]
    if not named:
        return None
    what = listed([f"{counted(len(names), noun)} ({listed(list(names))})" for names, noun in named])
    verb = "is" if sum(len(names) for names, _ in named) == 1 else "are"
    return f"{what} {verb} not complete: {STOPPED}"
