# `make demo` and `make test` do all their set-up on a fresh machine: a virtual
# environment in .venv, by uv where it is installed, else by python3 and pip. pip takes
# four times as long, so it gets uv first, and installs the rest itself if uv cannot (it
# does not read pip's settings).

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
UV_INSTALL := pip install --quiet --compile-bytecode --python $(PY) -e '.[dev]'
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
DATA ?= digits
WORKERS ?= 2

# The first interpreter here that is new enough; `make PYTHON=…` overrides it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)

# Without it, Python would put this folder first on sys.path, where `import datasets`
# means the catalogue at the top level and not Hugging Face's package.
export PYTHONSAFEPATH := 1
# Tests compile for themselves, and leave the user's cache alone.
test: export EXBURN_COMPILATION_CACHE := off
export KERAS_BACKEND ?= jax
# Else every process that a test starts, and every run, compiles all Python files anew.
test: export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test setup docs clean

demo: $(READY)
	$(PY) -m exburn.command_line.demo --data $(DATA)

test: $(READY)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

setup: $(READY)

# The site is written into build/site/html.
docs: $(READY)
	$(PY) -m pip install --quiet -e '.[docs]'
	PYTHONPATH=. KERAS_BACKEND=jax JAX_PLATFORMS=cpu $(PY) -m docs.site

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "ExBurn needs Python 3.11 or newer" \
		"(make PYTHON=/path/to/python3)" >&2; exit 1; }
	@if command -v uv >/dev/null 2>&1; then \
		echo "Setting up $(VENV) with uv"; \
		{ test -x $(PY) || uv venv --quiet --python "$$(command -v $(PYTHON))" $(VENV); } \
		&& uv $(UV_INSTALL); \
	else \
		echo "Setting up $(VENV) with pip (a minute or two the first time)"; \
		{ test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); } \
		&& { $(PIP_INSTALL) uv && $(BIN)/uv $(UV_INSTALL) \
			|| $(PIP_INSTALL) -e '.[dev]'; }; \
	fi
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
