# Everything a fresh machine needs: `make demo` and `make test` create the environment themselves.
PYTHON ?= python3
VENV ?= .venv
# Empty for the packages that running needs alone, as in the image.
EXTRAS ?= [dev]
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint format install clean help

help:
	@echo "make demo     install, prepare synthetic data, run recipes/quick.toml, print the table"
	@echo "make test     install, then ruff, mypy and the tests"
	@echo "make install  the environment alone, in $(VENV)"
	@echo "make format   format the code"
	@echo "make clean    remove $(VENV) and caches; data/ and runs/ stay"

demo: $(INSTALLED)
	$(BIN)/prime-bench prepare synthetic
	$(BIN)/prime-bench run recipes/quick.toml --slots 2
	@echo
	@$(BIN)/prime-bench report recipes/quick.toml

test: lint
	$(BIN)/pytest -n auto

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "prime-bench needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.11" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.$(EXTRAS)'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
