"""`layerwise plan`: explain a plan, or convert it to another format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from layerwise.errors import OptionError
from layerwise.plan import Plan
from layerwise.plan.explain import explain
from layerwise.plan.wiring import LEGEND, picture
from layerwise.runner.terminal import errors, output, write

if TYPE_CHECKING:
    from layerwise.plan.dialects import MergeRecipe

MAX_CELLS = 48
GAP = 3  # characters between the name of a row and its cells

MODEL = "Model to read the number of layers from; repeat for models a, b, c, ..."
FROM = "File with a plan or mergekit YAML."
TO = "Convert to this format and print nothing else: mergekit, tensor-types (for llama-quantize) or text."


def plan(
    *text: Annotated[str, Parameter(name="PLAN", help='A plan, such as "0-13 (14|15|16|17)*3 18-31".')],
    depth: Annotated[int | None, Parameter(metavar="LAYERS", help="Number of layers of the model.")] = None,
    model: Annotated[
        tuple[str, ...], Parameter(metavar="MODEL", help=MODEL, negative=(), n_tokens=1, show_default=False)
    ] = (),
    source: Annotated[str | None, Parameter(name="--from", metavar="FILE", help=FROM)] = None,
    dialect: Annotated[str | None, Parameter(name="--to", metavar="FORMAT", help=TO)] = None,
) -> None:
    """Explain a plan: show what it does, what it costs and how its layers are wired.

    layerwise plan "0-13 (14|15|16|17)*3 18-31" --depth 32

    layerwise plan --from mergekit.yml

    layerwise plan "0-7 6-11" --model demo --to mergekit

    Plan syntax:

    0-31                       layers 0 to 31 (the original model)
    0-13 18-31                 skip layers 14 to 17
    0-13 17-14 18-31           run layers 14 to 17 in reverse order
    0-13 15*4 18-31            run layer 15 four times
    0-11 12.mlp 13-29          run only the MLP of layer 12 (or 12.attn)
    0-44 [45-51]*2 52-79       run a block of layers twice
    0-13 (14|15|16|17) 18-31   run layers in parallel and average the outputs
    0-5 (6 7|8 9):sum 10-31    sum the outputs (or :gain=2)
    a:0-13 b:14-31             layers of two models, a and b
    0-13 Q4_0:14 15-31         quantize layer 14 to a GGUF type
    """
    if depth is not None and depth < 1:
        raise OptionError(f"--depth must be at least 1, got {depth}.")
    if source is not None and text:
        raise OptionError("PLAN and --from cannot be combined. Pass one of them.")
    from layerwise.plan.dialects import MergeRecipe  # slow to import: YAML
    from layerwise.runner.foreign_plans import add_models, read_depth, read_recipe, write_recipe

    if depth is None and model:
        depth = min(map(read_depth, model))
    recipe = MergeRecipe(Plan.parse(" ".join(text))) if source is None else read_recipe(source)
    recipe = add_models(recipe, model)
    if depth is not None:
        recipe.plan.check(depth)
    for note in recipe.notes:
        write(errors, f"note: {note}")
    if dialect is None:
        _show(recipe, depth)
    else:
        write(output, write_recipe(recipe, dialect, depth))


def _show(recipe: MergeRecipe, depth: int | None) -> None:
    plan_shown = recipe.plan
    write(output, str(plan_shown), style="bold")
    write(output, explain(plan_shown, depth))
    output.print(_tabulate_cost(plan_shown, depth))
    for name, location in recipe.models.items():
        write(output, f"{'model' if name is None else f'model {name}':17}  {location}")
    # A cell is two characters wide.
    cells = max(1, min(MAX_CELLS, (output.width - GAP - max(len(step.name) for step in plan_shown.steps())) // 2))
    output.print(picture(plan_shown, cells), markup=False, no_wrap=True, overflow="ignore", crop=False)
    write(output, LEGEND, style="dim")


def _tabulate_cost(plan_shown: Plan, depth: int | None) -> Table:
    cost = plan_shown.cost()
    original = f" (original model: {depth})" if depth is not None else ""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("layer evaluations", f"{cost.evaluations}{original}")
    table.add_row("sequential stages", f"{cost.stages}{original}")
    sources = len(plan_shown.sources())
    total = f" of {sources} models" if sources > 1 else f" of {depth}" if depth is not None else ""
    table.add_row("layers used", f"{cost.weights}{total}")
    table.add_row("KV slots", str(cost.slots))
    return table
