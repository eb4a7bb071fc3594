"""Trackers: the services and files that follow the log of a training, which transformers writes to by their names."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from layerwise.errors import TrainError, near_matches

_EVERY = ("all", "none")
_PACKAGES = {"comet_ml": "comet-ml", "azure_ml": "azureml-core mlflow", "neptune": "neptune", "flyte": "flytekit"}
"""What is installed for a tracker, where its name is another."""


def check_trackers(report_to: object) -> None:
    """Raise `TrainError` for a tracker that there is not, with the near matches, or that is not installed."""
    names = [report_to] if isinstance(report_to, str) else report_to if isinstance(report_to, Iterable) else ()
    for name in map(str, names):
        if name in _EVERY:
            continue
        if name not in INTEGRATION_TO_CALLBACK:
            raise TrainError(f"there is no tracker {name[:40]!r}; {near_matches(name, INTEGRATION_TO_CALLBACK)}")
        if name not in get_available_reporting_integrations():
            raise TrainError(
                f"the tracker {name} is not installed, so nothing would follow the training: pip install "
                f"{_PACKAGES.get(name, name)}, or name another one with --track"
            )


class EndOfTracking(TrainerCallback):
    """Ends a run of wandb with its training: the next training of the same process is a run of its own."""

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End it, if the training reported to it."""
        wandb: Any = sys.modules.get("wandb")
        if "wandb" in (args.report_to or ()) and wandb is not None and wandb.run is not None:
            wandb.finish()
