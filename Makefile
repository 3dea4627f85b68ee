# turnstream: `make demo` and `make test` set up everything they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test lint bench bench-peers coverage clean

help:
	@echo "make demo      replay the example streams into all three sinks"
	@echo "make test      set up and run the tests"
	@echo "make lint      ruff, mypy, pyright, import-linter"
	@echo "make bench     benchmarks, as ratios to a floor in the same run"
	@echo "make bench-peers  the same beside what others use (installs them; under Node too, if npm is there)"
	@echo "make coverage  tests with branch coverage"
	@echo "make clean     remove what the other targets made"

$(VENV)/.base: pyproject.toml
	@sh scripts/venv.sh "$(PYTHON)" "$(VENV)"
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@sh scripts/venv.sh "$(PYTHON)" "$(VENV)"
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.base $@

setup: $(VENV)/.dev

demo: $(VENV)/.base
	@sh scripts/demo.sh $(BIN)/turnstream

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(ARGS)

coverage: $(VENV)/.dev
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: $(VENV)/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/check.sh

bench: $(VENV)/.dev
	$(BIN)/python -m pytest benchmarks $(ARGS)

NODE_PEERS := build/bench-node
bench-peers: $(VENV)/.dev
	$(BIN)/pip install --quiet --editable '.[dev,bench]'
	@if command -v npm >/dev/null 2>&1; then mkdir -p $(NODE_PEERS) && \
	npm install --silent --no-audit --no-fund --prefix $(NODE_PEERS) eventsource-parser rxjs @anthropic-ai/sdk; \
	else echo "no npm: the peers under Node aren't measured"; fi
	TURNSTREAM_BENCH_NODE=$(NODE_PEERS) $(BIN)/turnstream bench --peers $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .demo .hypothesis .coverage .coverage.*
