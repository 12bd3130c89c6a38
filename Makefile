# Everything runs inside .venv, which `make install` builds.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# A test that waits for something that never comes fails after 15 minutes, with its stack.
NO_HANG := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

.DEFAULT_GOAL := help
.PHONY: help venv install test pytest slow lint types docs format tables package bench demo clean

help:  ## show this list
	@grep -E '^[a-z ]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

venv install: $(STAMP)  ## make .venv and install the package with its development tools

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -e '.[dev]' -c constraints.txt
	touch $@

test: $(STAMP)  ## check style and types, and run the tests
	$(MAKE) -j types lint pytest

pytest: $(STAMP)  ## run the tests alone
	$(BIN)/pytest -n 2 --dist worksteal $(NO_HANG)

slow: $(STAMP)  ## run the tests that `make test` leaves out because they take minutes
	$(BIN)/pytest -n 2 -m slow $(NO_HANG)

lint: $(STAMP)  ## check style, format and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)  ## check types
	$(BIN)/mypy

docs: $(STAMP)  ## run the notebooks and build the pages into docs/_build
	$(BIN)/sphinx-build -q -W --keep-going -j 2 -d docs/_build/doctrees docs docs/_build/html

format: $(STAMP)  ## rewrite the files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

tables: $(STAMP)  ## write the tables of README.md and docs/ from the records in results/
	$(BIN)/python tools/tables.py

package: $(STAMP)  ## build sdist and wheel, install the wheel elsewhere and use it
	$(BIN)/python tools/package.py

bench: $(STAMP)  ## compare the engine with enumeration, and epochs with supervised ones
	$(BIN)/python benchmarks/speed.py

demo: $(STAMP)  ## compare methods on digits and write a page, llpkit-demo/report/report.html
	$(BIN)/llpkit demo

clean:  ## remove everything that was built, .venv too
	rm -rf .venv build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
