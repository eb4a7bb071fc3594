"""`layerwise run`: run a recipe or a YAML file, or resume a run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from layerwise.cli.command import DRY_RUN, QUIET, run_call
from layerwise.errors import LayerwiseError, OptionError
from layerwise.runner.arguments import check_location
from layerwise.runner.files import RECIPES, ExperimentFile, FileStage
from layerwise.runner.terminal import errors, output, write
from layerwise.runner.verb import write_command

SOURCE = f"Recipe ({', '.join(RECIPES)}), YAML file, or run directory."
REST = "Stages to run (default: all), and options that override those in the file: --model demo, --STAGE.model demo."


def run(
    source: Annotated[str, Parameter(name="RECIPE_OR_FILE", help=SOURCE)],
    /,
    *rest: Annotated[str, Parameter(name="STAGE", help=REST, allow_leading_hyphen=True)],
    quiet: Annotated[bool, QUIET] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> int:
    """Run a recipe or the experiments in a YAML file, or resume a run.

    A recipe reproduces experiments of a paper. Its stages run one after another, each in its own directory.

    layerwise run layershuffle --dry-run

    layerwise run painters curves --model demo --families painters

    A YAML file names the verb as `experiment`, and its options:

    experiment: sweep
    model: demo
    families: [painters, leave_one_out]

    layerwise run experiment.yaml --tokens 3000

    layerwise run runs/demo
    """
    if not source:
        raise OptionError(f"RECIPE_OR_FILE must not be empty. Pass one of {', '.join(RECIPES)}, or a file.")
    check_location("RECIPE_OR_FILE", source)
    words = list(rest)
    names = []
    while words and not words[0].startswith("-"):
        names.append(words.pop(0))
    file = ExperimentFile.read(source).select(names)
    stages = file.list_calls(file.parse_options(words))
    if len(stages) > 1 or file.takes:
        _announce(file, stages, dry_run, quiet)
    code = 0
    for stage in stages:
        if stage.name:
            write(output, f"\n{stage.name}", style="bold")
        if dry_run and (waiting := stage.list_missing()):
            write(output, f"not counted: it requires the run of {' and '.join(waiting)}, which does not exist yet")
            continue
        try:
            code = max(code, run_call(stage.call, quiet=quiet, dry_run=dry_run))
        except LayerwiseError as error:
            if not dry_run or len(stages) == 1:
                raise
            write(errors, f"error: {error}", style="red")  # the other stages can still be counted
            code = 2
    return code


def _announce(file: ExperimentFile, stages: list[FileStage], dry_run: bool, quiet: bool) -> None:
    if quiet and not dry_run:
        return
    console = output if dry_run else errors
    write(console, file.takes)
    width = max(len(stage.name) for stage in stages)
    for stage in stages:
        write(console, f"  {stage.name:{width}}  {write_command(stage.call.verb, stage.call.options)}")
