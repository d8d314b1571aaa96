# Two commands do all set-up: `make train` and `make test`. Nothing but Python 3.11+ and make is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS   ?= 2  # processes that run tests at the same time
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

NUMERICAL := tests/learn tests/compiled tests/worlds tests/contracts/test_engines.py

.PHONY: docs train test again test-cpus quick slow-list lint format bench soak fuzz clean help
.DEFAULT_GOAL := help

train: $(VENV)/.installed ## train a CAGE-2 defender (two minutes), score it beside the published board, write its report
	$(BIN)/redline train cage2

test: $(VENV)/.installed-dev ## run all tests (about 15 minutes on 2 cores; ARGS="tests/learn -k gae" for some of them)
	$(PYTEST) $(ARGS)

test-cpus: $(VENV)/.installed-dev ## run the numerical tests as on older CPUs (about 4 minutes for each)
	PYTEST="$(PYTEST) -q" .ci/cpus $(NUMERICAL)

again: $(VENV)/.installed-dev ## run the tests that failed once more, one at a time
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

quick: $(VENV)/.installed-dev ## run the tests that take less than a second each (a few minutes), for everyday work
	$(PYTEST) -m "not slow" $(ARGS)

slow-list: $(VENV)/.installed-dev ## run all tests and write down which take longer, for `make quick` to leave out
	$(PYTEST) --list-slow

lint: $(VENV)/.installed-dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## put style right as far as that can be done for you
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## measure the simulator and the training beside its peers (leave the machine alone meanwhile)
	$(BIN)/redline bench sim cage2
	$(BIN)/redline bench train cage2

soak: $(VENV)/.installed-dev ## train for 10 minutes while something fails every few seconds, then count what is left
	$(BIN)/python -m tests.soak

docs: $(VENV)/.installed-docs ## build the manual as one searchable site in build/site
	$(BIN)/mkdocs build --strict --quiet
	@echo "Read it: $(BIN)/python -m http.server --directory build/site"

fuzz: $(VENV)/.installed-dev ## give every reader 100,000 inputs that are almost right
	$(BIN)/python -m tests.fuzz $(ARGS)

clean: ## remove the virtual environment, caches and build products; runs/ stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redline needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Redline and what it needs into $(VENV) (once; about 2 minutes) ..."
	$(PIP) install --constraint constraints.txt torch==2.13.0
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need ..."
	$(PIP) install --constraint constraints.txt --editable '.[dev,peers,tensorboard,ray,plot,ortools,docs]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@
