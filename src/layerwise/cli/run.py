"""`layerwise run`: an experiment from a YAML file, or again from the folder of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from layerwise.cli.command import DRY_RUN, QUIET, carry_out, path_parameter
from layerwise.experiments.files import read_experiment


def run(
    file: Annotated[Path, path_parameter("FILE", "YAML file of an experiment, or a run folder.")],
    /,
    *,
    quiet: Annotated[bool, QUIET] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> int:
    """Run an experiment from a YAML file, or resume the one of a run folder.

    The file holds the verb as `experiment`, and the options by their names:

    experiment: sweep
    model: demo
    families: [painters, leave_one_out]

    layerwise run experiment.yaml --dry-run

    layerwise run runs/demo
    """
    return carry_out(read_experiment(file), quiet=quiet, dry_run=dry_run)
