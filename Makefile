# Two commands for a fresh machine (Python 3.10+, a C/C++ compiler):  make chat   and   make test
# What the targets have to say goes to stderr, so that `echo hello | make -s chat` prints the answer alone.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  := $(VENV)/.torch
ARGS   ?=

.PHONY: setup chat test coverage lint fmt docs bench
.DEFAULT_GOAL := setup

setup: $(READY)
	@echo "localspec: $(VENV) is up to date" >&2

# The stamp is the time of the last good install; only a change of the dependencies makes it old.
$(READY): pyproject.toml
	@exec 1>&2 </dev/null; set -e; \
	command -v $(PYTHON) >/dev/null || { echo "localspec: no $(PYTHON) here; install Python 3.10 or newer, or say make PYTHON=/path/to/python3."; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "localspec: $$($(PYTHON) --version) is too old; say make PYTHON=/path/to/python3.10 or newer."; exit 1; }; \
	if [ ! -x $(BIN)/python ]; then \
	  echo "localspec: making a virtual environment in $(VENV)"; \
	  $(PYTHON) -m venv $(VENV) || { echo "localspec: $(PYTHON) cannot make one; install its venv module (Debian: python3-venv)."; rm -rf $(VENV); exit 1; }; \
	fi; \
	echo "localspec: installing the package and its tools into $(VENV)"; \
	echo "localspec: the first time llama-cpp-python is compiled, which takes about 12 minutes on two cores; pip keeps the result"; \
	$(BIN)/python -m pip install --disable-pip-version-check --no-input -e '.[dev]' \
	  || { echo "localspec: the installation failed (the reason is above); a C and C++ compiler must be there."; exit 1; }; \
	touch $@

chat: $(READY)
	@$(BIN)/localspec chat $(ARGS)

# Only training needs PyTorch, and only the tests and those who train need it: a chat does not wait for it. The version
# is pinned because pip prefers a smaller file for CPUs where one of this very version is at hand.
$(TORCH): $(READY)
	@exec 1>&2 </dev/null; set -e; \
	echo "localspec: installing PyTorch for the tests of training"; \
	$(BIN)/python -m pip install --disable-pip-version-check --no-input 'torch==2.13.0' \
	  || { echo "localspec: PyTorch could not be installed (the reason is above)."; exit 1; }; \
	touch $@

test: $(TORCH)
	@echo "localspec: running the whole test suite; the first run fetches a 98 MB and a 250 MB model" >&2
	@$(BIN)/python -m pytest $(ARGS)

# The data files lie beside each other, one for each process that a test starts.
coverage: $(TORCH)
	@echo "localspec: running the whole test suite and noting what it reaches; that takes about twice as long" >&2
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/python -m tests.covered

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/typer localspec.cli.app utils docs --name localspec --title "The localspec command" --output docs/cli.md
	@sed 's|\[bold\]\(.*\)\[/bold\]|**\1**|' docs/cli.md >docs/cli.tmp && mv docs/cli.tmp docs/cli.md
	$(BIN)/python -m docs.render_results
	$(BIN)/python -m docs.render_cases

bench: $(READY)
	@$(BIN)/localspec bench $(ARGS)
