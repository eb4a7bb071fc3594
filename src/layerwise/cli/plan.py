"""`layerwise plan`: read a plan, say in words what it does, what it costs, and draw its wiring; or translate it."""

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

# The picture stays small enough to be seen whole, and a cell is two characters wide beside the name of its row.
CELLS = 48
GAP = 3

MODEL = "Model that it is meant for, whose depth is read without --depth; several are a, b, c, ..."
FROM = "Read it from a file: mergekit's YAML, or a plan."
TO = "Print it in another form, and nothing else: mergekit, tensor-types (of llama-quantize) or text."


def plan(
    *text: Annotated[str, Parameter(name="PLAN", help='A plan, such as "0-13 (14|15|16|17)*3 18-31".')],
    depth: Annotated[int | None, Parameter(metavar="LAYERS", help="Depth of the model that it is meant for.")] = None,
    model: Annotated[
        tuple[str, ...], Parameter(metavar="MODEL", help=MODEL, negative=(), n_tokens=1, show_default=False)
    ] = (),
    source: Annotated[str | None, Parameter(name="--from", metavar="FILE", help=FROM)] = None,
    dialect: Annotated[str | None, Parameter(name="--to", metavar="FORM", help=TO)] = None,
) -> None:
    """Read a plan: what it does and costs, and its wiring as a picture.

    layerwise plan "0-13 (14|15|16|17)*3 18-31" --depth 32

    layerwise plan --from mergekit.yml

    layerwise plan "0-7 6-11" --model demo --to mergekit

    How to write one:

    0-31                       layers 0 to 31, as trained
    0-13 18-31                 skip 14 to 17
    0-13 17-14 18-31           a descending range runs backwards
    0-13 15*4 18-31            layer 15 four times
    0-11 12.mlp 13-29          half of layer 12: its mlp, or 12.attn
    0-44 [45-51]*2 52-79       a block of layers twice
    0-13 (14|15|16|17) 18-31   side by side: the mean of their outputs
    0-5 (6 7|8 9):sum 10-31    longer branches; :sum or :gain=2, not the mean
    a:0-13 b:14-31             layers of two models, a and b
    0-13 Q4_0:14 15-31         layer 14 quantized to a type of GGUF
    """
    if depth is not None and depth < 1:
        raise OptionError(f"--depth takes a number from 1; found {depth}")
    if source is not None and text:
        raise OptionError("a PLAN and --from each say what the plan is; give one of them")
    # YAML is read by few, and help does not wait for it.
    from layerwise.plan.dialects import MergeRecipe
    from layerwise.runner.foreign_plans import depth_of, read_recipe, with_models, write_recipe

    if depth is None and model:
        depth = min(map(depth_of, model))
    recipe = MergeRecipe(Plan.parse(" ".join(text))) if source is None else read_recipe(source)
    recipe = with_models(recipe, model)
    if depth is not None:
        recipe.plan.check(depth)
    for note in recipe.notes:
        write(errors, f"note: {note}")
    if dialect is None:
        _show(recipe, depth)
    else:
        write(output, write_recipe(recipe, dialect, depth))


def _show(recipe: MergeRecipe, depth: int | None) -> None:
    read = recipe.plan
    write(output, str(read), style="bold")
    write(output, explain(read, depth))
    output.print(_costs(read, depth))
    for name, location in recipe.models.items():
        write(output, f"{'model' if name is None else f'model {name}':17}  {location}")
    cells = max(1, min(CELLS, (output.width - GAP - max(len(step.name) for step in read.steps())) // 2))
    output.print(picture(read, cells), markup=False, no_wrap=True, overflow="ignore", crop=False)
    write(output, LEGEND, style="dim")


def _costs(read: Plan, depth: int | None) -> Table:
    cost = read.cost()
    whole = f" (as trained: {depth})" if depth is not None else ""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("layer evaluations", f"{cost.evaluations}{whole}")
    table.add_row("sequential stages", f"{cost.stages}{whole}")
    sources = len(read.sources())
    of = f" of {sources} models" if sources > 1 else f" of {depth}" if depth is not None else ""
    table.add_row("layers used", f"{cost.weights}{of}")
    table.add_row("KV slots", str(cost.slots))
    return table
