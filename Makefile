# turnstream: `make demo` and `make test` set up everything they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test lint bench coverage clean

help:
	@echo "make demo      replay the example streams into all three sinks"
	@echo "make test      set up and run the tests"
	@echo "make lint      ruff, mypy, pyright, import-linter"
	@echo "make bench     benchmarks, as ratios to a floor in the same run"
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

clean:
	rm -rf $(VENV) build dist *.egg-info .demo .hypothesis .coverage .coverage.*
