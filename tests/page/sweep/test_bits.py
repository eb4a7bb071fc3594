"""Findings on bits: the planted layer is named, and none where noise explains it."""

from dataclasses import replace
from functools import cache

import numpy as np

from layerwise.measure.contrasts.layers import contrast_quantized_layers
from layerwise.page import ReportData
from layerwise.page.sections.quantized_layers import QUANTITIES, bits_by_layer
from layerwise.plan import Plan
from layerwise.plan.checks import quantized_layers
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import BITS, DELTA
from layerwise.studies.sweep.findings import list_findings
from layerwise.studies.sweep.page import SWEEP
from page import synthetic

DEPTH, UNITS, FRAGILE = 6, 20, 4
QUESTION = "Which layer is hurt most by quantization?"


@cache
def contrasts(fragile: float) -> tuple[Score, ...]:
    records = synthetic.plan_records(DEPTH, ("bits", "bits_noise"))
    chance, rows = np.random.default_rng(0), []
    for text in dict.fromkeys([str(Plan.identity(DEPTH)), *(record.plan for record in records)]):
        own = dict(quantized_layers(Plan.parse(text)))
        few = [layer for layer, kind in own.items() if str(kind) == "Q4_0"]
        exact = any(kind.type == "Q4_1" for kind in own.values()) or not own
        noise = 0.02 * any(kind.seed is not None for kind in own.values()) * (not exact)
        nll = 3.0 + 0.01 * len(few) + fragile * (FRAGILE in few) + noise
        wobble = chance.normal(0, 0.004, UNITS) * (not exact)
        rows += [Loss(text, "text", f"d{at}", 0, 10 * float(nll + each), 10, 0) for at, each in enumerate(wobble)]
    return tuple(contrast_quantized_layers(rows, records, DEPTH))


def run(fragile: float = 0.05, without: tuple[str, ...] = ()) -> ReportData:
    own = synthetic.run(DEPTH, ("bits", "bits_noise"))
    kept = tuple(row for row in contrasts(fragile) if row.metric not in without)
    return replace(own, scores=(*own.scores, *kept))


def answer(data: ReportData) -> tuple[str, str]:
    (found,) = (each for each in list_findings(data) if each.question == QUESTION)
    return found.verdict, found.answer


def test_a_planted_fragile_layer_is_found() -> None:
    state, text = answer(run())
    assert state == "supported"
    assert f"; layer {FRAGILE} costs most, 0.060" in text
    assert "Q4_1 changes nothing: the weights already have this type." in text
    assert "At Q8_0, quantizing a single layer " in text
    assert "no layer costs significantly more than the mean of the others." in text
    assert "Compared with noise of the same norm, the quantization error changes the loss by " in text
    assert "at Q4_1" not in text.partition("Compared with noise")[2]


def test_equal_layers_are_inconclusive() -> None:
    state, text = answer(run(0.0))
    assert state == "inconclusive"
    assert "costs most" not in text


def test_every_layer_has_a_cell_and_a_bar_per_quantity() -> None:
    data = run()
    (section,) = (each for each in SWEEP.sections if each.anchor == BITS)
    assert section.needs(data)
    assert not section.needs(synthetic.run(DEPTH))
    cells = {(row.part, row.condition, row.layer) for row in bits_by_layer(data)}
    assert {part for part, _, _ in cells} == set(QUANTITIES.values())
    cost = {(kind, layer) for part, kind, layer in cells if part == QUANTITIES[DELTA]}
    assert len(cost) == 5 * DEPTH
