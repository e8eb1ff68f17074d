# Everything a fresh machine needs: `make demo` and `make test` create the environment themselves.
PYTHON ?= python3
VENV ?= .venv
# Empty for the packages that running needs alone, as in the image.
EXTRAS ?= [dev]
# constraints-lowest.txt: the oldest versions of the dependencies, which `make lowest` takes.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DOCS := $(VENV)/.installed-docs

LOWEST := .venv-lowest

.PHONY: demo test tests types lowest lint style docs format install clean help

help:
	@echo "make demo     install, prepare synthetic data, run recipes/quick.toml, print the table"
	@echo "make test     install, then ruff, mypy and the tests"
	@echo "make lowest   ruff and the tests with the oldest versions of the dependencies, in $(LOWEST), on Python 3.11"
	@echo "make docs     the documentation as a site in site/, all links checked"
	@echo "make install  the environment alone, in $(VENV)"
	@echo "make format   format the code"
	@echo "make clean    remove $(VENV), $(LOWEST), site and caches; data/ and runs/ stay"

demo: $(INSTALLED)
	$(BIN)/prime-bench prepare synthetic
	$(BIN)/prime-bench run recipes/quick.toml
	@echo
	@$(BIN)/prime-bench report recipes/quick.toml

test: style
	@$(MAKE) --no-print-directory -j2 types tests

# mypy takes one core for half a minute; the tests run beside it.
types: $(INSTALLED)
	$(BIN)/mypy

tests: $(INSTALLED)
	$(BIN)/pytest -n auto --dist worksteal

# The slow test needs polars below 2. Without mypy: it reads the types that numpy, torch and matplotlib ship, and those of old releases say less.
lowest:
	$(MAKE) install VENV=$(LOWEST) CONSTRAINTS=constraints-lowest.txt
	$(LOWEST)/bin/ruff check .
	$(LOWEST)/bin/ruff format --check .
	$(LOWEST)/bin/pytest -n auto --dist worksteal
	$(LOWEST)/bin/pytest --slow tests/integrations/test_fuxictr_csv.py

lint: style types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# PATH: MkDocs finds ruff there, which lays out the signatures of the reference.
docs: $(INSTALLED_DOCS)
	PATH="$(abspath $(BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "prime-bench needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.11" >&2; \
	  exit 1; }
	@echo "Installing about 100 packages (2 GB, mostly torch) into $(VENV): 1 to 3 minutes, more on a slow line or a busy machine"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint $(CONSTRAINTS) --editable '.$(EXTRAS)'
	@touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(LOWEST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
