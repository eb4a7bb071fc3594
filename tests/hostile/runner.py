"""Run many cases per process and each failure alone; by hand: `python -m hostile.runner [PART_OF_NAME ...]`."""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from apart import Ended, apart, forget_datasets, run_command
from cli.command import layerwise
from hostile import images, models, options, plans, results, tables, texts
from hostile.case import MEMORY, SECONDS, Case, contents, faults

CASES: tuple[Case, ...] = (
    *(*texts.CASES, *models.CASES, *images.CASES, *tables.CASES, *plans.CASES, *results.CASES, *options.CASES),
)


TOGETHER = 32
"""Cases per process: a fork takes longer than most commands."""


def run(
    case: Case, command: Callable[..., Ended] = run_command, forget: Callable[[], None] = forget_datasets
) -> tuple[list[str], Ended]:
    with TemporaryDirectory(prefix="hostile-") as root:
        forget()
        folder = Path(root, "here")
        folder.mkdir()
        if case.make is not None:
            case.make(folder)
        bounds = {"folder": folder, "environment": case.environment, "memory": MEMORY, "seconds": SECONDS}
        lay = contents(folder)
        ended = command(*case.arguments, **bounds)
        found = faults(case, ended)
        if case.says is not None:
            found += _changed(lay, contents(folder), case.writes)
        if case.check is not None:
            try:
                case.check(folder, ended)
            except AssertionError as error:
                found.append(str(error) or "its check failed")
        return found, ended


def failed(numbers: range) -> Iterator[tuple[Case, list[str], Ended]]:
    """Repeat in a process each the cases that fail, or are not reached, in a shared one."""
    for first in range(0, len(numbers), TOGETHER):
        batch = numbers[first : first + TOGETHER]
        with TemporaryDirectory(prefix="hostile-") as folder:
            log = Path(folder, "right")
            log.touch()
            apart(_together, batch, log, memory=MEMORY, seconds=SECONDS + len(batch))
            right = set(map(int, log.read_text().split()))
        for case in (CASES[number] for number in batch if number not in right):
            found, ended = run(case)
            if found:
                yield case, found, ended


def _together(numbers: Sequence[int], log: Path) -> None:
    """`log` gets the numbers of those that end as they must."""

    def forget() -> None:
        shutil.rmtree(Path(os.environ["HF_HOME"], "datasets"), ignore_errors=True)

    for number in numbers:
        if not run(CASES[number], _here, forget)[0]:
            with log.open("a") as lines:
                lines.write(f"{number}\n")


def _here(*arguments: str, folder: Path, environment: dict[str, str], **_: Any) -> Ended:
    before = Path.cwd()
    os.chdir(folder)
    try:
        with patch.dict(os.environ, environment):
            ended = layerwise(*arguments)
    except Exception as error:
        ended = Ended(1, "", f"Traceback: {error}")
    finally:
        os.chdir(before)
    return replace(ended, rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _changed(before: dict[str, str], after: dict[str, str], allowed: Sequence[str]) -> list[str]:
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    found = [path for path in changed if not any(fnmatch(path, pattern) for pattern in allowed)]
    return [f"the folder changed: {', '.join(found[:4])}"] if found else []


def described(case: Case, found: Sequence[str], ended: Ended) -> str:
    told = "\n".join(f"    {line}" for line in ended.err.strip().splitlines()[-6:])
    return f"{case}: {'; '.join(found)}\n{told}"


def main(parts: Sequence[str]) -> int:
    chosen = [case for case in CASES if not parts or any(part in str(case) for part in parts)]
    wrong = [described(case, found, ended) for case in chosen for found, ended in [run(case)] if found]
    print("\n".join([*wrong, f"{len(chosen)} cases, {len(wrong)} failed"]))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
