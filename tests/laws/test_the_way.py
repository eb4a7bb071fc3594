"""The functions that a call of `layerwise.sweep` enters before it evaluates the first layer.

The count is of distinct functions of layerwise, by file and qualified name, in a process that has run a sweep before,
on an open model. Comprehensions, generator expressions and lambdas count with the function that contains them; methods
that a dataclass generates have no file and do not count.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType

import pytest

import layerwise
from layerwise.runner.reporter import Silent
from package_sources import PACKAGE

MAX_FUNCTIONS, MAX_FILES = 232, 45
EXPRESSION = re.compile(r"(\.<locals>)?\.<(lambda|genexpr|listcomp|dictcomp|setcomp)>")


class ArrivedError(Exception):
    """The first layer is evaluated."""


def test_a_sweep_reaches_its_first_layer_in_few_functions(tmp_path: Path) -> None:
    stack, corpus, sweep = layerwise.load("demo"), layerwise.demo_corpus(), layerwise.sweep
    entered: defaultdict[str, set[str]] = defaultdict(set)

    def call(run: Path) -> None:
        sweep(stack, corpus, families=("leave_one_out",), tokens=600, similarity=False, run=run, reporter=Silent())

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            entered[code.co_filename.removeprefix(f"{PACKAGE}/")].add(EXPRESSION.sub("", code.co_qualname))

    def arrive(*_: object) -> None:
        sys.setprofile(None)
        raise ArrivedError

    hook = stack.blocks[0].register_forward_pre_hook(arrive)
    with pytest.raises(ArrivedError):
        call(tmp_path / "warm")
    try:
        sys.setprofile(note)
        with pytest.raises(ArrivedError):
            call(tmp_path / "measured")
    finally:
        sys.setprofile(None)
        hook.remove()
    functions = sum(map(len, entered.values()))
    print(f"{functions} functions in {len(entered)} files")
    for file, names in sorted(entered.items()):
        print(f"  {file}: {', '.join(sorted(names))}")
    assert functions <= MAX_FUNCTIONS
    assert len(entered) <= MAX_FILES
