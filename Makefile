# Everything here needs Python 3.11 or newer (with venv) and make; what else a target needs it gets by itself.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# How many test processes run side by side: more than a small machine has cores, since tests also wait.
TESTERS ?= 5
# What hundreds of processes of the tests import: compiled once, also where Python is told to write no byte code.
BEGIN_OFTEN := commands streams projections robot_gateway fleetlog tests/support tests/system
STAMP := $(VENV)/.installed
CODE := commands streams projections robot_gateway fleetlog tests \
	$(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py docs/*.py))))

.DEFAULT_GOAL := help
.PHONY: help setup run test check kafka kafka-stop model bench bench-peers docs lock clean

help:  ## show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## the virtual environment in .venv, from the lock file

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Fleetlog needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what requirements.lock lists into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP)  ## the main job before your eyes on a fresh data folder, then go on serving
	@$(BIN)/fleetlog demo --data "$$(mktemp -d)/fleetlog-data" --serve

test: $(STAMP)  ## every test, a genuine Apache Kafka included
	@$(BIN)/python -m compileall -q $(BEGIN_OFTEN)
	@$(BIN)/python -m tests.support.kafka_home
	@$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(STAMP)  ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

kafka: $(STAMP)  ## start a genuine Kafka broker on a loopback port, print its address
	@$(BIN)/python -m tests.support.broker start

kafka-stop: $(STAMP)  ## stop that broker
	@$(BIN)/python -m tests.support.broker stop

model: $(STAMP)  ## check the model of the lease protocol; ARGS="--large" for larger fleets, ARGS="--story RULE" for one story
	@$(BIN)/python -m tests.model $(ARGS)

bench: $(STAMP)  ## lives a second, latency, rebuild; ARGS="--log kafka --kafka 127.0.0.1:PORT" for Kafka
	@for what in lives latency rebuild; do $(BIN)/fleetlog bench $$what $(ARGS) || exit; done

bench-peers: $(STAMP)  ## the same works on Fleetlog and on what people would pick instead; ARGS="--list" for the rows
	@$(BIN)/python -m benchmarks.peers $(ARGS)

docs: $(STAMP)  ## write the reference pages anew from the models
	@$(BIN)/python -m docs.generate

LOCK = .cache/uv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock:  ## resolve the dependencies anew into the two lock files
	@test -x .cache/uv/bin/uv || { $(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet uv; }
	@$(LOCK) --upgrade --extra dev --output-file requirements.lock
	@rm -f deploy/image.lock
	@$(LOCK) --extra image --constraint requirements.lock --output-file deploy/image.lock

clean:  ## remove the virtual environment, caches and builds; data folders stay
	rm -rf $(VENV) .cache build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
