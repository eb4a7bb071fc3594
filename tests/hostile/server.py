"""A process that has imported layerwise and torch, and forks a child for each command line it is sent.

A command then costs what it does, and not five seconds of imports. Requests and answers are lines of JSON on the
standard streams. Run as `python -m hostile.server`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

_PAUSE = 0.005  # seconds between two looks at a child
_FIRST = ("sweep", "demo", "--families", "", "--plan", "0-10", "--no-similarity", "--max-length", "12", "--quiet")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def serve() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _prepare()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), file=answers, flush=True)


def _prepare() -> None:
    """Import what the commands import when they run, most of it by running one."""
    import torch

    import layerwise
    from layerwise.cli import app

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(layerwise.__path__, "layerwise."):
        if not module.name.endswith("__main__") and not module.name.startswith("layerwise.cli."):
            importlib.import_module(module.name)
    app.build = cache(app.build)  # building it is most of what a refusal costs
    with TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text(__doc__ or "")
        app.build()([*_FIRST, "--text", f"{folder}/text.txt", "--run", f"{folder}/run"])
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at


def _run(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(request["streams"])
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _command(request, folder)
    killed = ""
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if _resident(child) > request["memory"]:
            killed = "memory"
        elif time.monotonic() - began > request["seconds"]:
            killed = "time"
        if killed:
            os.kill(child, signal.SIGKILL)
        time.sleep(_PAUSE)
    seconds = time.monotonic() - began
    _kill_group(child)
    return {
        "code": os.waitstatus_to_exitcode(status), "killed": killed, "rss": usage.ru_maxrss * 1024, "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime, "out": _words(folder / "out"), "err": _words(folder / "err"),
    }  # fmt: skip


def _command(request: dict[str, Any], streams: Path) -> NoReturn:
    """The child: what the program `layerwise` does, between its imports and its end."""
    code = 1
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["layerwise", *request["arguments"]]
        from layerwise.cli.app import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _resident(process: int) -> int:
    """The resident set of a process in bytes; 0 where it has just ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _kill_group(leader: int) -> None:
    """End what a command may have left running."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _words(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace")[:20_000] if path.exists() else ""


if __name__ == "__main__":
    serve()
