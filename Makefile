# `make demo` and `make test` need Python 3.11 or later, make and a package index; nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-faults lint types bench clean

demo: $(READY)
	$(BIN)/bloomredis demo

test: $(READY)
	BLOOMREDIS_CLIENTS=required $(BIN)/pytest --numprocesses auto -m 'not faults'

# Series of crashes, failovers, migrations and lost replies that have to be long.
test-faults: $(READY)
	BLOOMREDIS_CLIENTS=required $(BIN)/pytest --numprocesses auto -m faults

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.support.luacheck

types: $(READY)
	$(BIN)/mypy
	$(BIN)/basedpyright --project tests/typing --pythonpath $(BIN)/python

# The peers take 60 MB, so only this target installs them.  BENCH='--quick' for a short run, '--help' for more.
bench: $(VENV)/bench
	$(BIN)/python -m benchmarks $(BENCH)

$(VENV)/bench: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache

$(READY): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
# The oldest redis-py supported and the last of 6, for tests of what each does when a reply is lost.
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/clients/redis-5 'redis==5.0.0'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/clients/redis-6 'redis>=6,<7'
	touch $@
