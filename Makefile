# Every target makes the environment it needs; `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
UV := $(shell command -v uv 2>/dev/null)
# The first Python that runs and is new enough; a name on PATH alone proves nothing.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13; do \
    if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-karpenter check format bench-openb bench-kwok bench-kube-client bench-scaler bench-warmpool clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: .venv/.ready ## make .venv with the project and its dev tools from requirements.lock

.venv/.ready: requirements.lock pyproject.toml
	@test -n '$(PYTHON)' || { echo "Python 3.11 or newer is needed; set PYTHON to it"; exit 1; }
	@echo "Making .venv from requirements.lock (half a minute; on a busy machine or a slow network minutes)..."
ifdef UV
	@$(UV) venv --quiet --allow-existing --python '$(PYTHON)' .venv
	@$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps -e .
else
	@'$(PYTHON)' -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
endif
	@touch $@

lock: ## renew requirements.lock (needs uv)
	uv pip compile --quiet --no-header --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev --extra bench --extra demo --extra observer --extra fetch \
	    pyproject.toml -o requirements.lock

demo: setup ## place 8,152 pods of a real GPU cluster on a real kube-scheduler, on this machine
	@$(PY) -m berthmaster demo

test: setup ## every test: unit, properties, contract on a real control plane
	@$(PY) -m pytest

test-karpenter: setup ## warm nodes by the real Karpenter; builds it once (four minutes on two cores)
	@BERTHMASTER_TEST_KARPENTER=1 nice -n 10 $(PY) -m pytest tests/contract/test_karpenter_nodeclaims.py

check: setup ## format, lint, types, import contracts
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

format: setup ## format and mend what can be mended
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

bench-openb: setup ## packing quality: 17 traces, ours, the published policies, the bound; draws bench/results/openb.png
	@$(PY) -m bench.openb

bench-kwok: setup ## created-to-bound against the stock kube-scheduler, Filter latency, memory
	@$(PY) -m bench.kwok

bench-kube-client: setup ## list/watch cost beside the official client
	@$(PY) -m bench.kube_client

bench-scaler: setup ## the scaler against six rivals on eight traces, with what was promised; draws docs/scaler.svg
	@$(PY) -m bench.scaler

bench-warmpool: setup ## warm-pool sizes against static N, buffers, schedules and Poisson rules; draws docs/warmpool.svg
	@$(PY) -m bench.warmpool

clean: ## remove what the other targets made here (the binaries' cache stays)
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
