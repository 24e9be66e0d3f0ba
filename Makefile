# Every target sets up what it needs: a venv in .venv with the versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

PROTOS := $(wildcard protos/lingua_scheduler/v1/*.proto)
TESTS ?= tests
# Most tests wait more than they work: three workers suit two cores. WORKERS=0: one process.
WORKERS ?= 3
ENGINE ?= podman
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help run test lint format proto proto-check bench bench-pool lock wheel image clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "lingua-scheduler needs Python 3.11 or newer; this is %s. Set PYTHON=/path/to/python3.11" % sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep -o "^uv==[^ ]*" requirements.lock)
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

run: $(READY)  ## the scheduler, a Redis and sample nodes; RUN_SECONDS=30 ends by itself
	@$(BIN)/python examples/conversation.py

test: $(READY)  ## all tests
	$(BIN)/python -m pytest $(TESTS) -n $(WORKERS) --dist worksteal

lint: $(READY) proto-check  ## format, lint, types, import rules, protos
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code

format: $(READY)  ## format code and protos
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/buf format --write

proto: $(READY)  ## regenerate src/lingua_scheduler/v1 from protos/
	$(BIN)/python -m grpc_tools.protoc -I protos --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=src --grpc_python_out=src --mypy_out=quiet:src --mypy_grpc_out=quiet:src $(PROTOS)

proto-check: $(READY)
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp -r src/lingua_scheduler/v1 "$$tmp/committed" && \
	  $(MAKE) --no-print-directory --silent proto && \
	  diff -r -x __pycache__ "$$tmp/committed" src/lingua_scheduler/v1 >/dev/null || \
	  { echo "src/lingua_scheduler/v1 is not what protos/ generates: run 'make proto' and commit the result" >&2; exit 1; }

bench: bench-pool  ## all benchmarks

bench-pool: $(READY)  ## the pool service beside the scripts of seed 003; ARGS=--json
	@$(BIN)/python bench/pool.py $(ARGS)

lock: $(READY)  ## pin the newest versions that pyproject.toml allows
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
	  --upgrade --extra dev pyproject.toml -o requirements.lock

wheel: $(READY)  ## dist/*.whl
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

image:  ## the container image; ENGINE=docker, IMAGE_ARGS=... for more arguments of its build
	BUILDAH_FORMAT=docker $(ENGINE) build $(IMAGE_ARGS) --tag lingua-scheduler:$(VERSION) \
	  --build-arg VERSION=$(VERSION) .

clean:  ## remove the venv and everything built
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
