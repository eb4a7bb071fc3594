# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested

# Run a command that may take minutes without a word: say what it is, and every 10 seconds that it still runs.
say = @echo "$(1)"; began=$$(date +%s); \
	( while sleep 10 >/dev/null 2>&1; do echo "  still at it, $$(( $$(date +%s) - began )) s"; done ) & beat=$$!; \
	$(2); status=$$?; kill $$beat 2>/dev/null; exit $$status

.PHONY: demo test test-slow test-exhaustive test-portable check benchmark clean

demo: $(INSTALLED)  ## set up, run the main job on the demo model, say where the report is
	@echo 'layerwise sweep demo: what happens when its layers are moved; about a minute'
	@$(BIN)/layerwise sweep demo --run runs/demo

test: $(TESTED)  ## the tests that take seconds to minutes
	$(BIN)/pytest --numprocesses auto --dist worksteal -m "not slow"

test-slow: $(TESTED)  ## the tests that take minutes each
	$(BIN)/pytest --numprocesses auto --dist worksteal -m "slow and not exhaustive"

test-exhaustive: $(TESTED)  ## the tests that take hours together: every model type in every precision
	$(BIN)/pytest --numprocesses auto --dist worksteal -m exhaustive

test-portable: $(TESTED)  ## the tests that compute, on the kernels of other processors and several threads
	$(BIN)/python tests/portable.py

check: $(TESTED)  ## lint, format, types, all tests: exactly what CI runs
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

$(INSTALLED): pyproject.toml constraints.txt  # what layerwise itself needs, and no more
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "layerwise needs Python 3.11 or later; this is " + sys.version)'
	$(call say,1 of 3: a virtual environment in $(VENV),$(PYTHON) -m venv $(VENV))
	$(call say,2 of 3: torch (the largest part: minutes on a slow line),$(PIP) --constraint constraints.txt torch)
	$(call say,3 of 3: layerwise and the libraries that it needs,$(PIP) --constraint constraints.txt --editable .)
	@touch $@

$(TESTED): $(INSTALLED)  # and what its tests need
	$(call say,for the tests: pytest and lm-eval and the checkers,$(PIP) --constraint constraints.txt --editable '.[dev]')
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
