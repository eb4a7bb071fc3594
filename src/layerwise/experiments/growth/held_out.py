"""What a trained model loses on the held-out text, beside the model: whoever trained it measures it, here or elsewhere.

RUN/ARM/seed-N/held-out.json     the row of the training in RUN/ARM/seed-N/model
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.errors import RunError
from layerwise.experiments.growth.task import GrowthTask
from layerwise.results.checked import read
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.results.training_record import MODEL
from layerwise.train.phases.metrics import held_out_row

FILE = "held-out.json"


def held_out_loss(training: Path, task: GrowthTask, **columns: Any) -> Score:
    """The held-out loss of the model in the folder `training`, in nats per token: measured once, then read.

    `columns` say which model it is.

    Raises `RunError` for a file that holds something else.
    """
    path = training / FILE
    try:
        content = read(path)
    except FileNotFoundError:
        row = held_out_row(training / MODEL, task.splits, str(task.stack.device), **columns)
        write_whole(path, json.dumps(asdict(row), indent=1).encode())
        return row
    try:
        return Score(**content)
    except TypeError as error:
        raise RunError(f"{path} does not hold one held-out loss; remove it, and it is measured again") from error
