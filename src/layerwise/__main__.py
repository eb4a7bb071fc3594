"""`python -m layerwise`: the command line, for torchrun and for environments without scripts."""

from __future__ import annotations

from layerwise.cli.app import main

if __name__ == "__main__":
    main()
