# The only entry points. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := .venv-torch
# What `make demo` shows: two servers that do not collude, or `make demo SCHEME=onion`, one server.
SCHEME ?= pair
# Rust sources and manifests: what the native module is made of.
SOURCES := $(wildcard $(shell git ls-files Cargo.toml Cargo.lock pyproject.toml crates proto python/src python/Cargo.toml 2>/dev/null))
# A test run under a cap tests the kernels below the machine's best.
CAPS := avx2 portable
# NEON's kernels, on a machine without them: an emulator, and a linker for it.
ARM := aarch64-unknown-linux-gnu
NEON_ENV := HUSHTABLE_NEEDS_NEON=1 CARGO_TARGET_DIR=target/neon \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# What `make wheel` builds for: `make wheel WHEELS=x86_64`.
WHEELS ?= x86_64 aarch64
WHEEL_TOOLS := ziglang==0.17.1 auditwheel==6.8.2
# Tests that hold predictions against times they measure: alone, before the others share the cores.
TIMED := python/tests/test_tune_costs.py python/tests/test_sim_processor.py

.NOTPARALLEL:
.PHONY: help setup kube valgrind etcd demo test test-rust test-timing test-oblivious test-caps test-python test-torch test-neon test-nightly qemu wheel lint bench evidence gpu docs site notebooks fuzz clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.installed valgrind etcd ## A virtual environment with hushtable built and installed in it

$(VENV)/.tools: python/requirements-dev.txt
	@rust=$$(rustc --version 2>/dev/null | cut -d' ' -f2) || true; \
	    [ "$$(printf '%s\n' 1.95 "$${rust:-0}" | sort -V | head -n 1)" = 1.95 ] \
	    || { echo "hushtable needs Rust 1.95 or later, found $${rust:-none}: https://rustup.rs" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hushtable needs Python 3.11 or later; set PYTHON=" >&2; exit 1; }
	rustup component add rustfmt clippy 2>/dev/null || true
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r python/requirements-dev.txt
	touch $@

$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	$(BIN)/maturin develop --release --quiet
	touch $@

# What checks that the oblivious memory is oblivious. Nothing is built with it, so setup goes on without.
valgrind:
	@if command -v valgrind >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "setup: installing valgrind"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get install -qq -y valgrind >/dev/null 2>&1 \
	        || { apt-get update -qq && apt-get install -qq -y valgrind >/dev/null; } || true; \
	fi; \
	command -v valgrind >/dev/null || echo "setup: valgrind is missing and could not be installed (that takes root" \
	    "and apt-get); test-oblivious, and so test, will fail until it is: https://valgrind.org" >&2

# The service that a controller's root counter may be kept in. As above: setup goes on without.
etcd:
	@if command -v etcd >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "setup: installing etcd"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get install -qq -y etcd-server >/dev/null 2>&1 \
	        || { apt-get update -qq && apt-get install -qq -y etcd-server >/dev/null; } || true; \
	fi; \
	command -v etcd >/dev/null || echo "setup: etcd is missing and could not be installed (that takes root" \
	    "and apt-get); test-rust, and so test, will fail until it is: https://etcd.io" >&2

demo: setup ## Private recommendations, and nearest words, through real servers (SCHEME=pair or onion)
	$(BIN)/python -m examples.movielens --scheme $(SCHEME)

# Python's tests last, and outside: what CI prints ends with their summary.
test: ## Everything that CI runs
	@MAKE="$(MAKE)" .ci/timed setup lint test-rust test-timing test-oblivious test-caps docs test-torch
	@$(MAKE) --no-print-directory test-python

# NVRTC by its wheel: every kernel compiles on every machine. etcd: a root counter's races are real ones.
# Of the examples the one alone that tests start; the lint has compiled all.
test-rust: setup
	cargo build --workspace --exclude hushtable-python --quiet --example serve_bundle
	HUSHTABLE_NEEDS_ETCD=1 HUSHTABLE_NEEDS_NVRTC=1 HUSHTABLE_NVRTC=$$(echo $(CURDIR)/$(VENV)/lib/python*/site-packages/nvidia/cu13/lib) \
	cargo test --workspace --exclude hushtable-python --quiet --no-fail-fast --lib --bins --tests
	cargo test --workspace --exclude hushtable-python --quiet --doc

# As it is shipped: an optimiser may make a branch of a mask at one level and not at another.
test-timing: setup
	cargo test --release --quiet -p hushtable-pir --lib timing::
	cargo test --release --quiet -p hushtable-rlwe --lib encryption_time::

# The optimised code under valgrind, with all that is secret marked as undefined; and the divisions of
# what a client runs.
test-oblivious: setup
	HUSHTABLE_NEEDS_VALGRIND=1 cargo test --release --quiet -p hushtable-mpc -p hushtable-oram -p hushtable-pir --test ctgrind

kube: setup ## The Helm chart, rendered and held against Kubernetes' schemas; builds helm once, 150 s
	HUSHTABLE_NEEDS_KUBE=1 .ci/kube
	.ci/image

test-caps: setup
	@.ci/capped $(CAPS)

test-python: setup
	$(BIN)/python -m pytest $(TIMED)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(TIMED:%=--ignore=%) python/tests examples/tests

# torch brings 5 GB of libraries for GPUs along, so it has an environment of its own; a cache would keep them twice.
$(TORCH)/.installed: python/requirements-torch.txt
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir -r $<
	echo $(CURDIR)/python > $$(echo $(TORCH)/lib/python*/site-packages)/hushtable.pth
	touch $@

test-torch: setup $(TORCH)/.installed ## The layers under torch: compiled, exported, traced, copied, their gradients
	$(TORCH)/bin/python -m pytest -n 2 --dist loadfile python/tests/test_torch.py python/tests/test_nn.py python/tests/test_nn_models.py python/tests/test_nn_private_model.py

# Each NEON kernel against its specification, emulated; emulated time says nothing, so nothing is timed.
test-neon: qemu ## NEON's kernels against the portable ones, under qemu: four minutes, most of it to build
	rustup target add $(ARM)
	$(NEON_ENV) cargo test --quiet --target $(ARM) --lib --no-fail-fast -p hushtable-mpc -p hushtable-pir -p hushtable-prg -p hushtable-ring \
	    -- kernel aes lanes platform --skip timing::

qemu:
	@if command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing qemu-user and a compiler for aarch64"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    wanted="qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; \
	    apt-get install -qq -y $$wanted >/dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y $$wanted >/dev/null; }; \
	    exit; \
	fi; \
	echo "test-neon needs qemu-aarch64 and aarch64-linux-gnu-gcc: Debian has them as qemu-user and gcc-aarch64-linux-gnu" >&2; exit 1

# Optimised, as it is shipped; one test after the other, as each counts memory.
test-nightly: setup test-neon ## What takes too long for `make test`: 30,000 lookups of 3,000 clients, drains, kills, NEON
	cargo build --release --quiet -p hushtable-serve --example serve_bundle
	HUSHTABLE_SCALE_LONG=1 $(BIN)/python -m pytest python/tests/test_cluster_ray.py python/tests/test_cluster_real.py python/tests/test_scale_ray.py
	HUSHTABLE_SOAK_LONG=1 cargo test --release -p hushtable-serve --test soak --test soak_train --test soak_infer --test kills_train --test drains -- --nocapture --test-threads 1

lint: setup ## rustfmt, clippy, rustdoc, ruff, mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude hushtable-python --no-deps --quiet
	$(BIN)/ruff check python examples bench docs README.md
	$(BIN)/ruff format --check python examples bench docs README.md
	$(BIN)/mypy
	$(BIN)/mypy $(foreach example,movielens nextword clicks histories codesign fedrec dlrm heart cifar plan sequences,-p examples.$(example))

bench: setup ## The figures of the README, into bench/results
	$(BIN)/python bench/run.py
	$(BIN)/python bench/readme.py

evidence: setup ## What the papers show, repeated: under 30 minutes; writes docs/evidence.md
	$(BIN)/python bench/evidence.py --measure

# zig links against the C library of manylinux_2_28 whatever this machine has; abi3: one wheel for Python 3.11 and later.
wheel: $(VENV)/.tools ## Wheels for Linux (manylinux_2_28) on x86-64 and arm64, into dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(WHEEL_TOOLS)
	for cpu in $(WHEELS); do \
	    rustup target add $$cpu-unknown-linux-gnu; \
	    PATH=$(CURDIR)/$(BIN):$$PATH CARGO_TARGET_DIR=target/wheel maturin build --release --locked --zig \
	        --target $$cpu-unknown-linux-gnu --compatibility manylinux_2_28 --out dist; \
	done
	@for wheel in $(WHEELS:%=dist/*-manylinux_2_28_%.whl); do \
	    $(BIN)/auditwheel show $$wheel | tr '\n' ' ' | grep -q 'tag: "manylinux_2_28_' \
	        || { echo "$$wheel does not keep to manylinux_2_28" >&2; exit 1; }; \
	done
	for cpu in $(WHEELS); do .ci/wheel $$cpu $(BIN)/python; done

gpu: setup ## On a machine with a GPU: correctness, then the paper's tables and figures
	$(BIN)/python bench/gpu.py --plots docs/plots

docs: setup site ## Runs what README.md and docs/ show
	$(BIN)/python docs/run.py

# Strictly: a link that leads nowhere, or a docstring that names what is not there, fails it.
site: setup ## The pages and the reference of the package as a site, into site/
	NO_MKDOCS_2_WARNING=1 PYTHONWARNINGS=ignore::DeprecationWarning $(BIN)/mkdocs build --strict --quiet

notebooks: setup ## Runs examples/notebooks and keeps what they print; a test runs them too
	$(BIN)/python -m examples.notebooks.run

fuzz: ## Every decoder for 60 s; needs nightly and cargo-fuzz
	fuzz/run 60

clean: ## Forget the environment and what was built
	rm -rf $(VENV) $(TORCH) target
