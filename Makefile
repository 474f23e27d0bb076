# Each target is one line to a tool. `make` alone prints this help.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# The tests start hundreds of processes: what a machine's settings say, they need not compile the modules each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock check format openapi dashboards pictures test-fast coverage simulation test test-long integration integration-spark integration-services demo bench bench-codec bench-core bench-service bench-source bench-replica bench-feedback bench-operators up down logs smoke compose-trial stack stack-stop stack-status clean

help:  ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

$(VENV)/installed: requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else f"LMerge needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Name another one: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --no-deps --requirement requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/pip check --quiet
	touch $@

setup: $(VENV)/installed  ## install everything: the Python environment, a Kafka broker, Prometheus and Docker Compose for tests
	@$(BIN)/python -m deploy.local fetch
	@$(BIN)/python -m deploy.local fetch --prometheus
	@$(BIN)/python -m deploy.local fetch --compose

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

dashboards: setup  ## write deploy/grafana/dashboards anew
	$(BIN)/python -m deploy.grafana

pictures: setup  ## draw what every panel shows of a run in which a replica is killed: docs/pictures
	$(BIN)/python -m deploy.grafana.pictures --into docs/pictures

test-fast: setup  ## unit, property and golden tests, under 2 minutes
	$(BIN)/pytest -n 2 --dist worksteal

coverage: setup  ## the same with branch coverage, which must be complete for lmerge
	$(BIN)/pytest -n 2 --dist worksteal --cov

simulation: setup  ## thousands of random runs, without the cost of coverage: merges, lives of a lane, feeds, operators
	$(BIN)/pytest -n 2 --dist worksteal tests/simulation

integration: setup  ## tests on a real Kafka broker and a real Spark
	@$(MAKE) --no-print-directory --jobs 2 integration-spark integration-services

integration-spark: setup
	$(BIN)/pytest -m spark tests/integration

integration-services: setup
	$(BIN)/pytest -m 'not spark' tests/integration

test: check coverage simulation integration  ## everything that must pass

test-long: setup  ## the same suites with their large sizes; keeps docs/test-long.md
	$(BIN)/pytest --long --timeout 3600 --report docs/test-long.md lmerge tests

demo: setup  ## a replicated query end to end, the leader is killed, the merged topic is proved right; KEEP=1 leaves it running
	@$(BIN)/python -m deploy.demo $(if $(KEEP),--keep)

bench: bench-codec bench-core bench-service bench-source bench-replica bench-feedback bench-operators  ## all benchmarks: JSON lines with ratios from one run, plots

bench-codec: setup  ## cost of decoding, canonicalising and encoding an element against orjson
	$(BIN)/python -m benchmarks.codec

bench-core: setup  ## throughput and memory of R0 to R4, figures 2 to 7 of the paper
	$(BIN)/python -m benchmarks.core

bench-service: setup  ## the merge service against a plain copier: processor time and latency
	$(BIN)/python -m benchmarks.service --profile

bench-source: setup  ## the replicas' source against Spark's own Kafka connector: time of a batch, rows per second
	$(BIN)/python -m benchmarks.source

bench-operators: setup  ## the replicas' operators: elements per second, and what early answers cost in output
	$(BIN)/python -m benchmarks.operators

bench-replica: setup  ## a whole replica against the same query with Spark's own Kafka source and sink
	$(BIN)/python -m benchmarks.replica

bench-feedback: setup  ## what feedback saves: two plans that are dear in turn, alone and merged, figure 10 of the paper
	$(BIN)/python -m benchmarks.feedback

stack: setup  ## start a Kafka broker here, without Docker
	$(BIN)/python -m deploy.local start

stack-stop: setup  ## stop it and remove its data
	$(BIN)/python -m deploy.local stop

stack-status: setup  ## show what runs
	$(BIN)/python -m deploy.local status

.env:
	cp .env.example .env

up: .env  ## start everything with docker compose, Prometheus and Grafana too (docs/compose.md)
	LMERGE_REVISION=$$(git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || echo unknown) docker compose --profile observability up --build --detach --wait

down:  ## stop what `make up` started; VOLUMES=1 removes its data too
	docker compose --profile '*' down $(if $(VOLUMES),--volumes)

logs:  ## follow the logs of what `make up` started
	docker compose --profile '*' logs --follow --tail 100

smoke:  ## see that what `make up` started is alive, and that its merged topic is right
	docker compose run --rm --no-deps smoke

compose-trial: setup  ## run docker-compose.yml on an engine of its own, with a kill; root on Debian, 20 minutes (docs/compose.md)
	$(BIN)/python -m deploy.compose.trial

clean:  ## stop what runs here; remove the environment, caches and downloads
	test ! -x $(BIN)/python || $(BIN)/python -m deploy.local stop --all
	rm -rf $(VENV) .cache .run .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
