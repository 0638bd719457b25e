# Everything runs in .venv, made on first use from constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# An installation names this folder in a file that Python 3.11 reads as the locale has it; as ASCII, an ü ends it at once.
ifneq ($(filter C POSIX,$(LC_ALL)),)
export LC_ALL := C.UTF-8
endif

.PHONY: help demo test lint types unit ring rest peers nightly first-hour format docs dist lowest clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	@# As pip would, but on every core; it complains of a file that is for a later Python.
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' "$(CURDIR)/$(VENV)/lib" || true
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## set up, attack the bundled model on real digits, write a picture and a page
	$(BIN)/sigmazero demo

test: lint  ## set up, then lint, types, tests, doctests and examples
	@$(MAKE) --no-print-directory --jobs 2 types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(VENV)/.dev
	$(BIN)/mypy

# Each process begins with half of the list, so that neighbours share what is costly to make, and then helps the other.
unit: $(VENV)/.dev
	$(BIN)/pytest -q -n 2 --dist worksteal -m 'not slow'

ring: $(VENV)/.dev  ## the tests that use public names alone: judge, contract, golden results, whole processes
	$(BIN)/pytest -q -n 2 --dist worksteal tests/judge tests/contract tests/golden tests/system

rest: $(VENV)/.dev  ## the slow tests, which `make test` leaves out; bridges are in `make peers`
	$(BIN)/pytest -q -n 2 --dist worksteal -m slow tests --ignore tests/adapters

# Other libraries, in an environment of their own, which has torch and our tools from the first by a path file. They are
# installed without what they ask for besides: one holds back requests, another wants what does not build.
PEERS := .venv-peers
$(PEERS)/.done: $(VENV)/.dev constraints-peers.txt
	$(PYTHON) -m venv --without-pip $(PEERS)
	$(BIN)/pip --python $(PEERS)/bin/python install --quiet --no-deps -r constraints-peers.txt
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
	  $$($(PEERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/shared.pth
	@touch $@

peers: $(PEERS)/.done  ## the bridges to other libraries, with these libraries
	SIGMAZERO_PEERS=1 $(PEERS)/bin/python -m pytest -q -n 2 --dist worksteal tests/adapters

# The number is that of the day and is printed: the same cases again with `make nightly SEED=20250131`.
SEED ?= $(shell date +%Y%m%d)
nightly: $(VENV)/.dev  ## every property test with new examples, and the attacks on ourselves with more; takes hours
	HYPOTHESIS_PROFILE=nightly SIGMAZERO_SEED=$(SEED) \
	  $(BIN)/pytest -q --hypothesis-seed=$(SEED) -m 'hypothesis or nightly' tests

first-hour: $(VENV)/.dev  ## the quickstart from an empty environment, installation included, timed; takes minutes
	SIGMAZERO_FIRST_HOUR=1 $(BIN)/pytest -q -s -n 0 tests/docs/test_first_hour.py

format: $(VENV)/.dev  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## build the documentation into build/docs; a link that leads nowhere is an error
	$(BIN)/sphinx-build --builder html --fail-on-warning --keep-going --nitpicky --quiet docs build/docs
	@echo "wrote build/docs/index.html"

dist:            ## build wheel and sdist, try the wheel in an environment of its own; the sdist must give the same files
	rm -rf dist build/dist-venv build/wheel-venv build/from-sdist
	$(PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/pip install --quiet -c constraints.txt hatchling
	build/dist-venv/bin/python -m hatchling build
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[demo]"
	cd build && wheel-venv/bin/sigmazero --version && wheel-venv/bin/sigmazero demo --limit 5 --steps 20
	build/dist-venv/bin/pip install --quiet --no-deps --no-build-isolation --target build/from-sdist dist/*.tar.gz
	diff -rq -x __pycache__ build/from-sdist/sigmazero build/wheel-venv/lib/python*/site-packages/sigmazero

# What `pip install sigmazero` may resolve to at least; the newest versions are in constraints.txt.
lowest:          ## the contract and the commands with the lower bounds of pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet -c constraints-lowest.txt -e '.[demo]' pytest pytest-xdist hypothesis
	.venv-lowest/bin/pytest -q -n 2 --dist worksteal tests/contract tests/cli

clean:           ## remove what make made
	rm -rf $(VENV) $(PEERS) .venv-lowest dist .pytest_cache .mypy_cache .ruff_cache demo build
