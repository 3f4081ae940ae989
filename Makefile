# Every target sets itself up: a fresh machine needs Python 3.11, make and the network. `make help` lists the targets.

SHELL := /bin/sh
BIN := .venv/bin
WORKERS ?= 3
ROUNDS ?= 200
SEEDS ?= 1000
FUZZ_SECONDS ?= 60
FUZZ_BATCHES ?= 100000

# Modules are compiled once, whatever the environment says: every process of pytest loads all tests, and tests start hundreds of brokers.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint types imports compiled pytest test-pythons bench bench-quick bench-spark crash test-cluster cluster-simulation cluster-crash fuzz compat audit clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:  ## make .venv with everything needed (every other target does it by itself)
	@scripts/setup.sh

demo: setup  ## a git history through a parented queue, killed workers and a Spark pipeline, every step checked
	@$(BIN)/sparrow demo

test: setup  ## lint, types, import rules and all tests
	@$(MAKE) --no-print-directory --output-sync=target -j2 types compiled lint imports
	@$(MAKE) --no-print-directory pytest

# What is drawn by chance (examples, seeds, rounds of kills) is repeated a few times by `make test`, and here as often as the tests say.
test-long: setup  ## all tests, with four times the examples, seeds and kills of `make test`
	SPARROW_LONG_TESTS=1 $(BIN)/pytest -n $(WORKERS) -q

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# Python keeps what it compiles: the processes of pytest, which begin together, would each compile all tests.
# So do JVMs, where an archive of their classes is written.
compiled: setup
	@$(BIN)/python -m tests.spark.class_archive
	@collected=$$($(BIN)/pytest -q --collect-only 2>&1) || { echo "$$collected"; exit 1; }

pytest: setup
	$(BIN)/pytest -n $(WORKERS) -q

# What the bench needs beside the broker: clients of the peers. The peers themselves are used where they are installed.
BENCH_PACKAGES = VIRTUAL_ENV=.venv UV_PROJECT_ENVIRONMENT=.venv $(BIN)/uv sync --quiet --frozen --inexact --extra server --group bench \
	|| echo "bench: the peers' clients cannot be fetched (see above); the rows that need them will say so" >&2

bench: setup  ## the performance table, medians of five runs; writes JSON to bench/results
	@$(BENCH_PACKAGES)
	@$(BIN)/python -m bench

bench-quick: setup  ## the same table, one short run
	@$(BENCH_PACKAGES)
	@$(BIN)/python -m bench --quick

bench-spark: setup  ## the Spark part alone; beside Spark's own Kafka connector where Maven Central can be reached
	@$(BENCH_PACKAGES)
	@$(BIN)/python -m bench --only spark --json bench/results/spark.json

crash: setup  ## kill -9 under load, hundreds of rounds (ROUNDS=200)
	SPARROW_CRASH_ROUNDS=$(ROUNDS) SPARROW_SPARK_KILLS=$(ROUNDS) $(BIN)/pytest tests/crash tests/spark/exactly_once -q -p no:randomly -o timeout=3600

# The folders whose tests open a broker on a path, or a server in a thread, which then is a shard of a cluster in memory.
SWAPPED = tests/broker tests/queues tests/publishing tests/kafka_frontend tests/kafka_groups tests/kafka_transactions tests/consumer_groups \
	tests/share_fetch tests/share_groups tests/sinks tests/spark/sink tests/webhooks tests/http_idempotency tests/http_queues tests/acls \
	tests/schedules
test-cluster: setup  ## the broker's tests, those of Kafka's clients and of Spark's sink over the stores of cluster mode
	$(BIN)/pytest -n $(WORKERS) -q -p tests.cluster.swapped_stores $(SWAPPED)
	$(BIN)/pytest -n $(WORKERS) -q tests/cluster/test_shard_stores.py tests/cluster/test_ledgers.py tests/cluster/test_objects.py

cluster-simulation: setup  ## whole brokers in simulated time, with faults by seed (SEEDS=1000)
	PYTHONHASHSEED=0 SPARROW_SIMULATION_SEEDS=$(SEEDS) $(BIN)/pytest tests/cluster/test_simulation.py -q -p no:randomly

cluster-crash: setup  ## two brokers over PostgreSQL and S3 under load, with every fault of docs/cluster.md, Java's client too where it is installed (ROUNDS=200)
	SPARROW_CLUSTER_ROUNDS=$(ROUNDS) $(BIN)/pytest tests/cluster/crash -q -s -p no:randomly -o timeout=36000

fuzz: setup  ## changed batches through three decoders (FUZZ_BATCHES=100000); raw bytes into the Kafka frontend, coverage-guided (FUZZ_SECONDS=60; Linux on x86-64)
	SPARROW_FUZZ_BATCHES=$(FUZZ_BATCHES) $(BIN)/pytest tests/kafka_frontend/test_kafka_mutants.py -q -p no:randomly -o timeout=3600
	$(BIN)/uv pip install --quiet --python $(BIN)/python 'atheris>=3.0'
	$(BIN)/python -m fuzz.kafka_requests -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 -artifact_prefix=fuzz/found-

test-pythons:  ## all tests on each supported Python that this machine has (3.11 to 3.14)
	@scripts/test_pythons.sh

compat: setup  ## Kafka's Java clients and tools, clients in Go, KafkaJS; needs Java, Go, Node and the networks of their packages
	@$(BIN)/python -m tests.compat

audit: setup  ## advisories and licences of what the lock file ships, and its bill of materials (asks PyPI)
	@$(BIN)/python scripts/audit.py

clean:  ## remove what the targets made
	rm -rf .venv .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/sparrow/records/_walker.abi3.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
