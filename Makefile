# The two commands of the README: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
DEMO := runs/demo

.PHONY: demo test test-all test-slow test-playground faults bench lint audit format clean

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "costate needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version)." \
			"Use: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[test]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/costate train CartpoleSwingup --preset nc-gru --dropout 0.5 --steps 2_000_000 \
		--out $(DEMO) --overwrite
	$(BIN)/costate evaluate $(DEMO) --dropout 0.5 --episodes 100
	$(BIN)/costate evaluate $(DEMO) --dropout 0.75 --episodes 100
	@echo "everything is in $(DEMO): learning_curve.png, metrics.jsonl, checkpoints/, evaluations/"

test: $(VENV)/installed lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow and not thorough' --durations=15 \
		--cov --cov-report=term:skip-covered

# Before a merge: with the sweeps, clusters, browsers and variants that `test` leaves out.
test-all: $(VENV)/installed lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' --durations=15

test-slow: $(VENV)/installed
	$(BIN)/python -m pytest -m slow

faults: $(VENV)/installed
	COSTATE_FAULTS=full $(BIN)/python -m pytest -n 2 --dist worksteal -rP -q tests/faults/test_faults.py \
		tests/faults/test_signals.py tests/runs/test_run_lock.py tests/training/test_divergence.py

# MuJoCo Playground is a separate extra, because it installs 600 MB of packages.
test-playground: $(VENV)/installed
	$(PIP) --editable '.[test,playground]'
	$(BIN)/python -m pytest tests/envs/test_playground.py

bench: $(VENV)/installed
	$(BIN)/python -m pytest benchmarks/test_learner.py -s --benchmark-disable-gc \
		--benchmark-columns=min,median,rounds

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Compare constraints.txt with a folder of security advisories, without a network, and write docs/audit.json.
ifeq ($(strip $(ADVISORIES)),)
audit:
	@echo "An audit needs a folder of advisories: make audit ADVISORIES=path/to/advisory-database"
	@echo "Get one, where there is a network, with: git clone --depth 1 https://github.com/pypa/advisory-database"
	@exit 2
else
audit: $(VENV)/installed
	$(BIN)/python tools/audit.py "$(ADVISORIES)"
endif

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(DEMO)
