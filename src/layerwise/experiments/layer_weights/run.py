"""The steps of learned layer weights: shown, their edges ranked and cut, and what is left evaluated.

Edges are chosen on one set of examples and evaluated on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text

from layerwise.errors import ModelError, RunError
from layerwise.experiments.diagnosis.config import LayerWeightAnalysis
from layerwise.experiments.engines.call import MeasureUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps, UnitSession
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.layer_weights.models import (
    EdgeExamples,
    WeightedModel,
    examples_of,
    open_weighted,
    weighted_models,
    write_sparse,
)
from layerwise.experiments.layer_weights.phenomena import agreement_sentence, cut_sentences, edge_phenomena, edges_table
from layerwise.experiments.reporter import Reporter, describe_model
from layerwise.experiments.training_runs import TrainedModel, manifest_of
from layerwise.measure.interventions.edge_pruning import (
    DRAWS,
    Ranked,
    alpha_rows,
    prune,
    pruned_rows,
    rank,
    ranking_rows,
)
from layerwise.plan import LayerWeights
from layerwise.results import Score
from layerwise.results.run import is_run

Opened = tuple[WeightedModel, EdgeExamples]


def layer_weights(config: LayerWeightAnalysis, reporter: Reporter, inputs: Inputs) -> Steps:
    """Show, rank and cut the layer weights of every finished model in a run, or of a single model.

    Examples of a single model are read at once, those of a run when it is their turn. Raises `RunError` for a run
    without such a model, and for one with several of which one is to be written; `ModelError` for a model without layer
    weights; and what `examples_of` raises.
    """
    if config.suite:
        return (yield from edge_phenomena(config, reporter))
    path = Path(config.model).expanduser()

    def opened(folder: Path, of: TrainedModel | None = None, name: str = "") -> Opened:
        model = open_weighted(folder, device=config.device, dtype=config.dtype)
        if of is not None:
            model = replace(model, arm=of.arm, seed=of.seed)
            # The data of a run are those of the model that its trainings began from.
            model.stack.source = replace(model.stack.source, name=name)
        return model, examples_of(model, config, reporter, inputs.corpus)

    single: Opened | None = None
    models: dict[str, Callable[[], Opened]] = {}
    if is_run(path):
        folders, manifest = weighted_models(path), manifest_of(path)
        if config.output is not None and len(folders) > 1:
            raise RunError(
                f"{path} holds {len(folders)} models with learned layer weights, and one is written: give its folder, "
                f"such as {next(iter(folders.values())).folder}"
            )
        models = {label: partial(opened, each.folder, each, manifest.model) for label, each in folders.items()}
    else:
        reporter.log(f"loading {config.model}")
        single = opened(path)
        manifest = single[1].manifest

    def says() -> Iterator[str]:
        cut = f", and {DRAWS + 2} for what a cut leaves" if config.cuts else ""
        if single is not None:
            yield describe_model(single[0].stack)
            yield f"cost: {len(single[0].wired.edges())} passes over the held-out examples, one for every edge{cut}"
            return
        yield f"{len(models)} model{'s' * (len(models) != 1)} with learned layer weights: {', '.join(models)}"
        yield f"cost: for each model one pass over its held-out examples for every edge{cut}"

    def measure(session: UnitSession) -> list[Score]:
        rows: list[Score] = []
        for model, examples in [single] if single is not None else (opens() for opens in models.values()):
            own = _measured(config, model, examples, reporter)
            if len(models) > 1:
                own = [replace(row, arm=model.arm, seed=model.seed) for row in own]
            rows += [*own, *alpha_rows(model.arm, model.seed, model.wired.edges())]
        return rows

    yield Outline(manifest, says, folder=path if models else None, refuse=lambda _: _check_output(config), lasts=False)
    return Completed((yield from MeasureUnit(measure)))


def _check_output(config: LayerWeightAnalysis) -> None:
    """Raise `ModelError` where something is at `--output` already."""
    if config.output is not None and config.output.exists():
        raise ModelError(f"{config.output} is there already; choose another --output, or replace it with --overwrite")


def _measured(
    config: LayerWeightAnalysis, model: WeightedModel, examples: EdgeExamples, reporter: Reporter
) -> list[Score]:
    """Show, rank and cut the weights of one model."""
    edges, seed = model.wired.edges(), config.seed
    reporter.result(f"{model.folder}: {len(edges)} edges, {edges.live_states()} live states")
    reporter.result(weight_map(edges))
    ranked = rank(model.wired, examples.choosing, seed=seed, progress=_progress(reporter, "cutting each edge"))
    rows = ranking_rows(ranked, examples.choosing(), seed=seed, depth=edges.depth)
    reporter.result(edges_table(ranked, edges.depth))
    reporter.result(agreement_sentence(rows))
    if config.cuts:
        rows += _cut(config, model, examples, ranked, reporter)
    return rows


def _cut(
    config: LayerWeightAnalysis,
    model: WeightedModel,
    examples: EdgeExamples,
    ranked: Ranked,
    reporter: Reporter,
) -> list[Score]:
    reporter.log("choosing what to cut")
    left = prune(
        model.wired,
        examples.choosing,
        keep=config.keep,
        tolerance=config.tolerance,
        rounds=config.rounds,
        ranked=ranked,
        seed=config.seed,
    )
    rows = pruned_rows(
        model.wired,
        left,
        ranked,
        examples.evaluation,
        seed=config.seed,
        progress=_progress(reporter, "cutting as many otherwise"),
    )
    reporter.result(weight_map(left))
    reporter.result(cut_sentences(rows))
    if config.output is not None:
        reporter.result(write_sparse(model, left, config.output))
    return rows


def _progress(reporter: Reporter, label: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(label, done / total)


_DIGITS_UNTIL = 16
"""Sources for which there is room to write each weight as hundredths."""

_SHADES = ((0.5, "█"), (0.2, "▓"), (0.05, "▒"), (0.0, "░"))
_RAMP = (234, 236, 238, 240, 242, 245, 248, 251, 254)
"""Greys of a terminal's 256 colours, from nothing to one."""


def weight_map(edges: LayerWeights) -> Text:
    """The weights as shaded cells, read from top to bottom; a cut edge is a dot, a negative weight has a minus.

    >>> print(weight_map(LayerWeights.of([[1, 0], [0.25, 0.75], [0, -0.5, 0.5]], depth=2)))
          emb    0    1
      0    1.
      1   .25  .75
    out     · -.50  .50
    """
    wide = edges.depth + 1 > _DIGITS_UNTIL
    drawn = Text(no_wrap=True)
    names = ["emb", *map(str, range(edges.depth))][: max(map(len, edges.matrix()))]
    last = max(edge.source for edge in edges)
    if not wide:
        drawn.append("    " + "".join(f" {name:>4}" for name in names[: last + 1]) + "\n", "dim")
    for reader, row in enumerate(edges.matrix()):
        drawn.append(f"{edges.reader_name(reader):>3} ")
        for weight in row[: reader + 1]:
            drawn.append(*_cell(weight, wide))
        drawn.append("\n")
    drawn.right_crop(1)
    return drawn


def _cell(weight: float, wide: bool) -> tuple[str, str]:
    if weight == 0:
        return ("·" if wide else "    ·"), "dim"
    if wide:
        return next(shade for least, shade in _SHADES if abs(weight) >= least), "red" if weight < 0 else ""
    step = min(len(_RAMP) - 1, int(abs(weight) * len(_RAMP)))
    front = "black" if step >= len(_RAMP) // 2 else "white"
    return f" {_hundredths(weight):>4}", f"{front} on color({_RAMP[step]})" if weight > 0 else "red"


def _hundredths(weight: float) -> str:
    """A weight in four characters, if it has a size below a hundred.

    >>> _hundredths(0.254), _hundredths(1.0), _hundredths(-0.5), _hundredths(0.001)
    ('.25', '1.', '-.50', '.00')
    """
    if abs(weight) >= 0.995:
        return f"{weight:.1f}".removesuffix("0")
    return f"{weight:.2f}".replace("0.", ".", 1)
