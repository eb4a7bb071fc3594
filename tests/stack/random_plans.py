"""Random plans, as a Hypothesis strategy: layers and halves of several models, nested groups, blocks, repeats."""

from collections.abc import Sequence

from hypothesis import strategies as st

from layerwise.plan import SUBLAYERS, Block, Group, Plan, Reduction, Visit

LONGEST = 48


def plans(depth: int, stages: int = 3, sources: Sequence[str | None] = (None,)) -> st.SearchStrategy[Plan]:
    times = st.integers(1, 2)
    merge = st.one_of(
        st.just(Reduction("mean")),
        st.just(Reduction("sum")),
        st.floats(0.25, 2.0).map(lambda gain: Reduction("gain", gain)),
    )
    parts = st.sampled_from([None, None, *SUBLAYERS])
    visits = st.builds(Visit, st.integers(0, depth - 1), times, parts, st.sampled_from(sources))
    level: st.SearchStrategy[Plan] = _plan(visits, stages)
    for _ in range(2):
        branches = st.lists(level, min_size=2, max_size=3).map(tuple)
        stage = st.one_of(visits, st.builds(Group, branches, merge, times), st.builds(Block, level, times))
        level = _plan(stage, stages)
    return level.filter(lambda plan: len(plan.steps()) <= LONGEST)


def _plan(stage: st.SearchStrategy, stages: int) -> st.SearchStrategy[Plan]:
    return st.lists(stage, min_size=1, max_size=stages).map(lambda found: Plan(tuple(found)))
