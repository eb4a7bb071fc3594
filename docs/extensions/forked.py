"""A command of layerwise, carried out in a copy of a process that has imported torch and transformers already.

The imports take longer than most commands of the site. The server is a process of its own, so nothing that Sphinx or
a notebook holds is copied.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

PRELOADED = ("layerwise.cli.app", "layerwise.runner.study", "transformers.models.auto.modeling_auto", "sphinx")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(PRELOADED))


def forked(words: list[str], folder: Path, limit: float) -> tuple[int, str]:
    """The status of `layerwise` with these words in a folder, and all that it prints.

    Raises `TimeoutError` when the command takes more than `limit` seconds.
    """
    printed = folder / ".printed"
    process = _FORKS.Process(target=_carry_out, args=(words, folder, printed))
    process.start()
    process.join(limit)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{' '.join(words)} took more than {limit} seconds")
    text = printed.read_text(encoding="utf-8")
    printed.unlink()
    return process.exitcode, text


def _carry_out(words: list[str], folder: Path, printed: Path) -> None:
    from layerwise.cli.app import main

    with printed.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.argv = words
    main()
