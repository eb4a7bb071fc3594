"""`make` targets install only the dependencies that they need."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAKE = ("env", "-u", "MAKELEVEL", "-u", "MAKEFLAGS", "make")
"""`make test` runs these tests, so its variables are removed."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def find_install_steps(target: str, folder: Path) -> list[str]:
    command = [*MAKE, "--dry-run", target, f"VENV={folder / 'venv'}"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("echo ")
    return [step for step in steps if "pip install" in step]


def test_only_the_test_targets_install_test_dependencies(tmp_path: Path) -> None:
    demo = find_install_steps("demo", tmp_path)
    assert len(demo) == 2
    assert not any("[dev]" in step for step in demo)
    for target in ("test", "check"):
        *same, rest = find_install_steps(target, tmp_path)[:3]  # `check` starts make again
        assert same == demo
        assert "--editable '.[dev]'" in rest


@pytest.mark.parametrize(("target", "extra"), [("docs", "docs"), ("wheel", "release")])
def test_docs_and_wheel_install_no_test_dependencies(tmp_path: Path, target: str, extra: str) -> None:
    *same, rest = find_install_steps(target, tmp_path)
    assert same == find_install_steps("demo", tmp_path)
    assert f"--constraint constraints.txt --editable '.[{extra}]'" in rest
    assert "[dev]" not in rest


def test_a_failing_step_stops_make_and_leaves_nothing_running(tmp_path: Path) -> None:
    file = tmp_path / "Makefile"
    text = (ROOT / "Makefile").read_text()
    file.write_text(f"{text[: text.index('.PHONY')]}\nfails:\n\t$(call say,a step,exit_3() {{ return 3; }}; exit_3)\n")
    process = subprocess.run([*MAKE, "-f", file, "fails"], capture_output=True, text=True, check=False, timeout=10)
    assert process.returncode == 2
    assert process.stdout.startswith("a step\n")
    assert "Error 3" in process.stderr
