# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow test-exhaustive test-portable check benchmark clean

demo: $(INSTALLED)  ## set up, run the main job on the demo model, say where the report is
	$(BIN)/layerwise sweep demo --run runs/demo

test: $(INSTALLED)  ## the tests that take seconds to minutes
	$(BIN)/pytest --numprocesses auto --dist worksteal -m "not slow"

test-slow: $(INSTALLED)  ## the tests that take minutes each
	$(BIN)/pytest --numprocesses auto --dist worksteal -m "slow and not exhaustive"

test-exhaustive: $(INSTALLED)  ## the tests that take hours together: every model type in every precision
	$(BIN)/pytest --numprocesses auto --dist worksteal -m exhaustive

test-portable: $(INSTALLED)  ## the tests that compute, on the kernels of other processors and several threads
	$(BIN)/python tests/portable.py

check: $(INSTALLED)  ## lint, format, types, all tests: exactly what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test
	$(MAKE) test-slow

benchmark: $(INSTALLED)  ## the figures in the README's performance table
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/in_place.py
	$(BIN)/python benchmarks/proxies.py
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/layershuffle.py
	$(BIN)/python benchmarks/layer_weights.py
	$(BIN)/python benchmarks/growth.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "layerwise needs Python 3.11 or later; this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
