# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer and make; nothing else is prepared.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test browser app check clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

$(VENV)/.ui: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ui]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/planner compare scenarios/llama3-70b-256xh100.yaml

test: $(VENV)/.test
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 --dist worksteal

browser: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]'
	PLANNER_BROWSER=1 $(BIN)/python -m pytest tests/browser

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

app: $(VENV)/.ui
	$(BIN)/streamlit run app.py

clean:
	rm -rf $(VENV)
