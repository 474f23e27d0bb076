# Each target is one line to a tool. `make` alone prints this help.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup lock check format openapi test-fast coverage simulation test test-long integration demo bench bench-codec bench-core bench-service bench-source up down stack stack-stop stack-status clean

help:  ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

$(VENV)/installed: requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else f"LMerge needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Name another one: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

setup: $(VENV)/installed  ## install everything: the Python environment and a Kafka broker
	@$(BIN)/python -m deploy.local fetch

lock:  ## pin all dependencies anew, with hashes and without addresses (needs uv)
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' --all-extras --group dev -o requirements-dev.lock
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' -c requirements-dev.lock -o requirements.lock
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' -c requirements-dev.lock --extra replica -o requirements-replica.lock

check: setup  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## format the code
	$(BIN)/ruff format .

openapi: setup  ## write docs/openapi.json anew
	$(BIN)/python -m services.merge.api.openapi > docs/openapi.json

test-fast: setup  ## unit, property and golden tests, under 2 minutes
	$(BIN)/pytest -n 2 --dist worksteal

coverage: setup  ## the same with branch coverage, which must be complete for lmerge
	$(BIN)/pytest -n 2 --dist worksteal --cov

simulation: setup  ## the oracle over 200,000 random elements per algorithm, and 20,000 random lives of a lane
	$(BIN)/pytest -n 2 tests/simulation

integration: setup  ## tests on a real Kafka broker and a real Spark
	$(BIN)/pytest tests/integration

test: check coverage simulation integration  ## everything that must pass

test-long: setup  ## the same suites with their large sizes; keeps docs/test-long.md
	$(BIN)/pytest --long --timeout 3600 --report docs/test-long.md lmerge tests

demo: setup  ## a replicated query end to end, the leader is killed, the merged topic is proved right; KEEP=1 leaves it running
	@$(BIN)/python -m deploy.demo $(if $(KEEP),--keep)

bench: bench-codec bench-core bench-service bench-source  ## all benchmarks: JSON lines with ratios from one run, plots

bench-codec: setup  ## cost of decoding, canonicalising and encoding an element against orjson
	$(BIN)/python -m benchmarks.codec

bench-core: setup  ## throughput and memory of R0 to R4, figures 2 to 7 of the paper
	$(BIN)/python -m benchmarks.core

bench-service: setup  ## the merge service against a plain copier: processor time and latency
	$(BIN)/python -m benchmarks.service --profile

bench-source: setup  ## the replicas' source against Spark's own Kafka connector: time of a batch, rows per second
	$(BIN)/python -m benchmarks.source

stack: setup  ## start a Kafka broker here, without Docker
	$(BIN)/python -m deploy.local start

stack-stop: setup  ## stop it and remove its data
	$(BIN)/python -m deploy.local stop

stack-status: setup  ## show what runs
	$(BIN)/python -m deploy.local status

up:  ## start with docker compose
	docker compose up --detach --wait

down:  ## stop what `make up` started
	docker compose down

clean:  ## stop what runs here; remove the environment, caches and downloads
	test ! -x $(BIN)/python || $(BIN)/python -m deploy.local stop --all
	rm -rf $(VENV) .cache .run .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
