# Requires python3 (3.11 or later) and make. The first target that needs the environment installs the rest into .venv.
# Paths are relative and programs are started as modules of .venv's Python, because the path of this folder may be long
# or contain spaces: make does not allow these in a target, nor the kernel in the first line of a script.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
INSTALLED := .venv/.installed

# Settings of the shell for its own Python must not affect ours.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV

# An environment of another folder, or of a Python that no longer exists, is created again.
STALE := $(shell [ "$$(cat $(INSTALLED) 2>/dev/null)" = "$$(pwd)" ] && $(PY) -c '' 2>/dev/null || echo yes)

APP ?= examples/orders/app.py
DIR ?= orders-home
GROUP ?=
TESTS ?= tests
# Tests also wait for other processes, so there are more workers than cores of a small machine.
WORKERS ?= 3
SEED ?=
RANDOM_SEED = $(shell od -An -N2 -tu2 /dev/urandom | tr -d " ")
ALL ?=
SECONDS ?=
TARGET ?=
INPUTS ?=
ORDERS ?=

.PHONY: demo
demo: $(INSTALLED)  ## Run the example: a few hundred orders, delivered to every subscriber
	@exec $(PY) -m postroom demo

.PHONY: up
up: $(INSTALLED)  ## Run the example until Ctrl-C (APP=app.py DIR=home to run another)
	@exec $(PY) -m postroom up "$(APP)" --home "$(DIR)"

.PHONY: test
test: check tests  ## Run what CI runs: check, then the tests with a sample of the long ones (TESTS=tests/unit for some, SEED=7 to repeat a sample, ALL=1 for all)

.PHONY: quick
quick: check  ## Run check and the unit tests, in less than 90 seconds
	@echo "==> Unit tests"
	@$(PY) -m pytest -n 2 --dist loadgroup tests/unit

.PHONY: tests
tests: $(INSTALLED)
	@echo "==> Tests"
	@$(PY) -m compileall -q src  # hundreds of processes are started, maybe in an environment that writes no bytecode
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(if $(ALL),,--sample=$(or $(SEED),$(RANDOM_SEED))) $(TESTS)

.PHONY: chaos
chaos: $(INSTALLED)  ## Kill, freeze and restart everything while messages pass, and count them (SECONDS=120, ORDERS=2000, SEED=7 to repeat a run)
	@$(PY) -m tests.support.delivery_chaos.run $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS))
	@$(PY) -m tests.support.procurement_chaos.run $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS))
	@exec $(PY) -m tests.support.chaos $(if $(SEED),--seed $(SEED)) $(if $(ORDERS),--orders $(ORDERS))

.PHONY: faults
faults: $(INSTALLED)  ## Kill and freeze each kind of process at every step of its work
	@CHECK_BOUNDS=1 $(PY) -m pytest -n $(WORKERS) --dist loadgroup tests/faults

.PHONY: fuzz
fuzz: $(INSTALLED)  ## Try random orchestrations, also on hosts that are killed, and damaged inputs on every parser (SECONDS=60 for each, TARGET=json for one, SEED=7 to repeat a run)
	$(if $(TARGET),,@$(PY) -m pytest -q --hypothesis-profile=thorough $(if $(SEED),--hypothesis-seed=$(SEED)) tests/properties/test_orchestrations.py)
	$(if $(TARGET),,@$(PY) -m tests.support.killed_random_orchestrations $(if $(SEED),--seed $(SEED)))
	@exec $(PY) -m tests.support.fuzzing --seconds $(or $(SECONDS),60) \
	    $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(if $(INPUTS),--inputs $(INPUTS))

.PHONY: check
check: $(INSTALLED)  ## Check style, types and layers: ruff, mypy --strict, import-linter
	@echo "==> ruff check"
	@$(PY) -m ruff check .
	@echo "==> ruff format --check"
	@$(PY) -m ruff format --check .
	@echo "==> mypy --strict"
	@$(PY) -m mypy
	@echo "==> import-linter"
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo

.PHONY: bench
bench: $(INSTALLED)  ## Measure and write bench/RESULTS.md (GROUP=A for one group)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[bench]'
	@$(PY) -m bench $(GROUP)

.PHONY: docs
docs: $(INSTALLED)  ## Build the documentation website into site
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[docs]'
	@.ci/docs $(PY)

.PHONY: dist
dist: $(INSTALLED)  ## Build the source distribution and the wheel, into dist
	@rm -rf build dist && mkdir dist
	@$(PY) -c 'from setuptools import build_meta as build; build.build_sdist("dist"); build.build_wheel("dist")' >/dev/null
	@rm -rf build
	@ls dist/*

.PHONY: clean
clean:  ## Remove the environment, the caches, the website and the folder of the demo
	rm -rf .docs .cache site
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache demo-home spark-warehouse dist build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/postroom.egg-info

.PHONY: constraints
constraints: $(INSTALLED)  ## Write the installed versions to constraints.txt
	@{ echo '# The versions that Postroom is built and tested with, as constraints for pip (-c). Written by make constraints.'; \
	   $(PY) -m pip freeze --exclude-editable --exclude postroom; } >constraints.new
	@mv constraints.new constraints.txt

.PHONY: help
help:  ## Show this help
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/\1:\2/p' Makefile | while IFS=: read -r name text; do \
	    printf '  %-11s %s\n' "$$name" "$$text"; done

$(INSTALLED): pyproject.toml constraints.txt $(if $(STALE),always)
	@.ci/environment .venv
	@pwd >$(INSTALLED)

.PHONY: always
always:
