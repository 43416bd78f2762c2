# `make` prints the targets. All of them need Python 3.11+ and make, nothing else; what they install goes to .venv.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTEST = $(BIN)/python -m pytest
# Two processes for the tests: 60 % of the time of one, on two cores (docs/decisions/001-layout.md).
# Tests that share a cluster of processes run in one of the two (--dist loadgroup).
JOBS ?= 2
# The simulation's seeds: `make sim SEEDS=1000 FROM=5000` runs the seeds 5000 to 5999.
SEEDS ?= 200
FROM ?= 0
export SEEDS FROM

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- use --------------------------------------------------------------------------------------------------------------

.PHONY: up
up: env ## run the all-in-one node here (ARGS="--port 8787 --data DIR")
	@exec $(BIN)/tocsin up $(ARGS)

.PHONY: env broker
env: .venv/server.stamp ## create .venv with `tocsin` in .venv/bin
broker: .venv/broker.stamp ## add what `tocsin up --kafka local` and `tocsin kafka` need

# --- check ------------------------------------------------------------------------------------------------------------

.PHONY: test
test: dev ## everything that CI runs: lint, types, then all tests
	@$(MAKE) lint
	@$(MAKE) types
	$(PYTEST) -n $(JOBS) --dist loadgroup -m "not slow" --durations=10

.PHONY: test-full
test-full: SEEDS = 2000
test-full: dev ## `make test` with the slow tests, more examples and 2,000 seeds
	@$(MAKE) lint
	@$(MAKE) types
	HYPOTHESIS_PROFILE=full $(PYTEST) -n $(JOBS) --dist loadgroup --durations=25

.PHONY: fmt
fmt: dev ## format, and fix what can be fixed by a machine
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

.PHONY: lint
lint: dev ## ruff, its formatter, and the layers (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

.PHONY: types
types: dev ## mypy --strict
	$(BIN)/mypy

.PHONY: unit contract sim node kafka
unit: dev ## the pure tests
	$(PYTEST) -n $(JOBS) tests/unit tests/test_tidy.py

contract: dev ## one suite for the event log, on each of its adapters
	$(PYTEST) -n $(JOBS) tests/contract

sim: dev ## the simulation: SEEDS=200 FROM=0
	$(PYTEST) -n $(JOBS) tests/sim

node: dev ## the all-in-one node as a process: first minutes, kill -9
	$(PYTEST) tests/node

kafka: dev ## real processes against a real broker
	$(PYTEST) -n $(JOBS) --dist loadgroup tests/kafka

.PHONY: chaos
# A round takes about a minute. The seed of a bad one is on its line: `make chaos ROUNDS=1 SEED=that`.
ROUNDS ?= 30
SEED ?= 1
chaos: dev ## kill and freeze everything at random, on a real broker: ROUNDS=30 SEED=1
	$(BIN)/python -m tests.kafka.chaos --rounds $(ROUNDS) --seed $(SEED)

.PHONY: bench
bench: dev ## each figure we claim, with its method
	@for file in benchmarks/bench_*.py; do \
	    name=$$(basename "$$file" .py); echo "==> $$name"; $(BIN)/python -m "benchmarks.$$name" || exit 1; \
	done

# --- keep -------------------------------------------------------------------------------------------------------------

.PHONY: docs
docs: dev ## regenerate what docs/ takes from the code
	$(BIN)/python docs/generate.py

LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
       --no-emit-index-url --no-emit-find-links --no-strip-extras --custom-compile-command 'make lock'

.PHONY: lock
lock: .venv/build.stamp ## take the newest versions that pyproject.toml allows into requirements/*.txt
	$(LOCK) requirements/build.in -o requirements/build.txt
	$(LOCK) pyproject.toml --all-extras -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra server -c requirements/dev.txt -o requirements/server.txt
	$(LOCK) pyproject.toml --extra server --extra broker -c requirements/dev.txt -o requirements/broker.txt

# --- the environment --------------------------------------------------------------------------------------------------

.PHONY: dev
dev: .venv/dev.stamp # not listed: each target that needs it asks for it

# uv takes seconds where pip takes most of a minute. If it cannot install, pip tries: it knows settings of this machine
# (a mirror, a proxy's certificate) that uv does not read. Either way only what the lock names, by hash.
INSTALL = install() { \
        $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r "$$1" || { \
            echo "==> uv could not install $$1; once more with pip"; \
            $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$$1"; }; \
    } && install
TOCSIN = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

.venv/bin/python:
	@.ci/venv .venv

.venv/build.stamp: requirements/build.txt | .venv/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

.venv/server.stamp: .venv/build.stamp requirements/server.txt pyproject.toml
	@echo "==> installing what a node needs (requirements/server.txt)"
	@$(INSTALL) requirements/server.txt && $(TOCSIN)
	@touch $@

.venv/broker.stamp: .venv/server.stamp requirements/broker.txt
	@echo "==> installing what a Kafka on this machine needs (requirements/broker.txt)"
	@$(INSTALL) requirements/broker.txt
	@touch $@

.venv/dev.stamp: .venv/server.stamp requirements/dev.txt
	@echo "==> installing what the tests need (requirements/dev.txt)"
	@$(INSTALL) requirements/dev.txt
	@touch $@
