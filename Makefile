# Every command of a developer. `make` alone lists them; each makes the environment it needs (scripts/venv.sh).
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DEV := source scripts/venv.sh && use_venv test requirements-dev.lock &&
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(UPGRADE)

.PHONY: help check test test-fast test-pythons coverage saboteurs fmt lint types arch demo lock build clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

check: ## all that must hold before a change is merged (scripts/test)
	@scripts/test

test: ## all tests, fast and slow
	@$(DEV) pytest -n 2

test-fast: ## the fast tests: under a minute
	@$(DEV) pytest -m "not slow" -n 2

test-pythons: ## the fast tests on every supported Python of this machine
	@scripts/test-pythons

coverage: ## the fast tests, and the lines and branches that they did not reach
	@$(DEV) coverage erase && coverage run -m pytest -q -m "not slow" && coverage combine -q && coverage report

saboteurs: ## break the product on purpose: every saboteur must be caught by a test
	@$(DEV) python -m tests.saboteurs

fmt: ## format the source, and mend what can be mended safely
	@$(DEV) ruff check --fix-only --quiet && ruff format

lint: ## ruff, codespell, and that the project stands alone
	@$(DEV) ruff check && ruff format --check && codespell && python scripts/check-standalone

types: ## mypy, strict
	@$(DEV) mypy

arch: ## the six contracts between the layers
	@$(DEV) lint-imports --no-cache

demo: ## the product in a minute
	@scripts/demo

lock: ## remake the locks from pyproject.toml, keeping versions (UPGRADE=--upgrade takes the newest)
	@$(DEV) $(COMPILE) pyproject.toml --group dev -o requirements-dev.lock
	@$(DEV) $(COMPILE) pyproject.toml -c requirements-dev.lock -o requirements.lock
	@$(DEV) $(COMPILE) --group build -c requirements-dev.lock -o requirements-build.lock

build: ## the wheel, in dist/
	@$(DEV) hatchling build -t wheel

clean: ## remove environments, caches and builds
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
