"""The description of the run that a call of a verb would start; nothing is computed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerwise.runner import study
from layerwise.runner.reporter import Silent
from layerwise.runner.study import RunDescription
from layerwise.runner.verb import StudyFinishedError, from_command_line
from layerwise.studies.robustness import steps as robustness


def describe_call(function: Callable[..., object], *arguments: Any, **options: Any) -> RunDescription:
    described: list[RunDescription] = []

    def describe(description: RunDescription) -> None:
        described.append(description)
        raise StudyFinishedError(Path())

    with pytest.MonkeyPatch.context() as patched, from_command_line():
        for module in (study, robustness):
            patched.setattr(module, "start_run", describe)
        function(*arguments, **options, reporter=Silent())
    return described[0]
