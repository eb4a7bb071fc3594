"""Options that say which tasks a model is fine-tuned on, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from layerwise.experiments.option import option
from layerwise.experiments.options.training import changed


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """How models are fine-tuned on tasks; what is left out keeps its usual value."""

    tasks: tuple[str, ...] = option((), "Fine-tuned tasks; all of their suite by default.", metavar="NAMES")
    seeds: int = option(3, "Fine-tunings of each model on a task.", metavar="N", least=1, most=1_000)
    train: Literal["all", "head"] = option("all", "Weights that learn: all, or the new head alone.")
    learning_rate: float | None = option(None, "Peak learning rate; 5e-5 by default.", metavar="X")
    batch_size: int | None = option(None, "Examples in a step; 32 by default.", metavar="N", least=1)
    epochs: int | None = option(None, "Epochs at most; 10 by default.", metavar="N", least=1)
    patience: int | None = option(
        None, "Epochs without a better selection score that end the training; 3 by default.", metavar="N", least=1
    )
    max_length: int | None = option(None, "Tokens of an example; 128 by default.", metavar="N", least=2)

    def changes(self) -> dict[str, Any]:
        """The settings of a fine-tuning that these options replace, by the names of `FineTuningConfig`."""
        rates = None if self.learning_rate is None else (self.learning_rate,)
        return changed(
            learning_rates=rates, batch_size=self.batch_size, epochs=self.epochs, patience=self.patience,
            length=self.max_length, train=None if self.train == "all" else self.train,
        )  # fmt: skip
