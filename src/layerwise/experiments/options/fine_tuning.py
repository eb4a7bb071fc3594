"""Options that say which tasks a model is fine-tuned on, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerwise.experiments.option import option
from layerwise.experiments.options.training import changed


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """How models are fine-tuned on tasks; what is left out keeps its usual value."""

    tasks: tuple[str, ...] = option((), metavar="NAMES")
    seeds: int = option(3, metavar="N", least=1, most=1_000)
    train: Literal["all", "head"] = option("all", "Weights that learn: all, or the new head alone.", rare=True)
    learning_rate: float | None = option(None, metavar="X", above=0)
    batch_size: int | None = option(None, metavar="N", least=1, rare=True)
    epochs: int | None = option(None, metavar="N", least=1)
    patience: int | None = option(
        None, "Epochs without a better selection score that end the training; 3 by default.", metavar="N", least=1,
        setting=True,
    )  # fmt: skip
    max_length: int | None = option(None, metavar="N", least=2, rare=True)

    def changes(self) -> dict[str, Any]:
        """The settings of a fine-tuning that these options replace, by the names of `FineTuningConfig`."""
        rates = None if self.learning_rate is None else (self.learning_rate,)
        return changed(
            learning_rates=rates, batch_size=self.batch_size, epochs=self.epochs, patience=self.patience,
            length=self.max_length, train=None if self.train == "all" else self.train,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GlueOptions:
    """Tasks of GLUE that every model of a training is fine-tuned on, beside the options of the training itself."""

    glue: Path | None = option(None, "Folder of GLUE's files; every arm is fine-tuned on its tasks.", metavar="FOLDER")
    glue_tasks: tuple[str, ...] = option(
        (), "Tasks of --glue; all that it holds by default.", metavar="NAMES", needs="glue", setting=True
    )
    glue_learning_rate: float | None = option(
        None, "Peak learning rate on GLUE; 5e-5 by default.", metavar="X", needs="glue", setting=True, above=0
    )
    glue_batch_size: int | None = option(
        None, "Examples in a step on GLUE; 32 by default.", metavar="N", least=1, needs="glue", setting=True
    )
    glue_epochs: int | None = option(
        None, "Epochs on GLUE at most; 10 by default.", metavar="N", least=1, needs="glue", setting=True
    )
    glue_patience: int | None = option(
        None, "Epochs on GLUE without a better selection score; 3 by default.", metavar="N", least=1, needs="glue",
        setting=True,
    )  # fmt: skip
    glue_max_length: int | None = option(
        None, "Tokens of an example of GLUE; 128 by default.", metavar="N", least=2, needs="glue", setting=True
    )
    glue_limit: int | None = option(
        None, "Training and test examples of a task of GLUE, at most.", metavar="N", least=1, needs="glue", setting=True
    )
    tuning_evals: int = option(
        10, "Points of the learning curve of every fine-tuning, beside the ends of its epochs.", metavar="N",
        least=0, most=1_000, setting=True,
    )  # fmt: skip
    target_score: float | None = option(
        None, "Selection score to which steps and seconds of fine-tuning are counted; by default the last that every "
        "fine-tuning of the backbone reaches.", metavar="X", least=-1, most=1, setting=True,
    )  # fmt: skip

    def glue_changes(self) -> dict[str, Any]:
        """The settings of a fine-tuning on GLUE that these options replace, by the names of `FineTuningConfig`."""
        tuning = FineTuningOptions(
            learning_rate=self.glue_learning_rate, batch_size=self.glue_batch_size, epochs=self.glue_epochs,
            patience=self.glue_patience, max_length=self.glue_max_length,
        )  # fmt: skip
        return {
            **tuning.changes(),
            **changed(training_limit=self.glue_limit, test_limit=self.glue_limit),
            "evals": self.tuning_evals,
        }
