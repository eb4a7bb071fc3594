"""One sitting of the study of growth: told as it goes, and the report."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerwise.cli.course import discard_models, tell
from layerwise.cli.growth_course import announce, watcher_of
from layerwise.cli.screen import PartBar, errors, write
from layerwise.cli.sitting import begin, speaker
from layerwise.measure.provenance import folder_of
from layerwise.train.growth.conduct import PILOT, SCHEDULE, Study, check_study, conduct
from layerwise.train.growth.pupil import Pupil, manifest_of
from layerwise.train.processes import shared_recipe


def hold(
    pupil: Pupil, asked: Study, arguments: Mapping[str, Any], *, folder: Path | None, fresh: bool, quiet: bool
) -> None:
    """Carry the study on into `folder`, or into one named by what is learned, and write its report."""
    check_study(pupil, asked)
    manifest = manifest_of(pupil, asked.seed, tuple(sys.argv), arguments)
    manifest = replace(manifest, families=(*manifest.families, "study"))
    options = {name: value for name, value in asdict(asked).items() if name not in ("arms", "seeds")}
    folder = folder or folder_of(manifest, shared_recipe(options, arguments))
    say = speaker(quiet)
    with begin(folder, manifest, fresh) as run:
        if fresh:
            _discard(folder)
        announce(pupil, run, say)
        try:
            with PartBar(quiet) as bar:
                conduct(pupil, asked, run, watcher_of(say, bar), arguments)
        except KeyboardInterrupt:
            write(errors, "stopped: finished models and checkpoints are kept; the same command goes on from here")
            raise
        tell(run)


def _discard(folder: Path) -> None:
    discard_models(folder)
    if (folder / PILOT).is_dir():
        shutil.rmtree(folder / PILOT)
    (folder / SCHEDULE).unlink(missing_ok=True)
