# Everything starts here: `make train` and `make test` set up what they need.
VENV ?= .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin
READY := $(VENV)/.ready

BASE := $(VENV)/.base
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup train test peers-test docs lint format nightly soak wheel mutants bench clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BASE): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (about a minute the first time)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(READY): $(BASE)
	@echo "Adding all tasks, Ray and the tools for tests to $(VENV)"
	$(PIP) --editable '.[dev]'
	@touch $@

setup: $(READY)  ## the .venv with everything

DEMO := Pendulum-v1 --actor-lr 1e-5 --critic-lr 1e-5 --hidden 32,32 --steps 20_000 --start-steps 1_000 --overwrite
train: $(BASE)  ## Pendulum from learning rates of 1e-5: first constant, then raced by oht; about a minute on two cores
	$(BIN)/oht train $(DEMO) --method static --out runs/static
	$(BIN)/oht train $(DEMO) --method oht --tune actor_lr+critic_lr=log:1e-5..1e-2 --out runs/demo
	$(BIN)/oht plot runs/demo runs/static

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)  ## correct the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# with loadfile a program that the tests of a file share is compiled in one worker only; by default pytest-xdist would
# begin with the files of most tests, and end with those that take longest
# three workers on two cores: some tests wait for processes that they have started
PYTEST := $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder
test: lint  ## style, types and all tests but the slow ones
	$(PYTEST) -m 'not slow'

nightly: lint  ## all tests, the soak, and a wheel in an empty venv
	$(PYTEST) --ignore tests/test_soak.py
	$(MAKE) soak wheel

soak: $(READY)  ## 100 kills, 10 000 inputs, 1000 damaged checkpoints; prints what it did
	$(BIN)/pytest -s -q tests/test_soak.py

wheel: $(READY)  ## build a wheel, install it into an empty venv and train with it
	$(BIN)/python tests/check_wheel.py

mutants: $(READY)  ## mutation testing, for hours; continues where it stopped. Some: make mutants MUTANTS='replay.py --sample 5'
	$(BIN)/python tests/mutate.py $(MUTANTS)

docs: $(READY)  ## the docs site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

PEERS := .venv-peers
$(PEERS)/.ready: benchmarks/peers.txt
	@echo "Setting up $(PEERS) for SBX, Stable-Baselines3 and AgileRL"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers.txt
	@touch $@

peers-test: $(PEERS)/.ready  ## the examples with Stable-Baselines3, which is installed in .venv-peers; a few minutes
	PYTHONPATH=src $(PEERS)/bin/python -m pytest --timeout 3600 tests_peers

bench: $(READY) $(PEERS)/.ready  ## speed, beside the peers; about three quarters of an hour
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/costs.py
	$(BIN)/python benchmarks/baselines.py
	$(BIN)/python benchmarks/acting.py
	$(BIN)/python benchmarks/outside_learning.py
	$(BIN)/python benchmarks/end_to_end.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/populations.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/checkpoints.py

clean:  ## remove what was set up
	rm -rf $(VENV) .venv-peers build src/*.egg-info
