# `make run` serves, `make test` checks everything. Both need only Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
BIN := $(VENV)/bin

.PHONY: run test lint unit audit check-wheel check-api fuzz soak bench-waits bench-attacks bench-kills bench-uploads bench-fleet bench-ci check-oracle check-traffic check-kernels bench-kernels bench-advice bench-validate bench-trace docker-steps clean

run: $(VENV)/.run
	$(BIN)/tritonworthy serve --host $(HOST) --port $(PORT)

test: lint unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Compiled modules are kept, whatever the shell says: hundreds of children and servers import the project.
unit: $(VENV)/.dev
	./tools/install_chromium.sh
	./tools/install_postgres.sh
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# Known holes in what is installed; says so where the service that knows them cannot be asked.
audit: $(VENV)/.dev
	$(BIN)/python -m tools.checks.audit

# What somebody gets who installs the package: sdist and wheel built, installed outside the checkout, served, used.
check-wheel:
	$(PYTHON) -m tools.checks.check_wheel

# The API of a running server against its own description, CASES an operation.
CASES ?= 1500
check-api: $(VENV)/.dev
	$(BIN)/python -m tools.checks.check_api --cases $(CASES) --oracle auto --record

# Coverage-guided, twelve minutes of each of six targets; what it found before is replayed by `make test`.
fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m tools.fuzz.fuzz --minutes 12 --record

# Load on loopback, 30 minutes of it mixed; large uploads side by side; the fleet's overhead, store and simulation.
soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.server.soak

# On a quiet machine. BASE: a checkout of the commit to compare with (`git worktree add FOLDER COMMIT`).
BASE ?= ../base
bench-waits: $(VENV)/.dev
	$(BIN)/python -m benchmarks.server.waits --base $(BASE) --out tests/records/waits.json

bench-attacks: $(VENV)/.dev
	$(BIN)/python -m benchmarks.server.attacks --base $(BASE) --out tests/records/attacks.json

# 500 kills at random moments under load, and 500 with the server as process 1 (needs root).
bench-kills: $(VENV)/.dev
	$(BIN)/python -m benchmarks.server.kills --out tests/records/kills.json
	$(BIN)/python -m benchmarks.server.kills --as-init --out tests/records/kills.json

bench-uploads: $(VENV)/.dev
	$(BIN)/python benchmarks/server/uploads.py --parallel 8

bench-fleet: $(VENV)/.dev
	$(BIN)/python -m benchmarks.fleet.fleet_store --out tests/records/fleet-store.json
	$(BIN)/python -m benchmarks.fleet.fleet_overhead --out tests/records/fleet-overhead.json
	$(BIN)/python benchmarks/fleet/fleet_jobs.py --out tests/records/fleet-jobs.json
	$(BIN)/python -m tools.fleet.fleet_simulation --run

# The Action's steps on a machine that has nothing, on two cores: on a quiet machine.
bench-ci: $(VENV)/.dev
	$(BIN)/python -m benchmarks.ci.empty_machine --out tests/records/ci-empty-machine.json

# On a host with a GPU: predictions made without it, against what torch.compile makes with it; counted bytes against
# those that ncu reads. The records are held to their claims by the tests.
check-oracle: $(VENV)/.run
	$(BIN)/python -m tools.gpu.check_oracle --record tests/records/oracle-h200-default.json
	$(BIN)/python -m tools.gpu.check_oracle --mode max-autotune --record tests/records/oracle-h200-max-autotune.json

check-traffic: $(VENV)/.run
	OUT=tests/records $(BIN)/python tools/gpu/check_traffic.py

# On a host with a GPU: every kernel against float64, with random calls; then each compared with what users would pick instead.
check-kernels: $(VENV)/.run
	$(BIN)/python tools/gpu/check_kernels.py --large --beyond --soak 2000

bench-kernels: $(VENV)/.run
	$(BIN)/python benchmarks/operations/kernels.py --prepare 8 --demonstrations --out tests/records/kernels-h200.json
	$(BIN)/python benchmarks/operations/kernel_table.py

# The advice as it is today against the Archive, which needs no GPU: docs/accuracy.md, its charts and the page's figures.
bench-advice: $(VENV)/.run
	$(BIN)/tritonworthy accuracy --write

# On a host with GPUs: every region validated twice (records for the Archive, repeatability), how long a verdict takes,
# and three models' steps with the winners put back.
bench-validate: $(VENV)/.run
	$(BIN)/python benchmarks/validation/validate.py --out .bench
	$(BIN)/python benchmarks/validation/verdict.py --out tests/records/verdicts-h200.json
	$(BIN)/python benchmarks/validation/step.py --out tests/records/steps-h200.json

# This reader compared with the others that are installed: ARGS="--hta ../hta/bin/python --gb 1 4" (see --help).
bench-trace: $(VENV)/.run
	$(BIN)/python benchmarks/traces/trace.py $(ARGS)

# The Dockerfile's RUN steps, executed on an overlay of this machine: needs root, and no container engine.
docker-steps:
	./tools/docker_steps.sh

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[server]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
