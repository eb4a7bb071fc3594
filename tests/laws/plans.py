"""Random plans: every kind of stage, nested, sublayers, repeats, ranges, merge rules, several models."""

from hypothesis import strategies as st

from layerwise.plan import SUBLAYERS, Block, Group, Plan, Reduction, Sublayer, Visit

DEPTH = 12

SOURCES = ("a", "run-2", "m_3")

SMALL_GAINS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0, 3.5])
ANY_GAIN = st.floats(allow_nan=False, allow_infinity=False)


def plans(
    gains: st.SearchStrategy[float] = SMALL_GAINS, most_steps: int = 60, depth: int = DEPTH
) -> st.SearchStrategy[Plan]:
    merges = st.one_of(
        st.sampled_from([Reduction("mean"), Reduction("sum")]), st.builds(Reduction, st.just("gain"), gains)
    )
    times = st.sampled_from([1, 1, 1, 2, 3])
    parts = st.sampled_from([None, None, *SUBLAYERS])
    sources = st.sampled_from([None, None, *SOURCES])
    visits = st.builds(Visit, st.integers(0, depth - 1), times, parts, sources)
    ends = st.integers(0, depth - 1)
    ranges = st.builds(_range, ends, ends, parts, sources)
    flat = st.one_of(ranges, st.lists(visits, min_size=1, max_size=4).map(lambda stages: Plan(tuple(stages))))

    def nested(inner: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
        groups = st.builds(Group, st.lists(inner, min_size=1, max_size=4).map(tuple), merges, times)
        blocks = st.builds(Block, inner, times)
        pieces = st.one_of(flat.map(lambda plan: plan.stages), st.one_of(groups, blocks).map(lambda stage: (stage,)))
        return st.lists(pieces, min_size=1, max_size=3).map(lambda parts: Plan(sum(parts, ())))

    return st.recursive(flat, nested, max_leaves=6).filter(lambda plan: plan.evaluations <= most_steps)


def _range(first: int, last: int, part: Sublayer | None, source: str | None) -> Plan:
    step = 1 if first <= last else -1
    return Plan(tuple(Visit(layer, sublayer=part, source=source) for layer in range(first, last + step, step)))
