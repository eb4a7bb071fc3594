"""Run functions and commands in forked processes, which share imports and can kill themselves at a given write."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from torch.distributed import TCPStore

import processor_time
from threads import threaded

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "COLUMNS": "80", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
_PAUSE = 0.005  # seconds between two looks at how much memory a process holds
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


@dataclass(frozen=True, slots=True)
class Ended:
    """`code` is negative for a signal; `rss` in bytes, `cpu` in seconds; `killed` names the exceeded limit."""

    code: int
    out: str
    err: str
    rss: int = 0
    cpu: float = 0.0
    killed: str = ""
    writes: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return self.err.partition("error: ")[2].strip()


@dataclass(frozen=True, slots=True)
class Watch:
    """Count writes below `folder` that contain `of` (SQL, open, rename, remove, audit); kill at write `strike`."""

    folder: Path
    strike: int | None = None
    of: str = ""

    def begin(self, log: Path) -> None:
        lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        count = 0

        def write(what: str) -> None:
            nonlocal count
            line = " ".join(what.split())[:80]
            if self.of in line:
                if count == self.strike:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
            os.write(lines, f"{line}\n".encode())

        def heard(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open":
                path, _, flags = arguments
                if isinstance(flags, int) and flags & _WRITING and self._below(path):
                    write(f"open {self._name(path)}")
            elif event in _CHANGING and self._below(arguments[0]):
                write(f"{event} {self._name(arguments[0])}")
            elif event == "apart.write":
                write(arguments[0])

        own = sqlite3.connect

        def connect(database: str | Path, *arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = own(database, *arguments, **options)
            if str(self.folder) in os.fsdecode(database):
                connection.set_trace_callback(lambda statement: None if _reads(statement) else write(statement))
            return connection

        sqlite3.connect = connect
        sys.addaudithook(heard)

    def _below(self, path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(str(self.folder))

    def _name(self, path: str | bytes | os.PathLike[str]) -> str:
        return os.path.relpath(os.fsdecode(path), self.folder)


def _reads(statement: str) -> bool:
    return statement.lstrip()[:6].upper() in ("SELECT", "PRAGMA")


@cache
def _server() -> tuple[ForkServerContext, str]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    own = dict(os.environ)
    home = mkdtemp(prefix="home-", dir=own.get("LAYERWISE_CACHE"))
    try:
        os.environ.update(threaded(**OFFLINE, HF_HOME=home, PYTHONPATH=os.pathsep.join(sys.path)))
        ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(own)
    return context, home


def forget_datasets() -> None:
    shutil.rmtree(Path(_server()[1], "datasets"), ignore_errors=True)


def apart(
    function: Callable[..., object],
    *arguments: Any,
    watch: Watch | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    memory: int | None = None,
    seconds: int | None = None,
) -> Ended:
    """Run a function in a forked process in `folder`; kill it above `memory` bytes or `seconds` of CPU."""
    with TemporaryDirectory(prefix="apart-") as streams:
        process = _begun(function, arguments, Path(streams), watch, folder, environment or {}, seconds)
        killed = ""
        while memory is not None and process.is_alive():
            if _resident(process.pid) > memory:
                killed = "memory"
                process.kill()
            time.sleep(_PAUSE)
        return _ended(process, Path(streams), killed)


def ranks(function: Callable[..., object], *arguments: Any) -> None:
    """Run a function in two `torchrun`-like processes; this process holds the store so that the port stays taken."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    found = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    with TemporaryDirectory(prefix="ranks-") as root:
        streams = [Path(root, str(rank)) for rank in (0, 1)]
        processes = []
        for rank, folder in enumerate(streams):
            folder.mkdir()
            own = {**found, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(_begun(function, arguments, folder, None, None, own, None))
        while alive := [process for process in processes if process.is_alive()]:
            wait([process.sentinel for process in alive])
            if any(process.exitcode for process in processes):  # the other would wait for it
                for process in alive:
                    process.kill()
        ended = [_ended(process, folder) for process, folder in zip(processes, streams, strict=True)]
    assert not any(each.code for each in ended), "\n".join(f"{each.code}: {each.err[-4000:]}" for each in ended)


def _begun(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    streams: Path,
    watch: Watch | None,
    folder: Path | None,
    environment: Mapping[str, str],
    seconds: int | None,
) -> BaseProcess:
    context, home = _server()
    variables = threaded(**OFFLINE, HF_HOME=home, **environment)
    process = context.Process(target=_child, args=(function, arguments, streams, watch, folder, variables, seconds))
    process.start()
    return process


def _ended(process: BaseProcess, streams: Path, killed: str = "") -> Ended:
    process.join()
    code = process.exitcode
    assert code is not None
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it may have left running
    cost = json.loads(_read(streams / "cost") or "{}")
    processor_time.ELSEWHERE[0] += cost.get("cpu", 0.0)
    return Ended(
        code,
        _read(streams / "out"),
        _read(streams / "err"),
        **cost,
        killed="time" if code == -signal.SIGXCPU else killed,
        writes=tuple(_read(streams / "writes").splitlines()),
    )


def run_command(*arguments: str | Path, **options: Any) -> Ended:
    return apart(_main, *map(str, arguments), **options)


def _main(*arguments: str) -> None:
    from layerwise.cli.app import main

    sys.argv = ["layerwise", *arguments]
    main()


def _child(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    streams: Path,
    watch: Watch | None,
    folder: Path | None,
    variables: dict[str, str],
    seconds: int | None,
) -> None:
    code = 1
    try:
        os.setsid()
        multiprocessing.set_start_method("fork", force=True)  # as in a process that was started afresh
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        os.environ.clear()
        os.environ.update(variables)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if folder is not None:
            os.chdir(folder)
        if watch is not None:
            watch.begin(streams / "writes")
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        used = resource.getrusage(resource.RUSAGE_SELF)
        (streams / "cost").write_text(json.dumps({"rss": used.ru_maxrss * 1024, "cpu": used.ru_utime + used.ru_stime}))
        os._exit(code)


def _resident(process: int | None) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else ""
