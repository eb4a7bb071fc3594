"""Run pytest in a forked child of this process, within limits of processor time, wall time and memory.

Importing torch and transformers takes several seconds of processor time. This process imports them once; each child
inherits them and imports the project and its tests itself, so that it sees the tree as it is on disk.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PRELOADED = (
    "torch",
    "torch.nn.functional",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.linear_model",
    "transformers",
    "transformers.trainer",
    "transformers.models.llama.modeling_llama",
    "datasets",
    "pyarrow",
    "accelerate",
    "safetensors.torch",
    "tokenizers",
    "PIL.Image",
    "yaml",
    "cyclopts",
    "rich.progress",
)
# No plugin that writes into the tree, and no examples that Hypothesis remembers from another run.
# The preloaded libraries hold modules whose pytest plugins cannot be rewritten any more, which pytest warns of.
OPTIONS = ("-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning")
MEMORY = 14 * 2**30
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux: which signal a process gets when its parent has ended


@dataclass(frozen=True)
class Exit:
    """The exit code of a child (minus the signal, if any), and whether it timed out."""

    code: int
    timed_out: bool


def preload() -> None:
    """Import the heavy libraries once, and exempt them from garbage collection in the children."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def run_pytest(
    tree: Path,
    arguments: Sequence[str],
    plugin: object,
    log: Path,
    seconds: float,
    start: Callable[[], None] | None = None,
) -> Exit:
    """Run pytest on `tree` with `arguments` and `plugin` in a child; `start` is called in it before pytest begins.

    `seconds` limits the processor time of the child and of each of its children; the wall time may be four times
    that, plus a minute, because the machine may be busy. Output goes to the file `log`.
    """
    child = os.fork()
    if child == 0:
        _become_pytest(tree, arguments, plugin, log, seconds, start)
    deadline = time.monotonic() + 4 * seconds + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_group(child)
            code = os.waitstatus_to_exitcode(status)
            return Exit(code, code == -signal.SIGXCPU)
        time.sleep(0.02)
    _end_group(child)
    os.waitpid(child, 0)
    return Exit(-signal.SIGKILL, timed_out=True)


def _become_pytest(
    tree: Path, arguments: Sequence[str], plugin: object, log: Path, seconds: float, start: Callable[[], None] | None
) -> None:
    """Run pytest and exit without unwinding the parent."""
    code = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        with log.open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        root = Path(__file__).parents[2]
        sys.path[:] = [str(tree / "src"), *(entry for entry in sys.path if entry and Path(entry).resolve() != root)]
        for name in [name for name in sys.modules if name.split(".")[0] == "tools"]:
            del sys.modules[name]  # the tree may have other tools, which its tests import
        sys.argv = ["pytest", *arguments]
        if start is not None:
            start()
        pytest = importlib.import_module("pytest")
        code = int(pytest.main([*OPTIONS, *arguments], plugins=[plugin]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_group(child: int) -> None:
    """Kill remaining processes of the child's process group."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return
