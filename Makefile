PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs

.PHONY: help install test test-all lint docs demo toy resolve clean

help:
	@echo "make install   create $(VENV) and install the package with all extras but those of the documentation"
	@echo "make test      lint, type-check and test; all that CI runs"
	@echo "make test-all  the same with the slow tests"
	@echo "make docs      build the documentation into site/, offline once its tools are installed"
	@echo "make demo      train on Bach's melodies, continue held-out ones, measure; a few minutes"
	@echo "make toy       learn a known toy distribution and draw it beside the truth (toy.png)"
	@echo "make resolve   check that pip finds the versions of constraints.txt on PyPI, whatever lies on this disk"
	@echo "make clean     remove $(VENV) and every cache"

# Rebuilt only when the dependencies change: the package itself is installed in place.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,test]'
	touch $@

install: $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Each process begins with half of the files, in order, so that what the tests of a file share is made once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-fail-under=95

# The tests start a hundred programs. Without bytecode on disk each of them, and each process of pytest, compiles
# everything anew; with more threads than one each thread waits awake.
test test-all: export PYTHONDONTWRITEBYTECODE :=
test test-all: export OMP_NUM_THREADS := 1

test: lint
	$(PYTEST)

test-all: lint
	$(PYTEST) -m 'slow or not slow'

# The tools of the site come on top, into the same environment.
$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # MkDocs is pinned below 2

demo: $(READY)
	$(BIN)/python examples/bach.py

toy: $(READY)
	$(BIN)/python examples/toy.py

resolve:
	$(PYTHON) -m pip --isolated install --quiet --dry-run --ignore-installed --constraint constraints.txt '.[all,test,docs]'

clean:
	rm -rf $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis build site src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
