"""Every case: bad input ends with code 2 and one or two sentences, or is read right, in 1.5 GB and 40 s of a core."""

from __future__ import annotations

from hostile import files, options, results
from hostile.case import Case

CASES: tuple[Case, ...] = (*files.CASES, *results.CASES, *options.CASES)
