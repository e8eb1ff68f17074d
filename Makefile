# Everything a fresh machine needs: `make demo` and `make test` create the environment themselves.
PYTHON ?= python3
VENV ?= .venv
# Empty for the packages that running needs alone, as in the image.
EXTRAS ?= [dev]
# constraints-lowest.txt: the oldest versions of the dependencies.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DOCS := $(VENV)/.installed-docs

.PHONY: demo test lint docs format install clean help

help:
	@echo "make demo     install, prepare synthetic data, run recipes/quick.toml, print the table"
	@echo "make test     install, then ruff, mypy and the tests"
	@echo "make docs     the documentation as a site in site/, all links checked"
	@echo "make install  the environment alone, in $(VENV)"
	@echo "make format   format the code"
	@echo "make clean    remove $(VENV), site and caches; data/ and runs/ stay"

demo: $(INSTALLED)
	$(BIN)/prime-bench prepare synthetic
	$(BIN)/prime-bench run recipes/quick.toml
	@echo
	@$(BIN)/prime-bench report recipes/quick.toml

test: lint
	$(BIN)/pytest -n auto

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.$(EXTRAS)'
	@touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
