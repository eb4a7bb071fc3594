"""`layerwise save`: a model under a plan, or layers of several models, written as an ordinary checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Action, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.model import Dtype, LoadingOptions
from layerwise.experiments.reporter import Reporter
from layerwise.plan import Plan
from layerwise.results.run import MANIFEST


@dataclass(frozen=True, kw_only=True)
class Saving(LoadingOptions, Action):
    """Write a model under a plan, or one made of the layers of several models, as an ordinary checkpoint.

    The checkpoint is loaded again and compared with the plan before the folder gets its name; the tokenizer is written
    beside it. Groups and halves of layers cannot be saved. Several models are called a, b, c, ... in the order given.
    """

    VERB: ClassVar = "save"
    EXAMPLES: ClassVar = (
        'demo --plan "0-3 6-11" --output shallow',
        'org/name --plan "0-11 8-31" --output deeper',
        'FOLDER1 FOLDER2 --plan "a:0-5 b:6-11" --output merged',
    )
    READS: ClassVar = (
        Reads(
            ("tokenizer", "layers", "revision", "trust_remote_code"),
            lambda config: not config.takes_several,
            "one model reads it, and several were given",
        ),
        Reads(("arm",), lambda config: config.takes_several, "it selects among several models, and one was given"),
    )

    models: tuple[str, ...] = option(
        help="Hub ids, folders, runs of `layerwise train robust`, demo or demo-vit.",
        metavar="MODEL",
        positional=True,
        repeated=True,
        is_location=True,
    )
    plan: str = option(help='Which layers, in which order: "0-3 6-11".', metavar="PLAN", empty=True)
    output: Path = option(help="Folder to write.", metavar="FOLDER")
    arm: str | None = option(None, "Take only the models of this arm.", metavar="NAME")
    overwrite: bool = option(False, "Replace the model that is in the folder.")
    dtype: Dtype = option("auto", "Data type of the weights; auto is the checkpoint's.")
    trust_remote_code: bool = option(False, "Run code that comes with the model.")

    @property
    def takes_several(self) -> bool:
        """Whether layers are taken from several models, or from the models of a run."""
        return len(self.models) > 1 or any(
            (Path(location).expanduser() / MANIFEST).is_file() for location in self.models
        )

    def check(self) -> None:
        """Raise `PlanError` for a plan that cannot be read, and `OptionError` without a model."""
        Plan.parse(self.plan)
        if not self.models:
            raise OptionError("a model is needed: layerwise save MODEL --plan PLAN --output FOLDER")

    def act(self, reporter: Reporter) -> int:
        """Write the checkpoint, and report what it is and how it is loaded."""
        from layerwise.experiments.saving.run import save_checkpoint

        for location in self.models:
            reporter.log(f"loading {location}")
        save_checkpoint(self, reporter)
        return 0
