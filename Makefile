# Every target sets itself up: Python 3.11 or newer and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= 0
CUDA ?= cuda13
WORKERS ?= 2
PROGRAMS ?= 1000
SEED ?= 0
SETTINGS ?=
QUICK ?= 0
# Of tests with many cases a commit takes its share, the next one another; TURN= takes all, which is an hour.
TURN ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

.DEFAULT_GOAL := help
.PHONY: help demo demo-cnn test fuzz a-gpu test-gpu check-gpu lint bench notebooks clean

help:
	@echo "make demo       train a digit classifier, draw what it learned and its graph"
	@echo "make demo-cnn   the same with a convolutional network"
	@echo "make test       run the test suite (TORCH=1: also against PyTorch; TURN=: every case of the long tables)"
	@echo "make fuzz       run random programs in every way (PROGRAMS=1000 SEED=0 SETTINGS='NAME=value ...')"
	@echo "make test-gpu   on a GPU: its tests, then the benchmark table (CUDA=cuda12 for a driver of CUDA 12)"
	@echo "make check-gpu  on a GPU: its tests under NVIDIA's compute-sanitizer"
	@echo "make lint       ruff and mypy"
	@echo "make bench      the benchmark table, beside PyTorch, JAX and autograd (QUICK=1: programs beside PyTorch, 3 minutes)"
	@echo "make notebooks  run the notebooks in place"
	@echo "make clean      remove the virtual environment and everything generated"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("adjit needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra, renewed when the dependencies change.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/python notebooks/digits.py

demo-cnn: $(VENV)/.installed-demo
	$(BIN)/python notebooks/digits_cnn.py

ifeq ($(TORCH),1)
test: $(VENV)/.installed-torch
endif
test: $(VENV)/.installed-test
	ADJIT_TEST_TURN=$(TURN) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations 15 tests

ifeq ($(TORCH),1)
fuzz: $(VENV)/.installed-torch
endif
fuzz: $(VENV)/.installed-test
	$(BIN)/python tests/fuzz $(PROGRAMS) --seed $(SEED) --settings $(SETTINGS)

a-gpu: $(VENV)/.installed-test
	@$(BIN)/python -c 'import sys; from adjit import driver; sys.exit(driver.reason() and "no GPU to test on: " + driver.reason())'

test-gpu: a-gpu $(VENV)/.installed-$(CUDA) $(VENV)/.installed-bench-$(CUDA)
	ADJIT_TEST_DEVICE=cuda $(BIN)/python -m pytest -q --durations 15 tests
	$(BIN)/python bench/run.py --device cuda

check-gpu: a-gpu $(VENV)/.installed-$(CUDA)
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer was not found; it comes with NVIDIA's CUDA toolkit" >&2; exit 1; }
	compute-sanitizer --error-exitcode 1 $(BIN)/python -m pytest -q -m gpu tests

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python bench/run.py $(if $(filter 1,$(QUICK)),--short)

notebooks: $(VENV)/.installed-notebooks
	$(BIN)/python notebooks/run.py

clean:
	rm -rf $(VENV) build demo-output src/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
