"""Runs cases through the fork server. By hand: `python -m hostile.runner [PART_OF_A_NAME ...]` prints a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from hostile.case import MEMORY, SECONDS, Case, Ended, contents, faults

SETTINGS = {
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1",
    "PYTHONHASHSEED": "0",
}  # fmt: skip


class Server:
    """The fork server of `hostile.server`, started when it is entered, ended when it is left."""

    def __enter__(self) -> Server:
        above = str(Path(__file__).parents[1])
        self._home = TemporaryDirectory(prefix="hostile-home-")  # what `datasets` keeps would make later runs differ
        paths = [above, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hostile.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **SETTINGS, "HF_HOME": self._home.name, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()
        self._home.cleanup()

    def command(self, arguments: Sequence[str], folder: Path, streams: Path, environment: dict[str, str]) -> Ended:
        """Run `layerwise ARGUMENTS` in `folder`; its output passes through files in `streams`."""
        request = {
            "arguments": list(arguments), "folder": str(folder), "streams": str(streams), "environment": environment,
            "memory": MEMORY, "seconds": SECONDS,
        }  # fmt: skip
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Ended(**self._answer())

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fork server ended"
        found: dict[str, object] = json.loads(line)
        return found


def run(case: Case, server: Server) -> tuple[list[str], Ended]:
    """What is wrong with how `case` ends, and how it ended."""
    with TemporaryDirectory(prefix="hostile-") as root:
        folder, streams = Path(root, "here"), Path(root, "streams")
        folder.mkdir()
        streams.mkdir()
        if case.make is not None:
            case.make(folder)
        for arguments in case.before:
            ended = server.command(arguments, folder, streams, dict(case.environment))
            if ended.code != 0:
                return [f"`layerwise {' '.join(arguments)}`, which comes before, ended with {ended.code}"], ended
        lay = contents(folder)
        ended = server.command(case.arguments, folder, streams, dict(case.environment))
        found = faults(case, ended)
        if case.says is not None:
            found += _changed(lay, contents(folder), case.writes)
        if case.check is not None:
            try:
                case.check(folder, ended)
            except AssertionError as error:
                found.append(str(error) or "its check failed")
        return found, ended


def _changed(before: dict[str, str], after: dict[str, str], allowed: Sequence[str]) -> list[str]:
    """The paths that a refused command changed, and should not have."""
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    found = [path for path in changed if not any(fnmatch(path, pattern) for pattern in allowed)]
    return [f"the folder changed: {', '.join(found[:4])}"] if found else []


def described(case: Case, found: Sequence[str], ended: Ended) -> str:
    """A case that failed, for a reader: its name, what is wrong, and what the command wrote."""
    told = "\n".join(f"    {line}" for line in ended.err.strip().splitlines()[-6:])
    return f"{case.name}: {'; '.join(found)}\n{told}"


def main(parts: Sequence[str]) -> int:
    """Run the cases whose names hold one of `parts`, and print a line for each; the number that failed."""
    from hostile.cases import CASES

    chosen = [case for case in CASES if not parts or any(part in case.name for part in parts)]
    failed = 0
    with Server() as server:
        for case in chosen:
            found, ended = run(case, server)
            failed += bool(found)
            cost = f"{ended.rss / 2**20:6,.0f} MB {ended.cpu:5.2f} of {ended.seconds:5.2f} s"
            print(f"{'FAILED' if found else 'ok    '} {cost}  {case.name}")
            print("\n".join(f"         {line}" for line in [*found, *ended.err.strip().splitlines()[-5:]]), flush=True)
    print(f"{len(chosen)} cases, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
