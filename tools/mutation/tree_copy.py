"""A copy of the project in which mutants are planted."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TreeCopy:
    """Two copies of a tree in `folder`: one is only read, the other is mutated and restored.

    Restored files keep their modification time, so that the compiled modules of the unmutated tree stay valid.
    """

    folder: Path

    @property
    def original(self) -> Path:
        """The unmutated copy."""
        return self.folder / "original"

    @property
    def mutated(self) -> Path:
        """The copy in which the tests run."""
        return self.folder / "tree"

    def make(self, tree: Path) -> None:
        """Copy the files that git does not ignore, once; undo changes of an interrupted run."""
        if not self.original.exists():
            unfinished = self.folder / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            for name in _names(tree):
                target = unfinished / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, target)
            unfinished.rename(self.original)
        for file in self._files():
            self._restore(file)

    def digest(self) -> str:
        """Compute a digest of the names and contents of the copied files."""
        digest = hashlib.sha256()
        for file in self._files():
            digest.update(str(file).encode() + b"\0" + hashlib.sha256((self.original / file).read_bytes()).digest())
        return digest.hexdigest()

    @contextmanager
    def planted(self, texts: Mapping[str, str]) -> Iterator[None]:
        """Write these texts of files into the mutated copy, and remove remains of earlier runs."""
        shutil.rmtree(self.mutated / ".hypothesis", ignore_errors=True)
        try:
            for file, text in texts.items():
                (self.mutated / file).write_text(text, "utf-8")
            yield
        finally:
            for file in texts:
                self._restore(Path(file))

    def _files(self) -> list[Path]:
        return sorted(file.relative_to(self.original) for file in self.original.rglob("*") if file.is_file())

    def _restore(self, file: Path) -> None:
        original, copy = self.original / file, self.mutated / file
        if copy.exists() and copy.read_bytes() == original.read_bytes():
            shutil.copystat(original, copy)
            return
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(original, copy)


def _names(tree: Path) -> list[str]:
    """List the files of a checkout, or all files of another tree."""
    if not (tree / ".git").exists():
        return [
            str(file.relative_to(tree))
            for file in tree.rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        ]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (tree / name).is_file()]
