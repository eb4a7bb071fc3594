"""Run layerwise commands in forks of a process that has already imported torch and transformers.

The imports take longer than most commands of the site.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

PRELOADED = ("layerwise.cli.app", "layerwise.runner.study", "transformers.models.auto.modeling_auto", "sphinx")

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOADED))


def run_forked(words: list[str], folder: Path, max_seconds: float) -> tuple[int, str]:
    """Run `layerwise` with these words in a folder, and return its exit status and output.

    Raises:
        TimeoutError: If the command takes more than `max_seconds`.
    """
    output = folder / ".printed"
    process = _CONTEXT.Process(target=_run_main, args=(words, folder, output))
    process.start()
    process.join(max_seconds)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{' '.join(words)} took more than {max_seconds} seconds")
    text = output.read_text(encoding="utf-8")
    output.unlink()
    return process.exitcode, text


def _run_main(words: list[str], folder: Path, output: Path) -> None:
    from layerwise.cli.app import main

    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.argv = words
    main()
