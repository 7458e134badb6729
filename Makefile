# Everything starts here: `make train` and `make test` set up what they need.
VENV ?= .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup train test lint format nightly peers-test bench clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(READY)  ## the .venv with everything

train: $(READY)  ## Pendulum from a learning rate of 1e-5, which OHT-ES must leave; about a minute on two cores
	$(BIN)/oht train Pendulum-v1 --method oht-lr --tune actor_lr+critic_lr=log:1e-5:1 --es-rate 1 --population 10 --at-once 10 --together true \
	    --life 1 --episodes 4 --member-ratio 1 --hidden 32,32 --steps 40_000 --start-steps 1_000 --eval-every 8_000 --overwrite --out runs/demo
	$(BIN)/oht plot runs/demo

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)  ## mend the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint  ## style, types and all tests but the slow ones
	$(BIN)/pytest -n 2 -m 'not slow'

nightly: lint  ## all tests
	$(BIN)/pytest -n 2

PEERS := .venv-peers
$(PEERS)/.ready: benchmarks/peers.txt
	@echo "Setting up $(PEERS) for SBX and Stable-Baselines3"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers.txt
	@touch $@

peers-test: $(PEERS)/.ready  ## the examples with Stable-Baselines3, which is installed in .venv-peers; a few minutes
	PYTHONPATH=src $(PEERS)/bin/python -m pytest --timeout 3600 tests_peers

bench: $(READY) $(PEERS)/.ready  ## speed, beside the peers; about ten minutes
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/baselines.py
	$(BIN)/python benchmarks/outside_learning.py
	$(BIN)/python benchmarks/end_to_end.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/checkpoints.py

clean:  ## remove what was set up
	rm -rf $(VENV) .venv-peers build src/*.egg-info
