# Two commands for a fresh machine (Linux x86-64, Python 3.11 or 3.12):
#   make quickstart   sets up .venv and runs the whole chain
#   make test         sets up .venv and runs the tests
# and for who changes something:
#   make test-fast    a part of the tests, below 2 minutes
#   make lint         ruff
#   make docs         the site, in site/
#   make test-long    the chain, training and comparisons from start to end
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV ?= .venv
OUTPUT ?= quickstart-output

.PHONY: setup quickstart test test-fast test-long lint docs

# Installed again whenever the requirements change.
$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --editable ".[dev,docs]"
	touch $@

setup: $(VENV)/installed

quickstart: setup
	$(VENV)/bin/realm quickstart --output $(OUTPUT)

test: setup
	$(VENV)/bin/python -m pytest

test-fast: setup
	$(VENV)/bin/python -m pytest -m fast

# Some of the slow tests: those of what uses everything.
test-long: setup
	$(VENV)/bin/python -m pytest -m slow tests/operations/test_quickstart.py \
	    tests/operations/test_training.py tests/training/test_fine_tuning.py \
	    tests/training/test_fine_tuning_options.py \
	    tests/training/test_dense_retrieval.py tests/training/test_pretraining.py \
	    tests/training/test_retrieval_samples.py \
	    tests/training/test_retrieval_age.py tests/models/test_in_batch_retriever.py \
	    tests/retrieval/test_host_retrieval.py tests/benchmarks/test_masked_lm.py \
	    tests/evaluation/ablations/test_ablate.py tests/serving/test_fuzz.py \
	    tests/serving/test_swaps.py

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
