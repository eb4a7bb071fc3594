"""Run tests under settings that simulate other processors: `make test-portable`.

    python tests/portable.py            every test that computes, under every setting
    python tests/portable.py --quick    what a nightly test runs: a part of both

torch, MKL and oneDNN choose their kernels by the processor, and each can be told to choose those of an older one. Two
or four threads sum in another order than one. No setting adds instructions that this processor does not have.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Setting:
    """`aten`: vector instructions of torch (empty: all); `old`: MKL and oneDNN of 2008; `other`: `OtherKernel`."""

    aten: str
    old: bool
    threads: int
    other: bool = False

    def __str__(self) -> str:
        named = [self.aten or "own", "old" if self.old else "own", f"{self.threads} threads", "other kernel"]
        return ", ".join(named if self.other else named[:-1])

    def environment(self) -> dict[str, str]:
        variables = {"LAYERWISE_TEST_THREADS": str(self.threads), "LAYERWISE_TEST_TIER": "fast"}
        if self.aten:
            variables["ATEN_CPU_CAPABILITY"] = self.aten
        if self.old:
            variables |= {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"}
        if self.other:
            variables["LAYERWISE_TEST_KERNEL"] = "other"
        if self.threads > 1:  # threads that wait in a loop for others take the cores from them
            variables["OMP_WAIT_POLICY"] = "PASSIVE"
        return {**os.environ, **variables}


QUICK = (Setting("default", old=True, threads=1),)
SETTINGS = (
    *QUICK,
    Setting("", old=False, threads=1, other=True),
    Setting("avx2", old=False, threads=4),
    Setting("", old=True, threads=2),
    Setting("default", old=False, threads=2),
    Setting("avx2", old=True, threads=1),
    Setting("", old=False, threads=4),
)
QUICK_TESTS = (
    "golden",
    "stack/executors",
    "stack/test_stack.py",
    "stack/test_weights_elsewhere.py",
    "stack/streaming/test_resident.py",
    "checkpoint/test_write.py",
)
"""Tests that compare the bits of two executors."""


def command(paths: Sequence[str], workers: str) -> list[str]:
    where = [str(TESTS / path) for path in paths] or [str(TESTS)]
    marks = "numbers and not slow and not nightly"
    options = ["--numprocesses", workers, "--dist", "worksteal", "-m", marks]
    return [sys.executable, "-m", "pytest", *options, *where]


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    failed = []
    for setting in QUICK if quick else SETTINGS:
        print(f"\n{setting}:", flush=True)
        tests = command(QUICK_TESTS if quick else (), workers="auto")
        if subprocess.run(tests, env=setting.environment(), check=False).returncode:
            failed.append(setting)
    print(*(f"failed under: {setting}" for setting in failed), sep="\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
