# Two commands get you going: `make demo` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two workers: the tests start real processes, more only makes them wait for each other.
JOBS   ?= 2

.PHONY: help demo test check lint types update verify control-plane test-cluster clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort | expand -t 18

demo: $(VENV)/.installed           ## two teams share this machine for a minute: real jobs, borrowing, a preemption
	@$(BIN)/kyu demo

test: $(VENV)/.installed-dev       ## every test that needs only Python
	$(BIN)/pytest -n $(JOBS) --dist loadfile

check: lint types verify           ## what CI asks besides the tests

lint: $(VENV)/.installed-dev       ## style
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev      ## mypy --strict
	$(BIN)/mypy

update: $(VENV)/.installed         ## write the generated files (CRDs, reference pages)
	$(BIN)/kyu manifests --write config

verify: $(VENV)/.installed         ## fail if a generated file is out of date
	$(BIN)/kyu manifests --verify config

control-plane: $(VENV)/.installed-dev ## build a real Kubernetes control plane for the tests, once
	$(BIN)/python -m tests.cluster build

test-cluster: $(VENV)/.installed-dev  ## the tests on a real control plane (needs Go)
	$(BIN)/python -m tests.cluster test

clean:           ## remove the virtualenv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kyu needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "installing kyu into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml
	@echo "installing kyu and its test tools into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed
