.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
# Without compiled modules every process of pytest rewrites and compiles all tests anew: 8 of 16 CPU seconds each.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PYTHON_TREES := sandbox devtools demo scripts tests benchmarks

.PHONY: help setup venv engine demo check lint unit test attacks thorough compile bench browser corpus matrix desktop format reference docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Make everything ready: virtual environment, container engine, images (safe to repeat)
	@scripts/setup

venv:
	@scripts/setup python

engine: venv ## Make sure a container engine answers; as root on Debian, install and start one
	@scripts/engine

demo: setup ## Run the main job on real projects, from clone to pushed branch
	@$(BIN)/python -m demo

check: venv lint unit ## Format, lint, types, layers, unit tests: no engine needed, under a minute

lint: venv
	@echo "lint: ruff, mypy, import-linter" >&2
	@$(BIN)/ruff format --quiet --check --diff .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --explicit-package-bases --no-error-summary $(PYTHON_TREES)
	@layers=$$($(BIN)/lint-imports 2>&1) || { echo "$$layers"; exit 1; }
	@$(BIN)/python -m devtools.words --check
	@if command -v shellcheck >/dev/null; then git grep -lE '^#! ?/[a-z/]*(env )?(ba)?sh$$' | xargs shellcheck -x; fi

unit: venv
	@$(BIN)/python -m pytest tests/unit -n auto -q -m "not slow"

test: setup ## Everything CI runs: set-up, lint and all tests
	@scripts/setup tools & tools=$$!; $(MAKE) lint; linted=$$?; $(MAKE) compile; wait $$tools && exit $$linted  # downloads, and two processors
	@$(BIN)/python -m devtools.suite

compile: venv  # the tests, once, rather than at the same time in every process of the suite: 28 CPU seconds each
	@$(BIN)/python -m pytest tests --ignore=tests/browser --collect-only -q >/dev/null

attacks: setup ## All attacks, each entry about git also on the newer git. Not in `make test`, which has one of each module
	@scripts/setup tools
	@ALL_ATTACKS=1 THOROUGH=1 $(BIN)/python -m pytest tests/attack -q -n 6 --dist loadgroup

thorough: setup ## What `make test` leaves out: variants, clusters whose parts fail. A quarter of an hour
	@scripts/setup tools
	@THOROUGH=1 $(BIN)/python -m devtools.suite -m thorough

bench: setup ## Measure against the floor on this machine; BENCH_SIZES=large for all sizes
	@$(BIN)/python -m benchmarks

desktop: setup ## Launch a desktop application in the image `space`, which this builds (1.7 GB). Not in `make test`
	@$(BIN)/python -m devtools.desktop

browser: venv ## The dashboard in a real Chromium, which must be installed. Not in `make test`
	@$(BIN)/python -m pytest tests/browser -q

matrix: setup ## Measure on other systems in virtual machines and write docs/platforms.md; ROWS=names for some. Not in `make test`
	@scripts/setup matrix
	@$(BIN)/python -m devtools.vm $(ROWS)

corpus: setup ## Run 99 published projects with `sandbox run`; NAMES=names or profiles for some, CONTROL=1 for what fails anyway
	@$(BIN)/python -m benchmarks.corpus $(NAMES)
	@ALL_IMAGES=1 $(BIN)/python -m pytest -q tests/docker/test_shipped_profiles.py -k newer

format: venv ## Format the code and apply the safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

reference: venv ## Write docs/reference/, the lists of decisions and threats, and the picture of the architecture
	@$(BIN)/python -m devtools.reference
	@$(BIN)/python -m devtools.decisions
	@$(BIN)/python -m devtools.threats
	@$(BIN)/python -m devtools.architecture

docs: reference ## Build the documentation as a site in build/site
	@$(BIN)/zensical build --strict

lock: venv ## Pin the newest allowed dependencies in requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --group dev \
		--no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock
	@git diff --stat -- requirements.lock

clean: ## Remove caches, builds and the demo's files; keeps .venv, the engine and its images
	@rm -rf .demo .tool_cache .*_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
