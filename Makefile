# Isthmus: `make demo` shows it, `make test` proves it; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
# Files of tests at the same time. Those of the cluster break it: two workers have one each, if the machine can; with
# AT_ONCE_ON_CLUSTERS= all go one after the other on one of them.
AT_ONCE := -n auto --dist loadfile --no-loadscope-reorder
AT_ONCE_ON_CLUSTERS ?= $(AT_ONCE)

# What pip needs to compile python-qpid-proton with TLS and SASL; it leaves either out silently.
DEBIAN_PACKAGES := ca-certificates gcc pkg-config libssl-dev libsasl2-dev libsasl2-modules python3-dev python3-venv
# For the tests: clients that this project did not write (rhea runs on Node.js, the C clients on Debian's proton),
# Cyrus SASL's user database, a broker (Artemis, by Maven, runs on Java, as Spark does), networks of namespaces with
# faults, a browser, and Prometheus with promtool.
DEBIAN_TEST_PACKAGES := nodejs npm libqpid-proton11-dev make sasl2-bin libsasl2-modules-db default-jre-headless maven \
  iproute2 iptables chromium prometheus

# The images: the extra of pyproject.toml that each one installs, and its folder.
IMAGES := router:router-image operator:operator collector:flow-log flows:flow-analysis
# What setup.py and python-qpid-proton, which comes as source, are built with.
BUILD_TOOLS := 'setuptools>=77' 'cython>=3.1,<4' 'cffi>=1' wheel
LOCK_TOOL := uv>=0.13,<0.14
SBOM_TOOL := cyclonedx-bom>=7.5,<8
SBOM_PLUGIN := org.cyclonedx:cyclonedx-maven-plugin:2.9.1

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## Make .venv with every command in .venv/bin (again: nothing to do)

$(STAMP): pyproject.toml setup.py $(foreach kind,pyx pxd pxi h,$(wildcard router-image/isthmus_router/amqp/*/*.$(kind))) $(wildcard router-image/isthmus_router/message/structure.p*) | prerequisites
	@test -x $(BIN)/python || { echo "Making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Isthmus and what it needs (python-qpid-proton is compiled: about a minute the first time)"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(proton_complete) || { \
	  echo "This build of python-qpid-proton lacks TLS or SASL: compiling it again"; \
	  $(BIN)/python -m pip install --quiet --force-reinstall --no-deps --no-cache-dir --no-binary python-qpid-proton \
	    "$$($(BIN)/python -m pip freeze | grep -i '^python-qpid-proton==')"; \
	  $(proton_complete) || { \
	    echo "python-qpid-proton still lacks TLS or SASL. Install: $(DEBIAN_PACKAGES)" >&2; exit 1; }; }
	@touch $@

proton_complete = $(BIN)/python -c 'import sys; from cproton_ffi import lib; \
  sys.exit(not (lib.pn_ssl_present() and lib.pn_sasl_extended()))'

.PHONY: prerequisites
prerequisites:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@missing=; \
	command -v gcc >/dev/null || missing=gcc; \
	command -v pkg-config >/dev/null && pkg-config --exists openssl libsasl2 || missing="$$missing headers"; \
	$(PYTHON) -c 'import ensurepip, os, sysconfig, sys; \
	  sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null \
	  || missing="$$missing python"; \
	test -n "$$missing" || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing build prerequisites: $(DEBIAN_PACKAGES)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    $(DEBIAN_PACKAGES) >/dev/null; \
	else \
	  echo "Missing build prerequisites. On Debian or Ubuntu:" >&2; \
	  echo "  sudo apt-get install $(DEBIAN_PACKAGES)" >&2; \
	  echo "Elsewhere: a C compiler, pkg-config, and the headers of OpenSSL, Cyrus SASL and Python." >&2; \
	  exit 1; \
	fi

.PHONY: test-prerequisites
test-prerequisites:
	@export PATH="$$PATH:/usr/sbin"; \
	command -v npm >/dev/null && command -v saslpasswd2 >/dev/null && pkg-config --exists libqpid-proton && \
	  command -v java >/dev/null && command -v mvn >/dev/null && command -v tc >/dev/null && \
    command -v iptables >/dev/null && command -v chromium >/dev/null && command -v promtool >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing what the tests need: $(DEBIAN_TEST_PACKAGES)"; \
	  packages="$(filter-out nodejs npm default-jre-headless,$(DEBIAN_TEST_PACKAGES))"; \
	  command -v npm >/dev/null || packages="$$packages nodejs npm"; \
	  command -v java >/dev/null || packages="$$packages default-jre-headless"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    $$packages >/dev/null; \
	else \
	  echo "Tests with foreign clients, a broker, passwords, network faults and Prometheus will fail without them. On Debian or Ubuntu:" >&2; \
	  echo "  sudo apt-get install $(DEBIAN_TEST_PACKAGES)" >&2; \
	fi

.PHONY: demo
demo: venv ## Two sites, two edges, real clients on this machine, in under a minute
	@$(BIN)/isthmus demo

.PHONY: test
test: venv test-prerequisites ## Every test and lint: integration, then a real Kubernetes cluster, others behind them
	@AT_ONCE="$(AT_ONCE)" AT_ONCE_ON_CLUSTERS="$(AT_ONCE_ON_CLUSTERS)" tests/all.sh $(BIN)/python $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: venv test-prerequisites ## Unit and integration tests: all but the cluster
	@$(BIN)/python -m pytest $(AT_ONCE) $(PYTEST_ARGS) tests/unit tests/integration tests/security

.PHONY: valgrind
valgrind: venv ## The compiled kernel under valgrind, which must be installed (PLAYS=100: a few minutes)
	@$(BIN)/python -m tests.memcheck --plays $(or $(PLAYS),100)

.PHONY: fuzz
fuzz: venv ## Random conversations with a router in memory, in one process (FUZZ_SECONDS=600, SEED=1)
	@$(BIN)/python -m tests.security.fuzz --seconds $(or $(FUZZ_SECONDS),600) --seed $(or $(SEED),1)

.PHONY: lint
lint: venv ## ruff, mypy --strict, and which package may import which
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache

.PHONY: crds
crds: venv ## Write crds/, docs/resources.md and the chart's _restrictions.tpl again from the models
	@$(BIN)/python -m isthmus_operator.resources.generate

.PHONY: configuration-page
configuration-page: venv ## Write docs/configuration.md again from the schema
	@$(BIN)/python -m isthmus_router.config.document > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md

.PHONY: flow-analysis-page
flow-analysis-page: venv ## Write the tables in docs/flow-analysis.md again from what declares them
	@$(BIN)/python -m isthmus_flows.document docs/flow-analysis.md

.PHONY: flow-schema-page
flow-schema-page: venv ## Write docs/flow-schema.md again from the schema
	@$(BIN)/python -m isthmus_flowlog.document > docs/flow-schema.md.new && mv docs/flow-schema.md.new docs/flow-schema.md

.PHONY: constraints
constraints: ## Write the images' exact dependencies and their hashes again
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	$(PYTHON) -m venv "$$work/venv"; "$$work/venv/bin/pip" install --quiet '$(LOCK_TOOL)'; \
	lock() { \
	  { echo "# Written by \`make constraints\`: $$2, each with the hashes of its files."; \
	    "$$work/venv/bin/uv" pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header \
	      "$${@:3}"; } > "$$work/new"; \
	  cat "$$work/new" > "$$1"; echo "$$1"; \
	}; \
	printf '%s\n' $(BUILD_TOOLS) > "$$work/tools.in"; \
	lock build-requirements.txt "what builds the packages in the images" "$$work/tools.in"; \
	for image in $(IMAGES); do \
	  lock "$${image##*:}/requirements.txt" "what the $${image%%:*} image has" pyproject.toml --extra "$${image%%:*}"; \
	done; \
	mvn --quiet --batch-mode --file flow-analysis/object-store.pom.xml package -DoutputDirectory="$$work/jars"; \
	(cd "$$work/jars" && sha256sum *.jar) > flow-analysis/object-store.sha256; echo flow-analysis/object-store.sha256

.PHONY: sbom
sbom: ## A software bill of materials for each image, CycloneDX in sbom/ (needs Maven)
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; mkdir -p sbom; \
	$(PYTHON) -m venv "$$work/venv"; "$$work/venv/bin/pip" install --quiet '$(SBOM_TOOL)'; \
	for image in $(IMAGES); do \
	  file="sbom/isthmus-$${image%%:*}.cdx.json"; \
	  PYTHONWARNINGS=ignore "$$work/venv/bin/cyclonedx-py" requirements --pyproject pyproject.toml --output-reproducible --of JSON \
	    -o "$$file" "$${image##*:}/requirements.txt"; echo "$$file"; \
	done; \
	mvn --quiet --batch-mode --file flow-analysis/object-store.pom.xml $(SBOM_PLUGIN):makeBom \
	  -DoutputFormat=json -DoutputName=isthmus-flows-jars.cdx -DoutputDirectory="$$PWD/sbom" -DincludeBomSerialNumber=false; \
	echo sbom/isthmus-flows-jars.cdx.json

.PHONY: clean
clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name node_modules -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
