"""Growth schedules drawn by Hypothesis, with every field that a phase can have."""

from dataclasses import replace

from hypothesis import strategies as st

from layerwise.plan.schedule import GrowthSchedule, Phase

FACTORS = st.sampled_from([0.0, 0.5, 0.9, -1.0, 1e-7])


def some(draw: st.DrawFn, layers: tuple[int, ...], least: int = 0) -> tuple[int, ...]:
    return tuple(sorted(draw(st.sets(st.sampled_from(layers), min_size=least)))) if layers else ()


@st.composite
def schedules(
    draw: st.DrawFn, *, growing: bool = True, chance: bool = True, depth: int | None = None
) -> GrowthSchedule:
    depth = draw(st.integers(1, 9)) if depth is None else depth
    weights = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    grows = growing and draw(st.booleans())
    phases: list[Phase] = []
    before: tuple[int, ...] = ()
    for number, weight in enumerate(weights):
        whole = not grows or number == len(weights) - 1
        present = tuple(range(depth)) if whole else tuple(range(draw(st.integers(max(1, len(before)), depth))))
        came = [layer for layer in present if layer not in before] if grows and before else []
        copies = tuple((layer, draw(st.sampled_from(before))) for layer in came)
        phase = drawn_phase(draw, f"phase {number}", weight / sum(weights), present, copies, chance)
        phases.append(phase if grows and not whole else replace(phase, present=None))
        before = present
    return GrowthSchedule("drawn", depth, tuple(phases))


def drawn_phase(
    draw: st.DrawFn,
    name: str,
    share: float,
    present: tuple[int, ...],
    copies: tuple[tuple[int, int], ...],
    chance: bool,
) -> Phase:
    embedding = draw(st.booleans())
    head = draw(st.booleans())
    trains = some(draw, present, least=0 if embedding or head else 1)
    copied = {layer for layer, _ in copies}
    shape = draw(st.sampled_from(["run", "constant", "linear", "cosine"]))
    sample = draw(st.none() | st.integers(1, len(trains))) if trains and chance else None
    return Phase(
        name=name,
        share=share,
        trains=trains,
        embedding=embedding,
        head=head,
        present=present,
        rate=draw(st.sampled_from([1.0, 0.25, 3])),
        shape=shape,
        warmup=0.0 if shape == "run" else draw(st.floats(0, 0.9)),
        optimizer=draw(st.sampled_from(["keep", "drop"])),
        redraw=some(draw, tuple(layer for layer in present if layer not in copied)),
        scale=tuple((layer, draw(FACTORS)) for layer in some(draw, present)),
        copies=copies,
        sample=sample,
        every=1 if sample is None else draw(st.integers(1, 50)),
        drop=draw(st.tuples(st.floats(0, 0.9), st.floats(0, 0.9))) if chance else (0.0, 0.0),
    )
