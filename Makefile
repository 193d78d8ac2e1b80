# Two commands for a fresh machine (Linux x86-64, Python 3.11 to 3.13 with venv):
#   make quickstart   sets up .venv and runs the whole chain
#   make test         sets up .venv and runs the tests
# and for who changes something:
#   make test-fast    a part of the tests, below 2 minutes
#   make lint         ruff
#   make docs         the site, in site/
#   make test-long    the chain, training and comparisons from start to end
FITS = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3; do \
    $$each -c '$(FITS)' 2>/dev/null && echo $$each && break; done)
VENV ?= .venv
OUTPUT ?= quickstart-output

.PHONY: setup quickstart test test-fast test-long lint docs

# Installed again whenever the requirements change. uv, of the package index,
# installs what pip would, in a tenth of the time.
$(VENV)/installed: setup.cfg pyproject.toml
	@'$(PYTHON)' -c '$(FITS)' 2>/dev/null || { echo "make setup: expected Python 3.11, 3.12 \
	or 3.13, found: $(or $(PYTHON),none). Install one, or name it:" \
	"make setup PYTHON=/path/to/python3.13" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet uv
	$(VENV)/bin/python -m uv pip install --quiet --system-certs \
	    --python $(VENV)/bin/python --editable ".[dev,docs]"
	touch $@

setup: $(VENV)/installed

quickstart: setup
	$(VENV)/bin/realm quickstart --output $(OUTPUT)

test: setup
	$(VENV)/bin/python -m pytest

test-fast: setup
	$(VENV)/bin/python -m pytest -m fast

# The slow tests, but for those that take many minutes or download a model.
test-long: setup
	$(VENV)/bin/python -m pytest -m slow --ignore tests/notebooks \
	    --ignore tests/beam_pipelines/test_chunk_killed.py \
	    --ignore tests/export/test_other_backends.py \
	    --ignore tests/operations/test_init.py \
	    --ignore tests/operations/test_live_corpus_killed.py \
	    --ignore tests/training/test_many_processes.py \
	    --ignore tests/training/test_pretrain_killed.py

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
