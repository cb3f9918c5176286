# Two commands get you going: `make demo` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The compiled build: a virtualenv of its own, so that nothing compiled can shadow what is edited here.
FAST   ?= .venv-fast
# Many tests wait for processes that they have started: three workers keep two cores busy.
JOBS   ?= 3
# Every command starts processes, and each would compile all of kyu again if compiled modules were not kept.
unexport PYTHONDONTWRITEBYTECODE
# The theme of the documentation prints an advertisement otherwise.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo install run manifests test fast test-fast check lint types update verify package docs docs-serve control-plane test-cluster clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort | expand -t 18

demo: $(VENV)/.installed           ## two teams share this machine for a minute: real jobs, borrowing, a preemption
	@$(BIN)/kyu demo

test: $(VENV)/.installed-dev       ## every test that needs only Python
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

install: $(VENV)/.installed        ## install the CRDs into the cluster of your kubeconfig
	$(BIN)/kyu manifests --crds-only | $(BIN)/kyu apply -f -

run: $(VENV)/.installed            ## run the controllers against that cluster, in the foreground; `make install run` does both
	$(BIN)/kyu controller

manifests: $(VENV)/.installed      ## write the CRDs, roles and the Deployment to config/
	$(BIN)/kyu manifests --image kyu:latest --write config

fast: $(FAST)/.installed           ## kyu with its engine compiled, as .venv-fast/bin/kyu (needs a C compiler)
	@$(FAST)/bin/kyu version

test-fast: $(FAST)/.installed-dev  ## every test, on the compiled build
	cd $(FAST)/tree && ../bin/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

check: lint types verify           ## what CI asks besides the tests

lint: $(VENV)/.installed-dev       ## style
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev      ## mypy --strict
	$(BIN)/mypy

update: $(VENV)/.installed         ## write the generated files (CRDs, roles, the Deployment, commands, decisions)
	$(BIN)/kyu manifests --image kyu:latest --write config
	$(BIN)/python -m kyu.cli.reference > docs/reference/commands.md
	$(BIN)/python docs/decisions/index.py > docs/decisions/README.md

verify: $(VENV)/.installed         ## fail if a generated file is out of date
	$(BIN)/kyu manifests --image kyu:latest --verify config

package: $(VENV)/.installed-dev    ## build the sdist and the wheel into dist/, and try both in clean environments
	$(BIN)/python -m tests.package

docs: $(VENV)/.installed-docs       ## build the documentation as a site into build/site; fails on a broken link
	$(BIN)/mkdocs build --quiet

docs-serve: $(VENV)/.installed-docs ## show the site at http://127.0.0.1:8000, and follow changes
	$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

control-plane: $(VENV)/.installed-dev ## build a real Kubernetes control plane for the tests, once
	$(BIN)/python -m tests.cluster build

test-cluster: $(VENV)/.installed-dev  ## the tests on a real control plane (needs Go)
	$(BIN)/python -m tests.cluster test

clean:           ## remove the virtualenv and caches
	rm -rf $(VENV) $(FAST) .mypy_cache .ruff_cache .pytest_cache .hypothesis

%/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kyu needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@$(PYTHON) -m venv $*
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "installing kyu into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml
	@echo "installing kyu and its test tools into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.made pyproject.toml
	@echo "installing mkdocs into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(FAST)/.installed: $(FAST)/.made pyproject.toml hatch_build.py $(shell find kyu -name '*.py')
	@$(FAST)/bin/python -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' && \
	  command -v $${CC:-cc} >/dev/null || \
	  { echo "make fast needs a C compiler and Python's headers. On Debian or Ubuntu: apt install gcc python3-dev" >&2; exit 2; }
	@echo "compiling kyu into $(FAST); this takes some minutes …"
	@HATCH_BUILD_HOOKS_ENABLE=1 $(FAST)/bin/pip install --quiet --disable-pip-version-check .
	@touch $@

# The tests run in a folder where everything is that of the checkout, but kyu is what is installed.
$(FAST)/.installed-dev: $(FAST)/.installed
	@$(FAST)/bin/pip install --quiet --disable-pip-version-check 'kyu[dev]'
	@rm -rf $(FAST)/tree && mkdir $(FAST)/tree
	@ln -s $(addprefix $(CURDIR)/,$(filter-out kyu,$(wildcard *))) $(FAST)/tree/
	@ln -s "$$($(FAST)/bin/python -P -c 'import kyu; print(*kyu.__path__)')" $(FAST)/tree/kyu
	@touch $@
