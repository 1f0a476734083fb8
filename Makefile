# Two commands: `make demo` and `make test`. Needed beforehand: Python 3.11 or newer, Java 17 or newer, make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
QUICK := not broker and not cluster and not slow and not fuzz and not long
BELOW := tests/unit/client tests/unit/wire
ABOVE := tests/unit/cli tests/unit/runtime tests/unit/spark

.PHONY: help demo test test-long every-test map unit unit-below unit-between unit-above lint sbom audit-dependencies types imports fuzz bench-consume bench-groups bench-lanes bench-sharing bench-spark jars classes lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo           a real Kafka, an application on Spark, and the proof that nothing was lost"
	@echo "make test           lint, types, import contracts and every test, with a real Kafka"
	@echo "make test-long      the tests that take minutes each: Spark under the whole conformance suite, its faults"
	@echo "make unit           the unit tests, in 1 to 2 minutes"
	@echo "make lint           ruff, mypy, import-linter, the list of dependencies (dist/sbom.cdx.json) and their advisories"
	@echo "make audit-dependencies  the advisories alone, by pip-audit; fails if they could not be looked up"
	@echo "make fuzz           mutated batches and frames, the full count"
	@echo "make bench-consume  consuming, against other clients"
	@echo "make bench-groups   consumer groups, against other clients"
	@echo "make bench-lanes    lanes, against parallel-consumer and a bare event loop"
	@echo "make bench-sharing  many triggers on one topic, against other clients"
	@echo "make bench-spark    Spark's source and sink for Kafka, against Spark's own; lanes on Spark, and how long records take there"
	@echo "make map            write what is generated in docs: the file map, the table of metrics"
	@echo "make lock           resolve requirements.lock anew"
	@echo "make clean          remove the environment and caches (not the Kafka jars)"

demo: $(READY) jars classes
	@$(BIN)/multilane demo

# Most tests wait for brokers: several runs of them, and the linters, run in parallel.
test: jars classes
	@$(MAKE) --no-print-directory --jobs=2 lint every-test

every-test: $(READY)
	@$(BIN)/python tests/side_by_side.py

test-long: $(READY) jars classes
	@$(BIN)/python -m pytest -m long --timeout 600

# Three parts in parallel: the upper layers mostly wait.
unit: $(READY)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target unit-below unit-between unit-above

unit-below:
	@$(BIN)/python -m pytest --quiet $(BELOW) -m "$(QUICK)"

unit-between:
	@$(BIN)/python -m pytest --quiet tests/unit $(BELOW:%=--ignore=%) $(ABOVE:%=--ignore=%) -m "$(QUICK)"

unit-above:
	@$(BIN)/python -m pytest --quiet $(ABOVE) -m "$(QUICK)"

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/sbom.py dist/sbom.cdx.json
	@$(BIN)/python tests/dependency_audit.py

sbom: $(READY)
	@$(BIN)/python tests/sbom.py dist/sbom.cdx.json

# In lint, packages that the service on the network cannot check are reported; here they are a failure.
audit-dependencies: $(READY)
	@$(BIN)/python tests/dependency_audit.py --required

# What docs have from the code: tests fail when it is not up to date.
map: $(READY)
	@$(BIN)/python tests/file_map.py
	@$(BIN)/python tests/metrics_table.py

fuzz: $(READY)
	@$(BIN)/python tests/fuzz/run.py --batches 100000 --frames 20000 --bounds-share 1.0

bench-consume: $(READY) jars
	@$(BIN)/python bench/consume.py

bench-groups: $(READY) jars
	@$(BIN)/python bench/groups.py

bench-lanes: $(READY) jars
	@$(BIN)/python bench/lanes.py

bench-sharing: $(READY) jars
	@$(BIN)/python bench/sharing.py

bench-spark: $(READY) jars classes
	@status=0; for part in spark spark_lanes spark_latency; do $(BIN)/python bench/$$part.py || status=1; done; exit $$status

jars: $(READY)
	@$(BIN)/multilane dev fetch-jars

# Spark starts in half the time: made once for a Java.
classes: $(READY)
	@$(BIN)/multilane dev archive-spark

# The lock names every package with its hashes; ours comes last and brings no dependency of its own.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no python3 on the PATH: Python 3.11 or newer is needed" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is too old: Python 3.11 or newer is needed (make PYTHON=...)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot make environments: its ensurepip is missing (on Debian: apt install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv $(VENV); }
	@echo "installing the $$(grep -c '==' requirements.lock) packages of requirements.lock into $(VENV)" \
	  "(the first time: two minutes or more, most of it for Spark's 490 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@echo "installing multilane itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lock: $(READY)
	@$(BIN)/uv pip compile pyproject.toml --extra avro --extra connect --extra dev --extra examples --extra prometheus --extra registry --extra spark --extra test --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --upgrade --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
