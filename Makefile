# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested
DOCUMENTED := $(VENV)/.documented
PACKAGED := $(VENV)/.packaged
# `worksteal` gives each process one run of neighbouring tests, so that most fixtures of a module are made once. Compiled
# modules are kept, whatever the shell says, since the tests start many processes. Each of them computes with one thread:
# numpy's own would be as many as there are cores, in every process, and wait for each other.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal --durations 30

# Run tests; what fails is run once more, alone. A test that fails twice fails. One that passes then has told of the machine (a
# neighbour that took its time or its port) and not of the code: it is named at the end, so that it can be made steady.
AGAIN := --numprocesses 0 --last-failed --last-failed-no-failures none --maxfail 1 -rA --show-capture no
tested = $(1) || { echo 'Run once more, alone; what passes now is not steady, and is named below:'; $(1) $(AGAIN); }

# Run a command that may take minutes without a word: say what it is, and every 10 seconds that it still runs.
say = @echo "$(1)"; began=$$(date +%s); \
	( while sleep 10 >/dev/null 2>&1; do echo "  still at it, $$(( $$(date +%s) - began )) s"; done ) & beat=$$!; \
	$(2); status=$$?; kill $$beat 2>/dev/null; exit $$status

.PHONY: demo test test-slow test-exhaustive test-portable check docs wheel benchmark clean

demo: $(INSTALLED)  ## set up, run the main job on the demo model, say where the report is
	@echo 'layerwise sweep demo: what happens when its layers are moved; about a minute'
	@$(BIN)/layerwise sweep demo --run runs/demo

test: $(TESTED)  ## the tests that take seconds: two to five minutes in all; one over 4 s of processor time fails
	$(call tested,LAYERWISE_TEST_BUDGET=4 $(PYTEST) -m "not slow")

test-slow: $(TESTED)  ## the tests that take longer, and more examples of the others: ten to twenty minutes
	$(call tested,LAYERWISE_TEST_TIER=full $(PYTEST) -m "(slow or simulated or hypothesis) and not exhaustive")

test-exhaustive: $(TESTED)  ## hours: every model type in every precision, and the most runs of what is simulated
	LAYERWISE_TEST_TIER=exhaustive $(PYTEST) -m "exhaustive or simulated or hypothesis"

test-portable: $(TESTED)  ## the tests that compute, on the kernels of other processors and several threads
	$(BIN)/python tests/portable.py

check: $(TESTED)  ## lint, format, types, all tests: exactly what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test
	$(MAKE) test-slow

docs: $(DOCUMENTED)  ## the site, in build/docs: every command and every cell on it is run; warnings are errors
	rm -rf build/docs build/doctrees build/docs-work
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky --jobs auto -d build/doctrees $(SPHINXOPTS) docs build/docs
	$(BIN)/python tools/check_pages.py build/docs

wheel: $(PACKAGED)  ## the package in dist, checked, and tried in an empty environment without a network
	rm -rf dist build/wheelhouse
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/pip download --quiet --constraint constraints.txt --dest build/wheelhouse dist/*.whl
	$(BIN)/python tools/check_wheel.py dist build/wheelhouse

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

$(DOCUMENTED): $(INSTALLED)  # and what the site needs
	$(call say,for the site: Sphinx and what runs its tutorials,$(PIP) --constraint constraints.txt --editable '.[docs]')
	@touch $@

$(PACKAGED): $(INSTALLED)  # and what makes and checks a wheel
	$(call say,for the wheel: build and twine,$(PIP) --constraint constraints.txt --editable '.[release]')
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
