# Two commands for a fresh machine (Linux x86-64, Python 3.11 or 3.12):
#   make quickstart   sets up .venv and runs the whole chain
#   make test         sets up .venv and runs the tests
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV ?= .venv
OUTPUT ?= quickstart-output

.PHONY: setup quickstart test lint

# Installed anew whenever the requirements change.
$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --editable ".[dev]"
	touch $@

setup: $(VENV)/installed

quickstart: setup
	$(VENV)/bin/realm quickstart --output $(OUTPUT)

test: setup
	$(VENV)/bin/python -m pytest

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
