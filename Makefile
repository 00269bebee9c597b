# Every target makes what it needs; `make demo` and `make test` work as the first command.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Else each of the many programs that tests and measurements start would compile all of llmgw for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test long check fmt proto lock bench lab snapshots release

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with everything pinned in requirements.lock (done once; quick the next time)

$(READY): requirements.lock pyproject.toml tools/setup
	@tools/setup "$(PYTHON)" .venv
	@touch $@

demo: $(READY) ## a whole cluster on this machine with a real small model, and the console on it
	@$(BIN)/llmgw demo

test: $(READY) ## the default test suite (ARGS='tests/core -k place' narrows it)
	$(BIN)/pytest -n 4 --dist worksteal $(ARGS)

check: $(READY) ## ruff, mypy strict, import-linter (layers), generated code fresh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/proto.py --check

fmt: $(READY) ## format and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(READY) ## generate llmgw/wire/{facts,agent,operator} from proto/
	$(BIN)/python tools/proto.py

lock: $(READY) ## pin the newest allowed versions with hashes in requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra demo --extra dev --generate-hashes --no-emit-index-url \
	  --universal --no-annotate --upgrade --output-file requirements.lock >/dev/null

bench: $(READY) ## measure against goals and peers, a JSON line each (ONLY=demo|stop|idle|ctl|console|router|discovery|install for one)
	@$(BIN)/python -m bench $(ONLY)

long: $(READY) ## the tests that take ten seconds and more each
	$(BIN)/pytest -n 3 --dist worksteal -m long $(ARGS)

lab: $(READY) ## journeys on hosts with systemd of their own (root only; says so and skips elsewhere)
	$(BIN)/pytest tests/lab -m lab $(ARGS)

snapshots: $(READY) ## redraw the pictures of the console in snapshots/ (look at the diff)
	$(BIN)/pytest tests/tui --snapshot-update -p no:xdist $(ARGS)

release: $(READY) ## build the wheel and the source archive into dist/
	$(BIN)/python tools/release.py
