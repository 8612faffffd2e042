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
# Examples that mypy reads.
EXAMPLES := movielens nextword clicks histories codesign fedrec dlrm heart cifar plan sequences
# A test run under a cap tests the kernels below the machine's best.
CAPS := avx2 portable
# NEON's kernels, on a machine without them: an emulator, and a linker for it.
ARM := aarch64-unknown-linux-gnu
NEON_ENV := HUSHTABLE_NEEDS_NEON=1 CARGO_TARGET_DIR=target/neon \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# What browsers run, and whether Rust has its library for it.
WASM := wasm32-unknown-unknown
HAS_WASM = [ -d "$$(rustc --print target-libdir --target $(WASM) 2>/dev/null)" ]
# What `make wheel` builds for: `make wheel WHEELS=x86_64`.
WHEELS ?= x86_64 aarch64
# The system's certificates, as pip takes them.
UV = UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 $(BIN)/uv pip install --quiet
WHEEL_TOOLS := ziglang==0.17.1 auditwheel==6.8.2
# One build for the demo, the lint and every test, in target/debug. Cargo takes features of all packages that a
# command selects, so each command selects all: else what they share would be compiled anew for each.
EVERYTHING := --workspace --lib --bins --example serve_bundle
TESTS := --workspace --tests
# What the laboratory measures with. Every build of a checkout has it; no wheel does, and `unmeasured` checks that.
MEASURED := --features hushtable-python/bench
export CARGO_INCREMENTAL ?= 0
export PYO3_PYTHON ?= $(shell command -v $(PYTHON))
export PYO3_BUILD_EXTENSION_MODULE := 1
# A test run starts a thousand Pythons. Each would compile numpy anew where the environment says that no bytecode is written.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/target/pycache
# What `make test` sets: tests are compiled while the module's last crates keep one core.
WITH_TESTS ?=
# How long `make fuzz` runs each decoder; 600 for the long run.
FUZZ_SECONDS ?= 60
# `make test CHANGED=1`: the tests of what differs from main, and of what depends on it. FILTER, PART: some of Rust's.
CHANGED ?=
FILTER ?=
PART ?=
# Every test of Rust runs through it; it fails those that leave a process or a file behind.
RUNNER := CARGO_TARGET_$(shell rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER=$(CURDIR)/target/debug/alone
# etcd: a root counter's races are real ones. NVRTC by its wheel: every kernel compiles on every machine.
NEXTEST = mkdir -p target/reports && HUSHTABLE_NEEDS_ETCD=1 HUSHTABLE_NEEDS_NVRTC=1 \
    HUSHTABLE_NVRTC=$$(echo $(CURDIR)/$(VENV)/lib/python*/site-packages/nvidia/cu13/lib) $(RUNNER) \
    $(BIN)/cargo-nextest nextest run $(TESTS) $(MEASURED)
# Tests run on all cores: idle threads of BLAS, which wait by turning, would take time from them.
PYTEST = mkdir -p target/reports && OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

.NOTPARALLEL:
.PHONY: help setup optimised test-notebooks kube valgrind etcd wasm unmeasured stub wasm-target demo test test-rest test-all test-rust test-doc test-soak test-timing test-held test-shipped \
    test-oblivious test-caps test-python test-torch test-neon test-nightly qemu wheel wheel-tools release lint bench evidence gpu \
    docs docs-first site notebooks stress fuzz clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.installed valgrind etcd ## A virtual environment with hushtable built and installed in it

# Python's packages come while cargo compiles.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES) python/requirements-dev.txt
	@$(MAKE) --no-print-directory $(VENV)/.tools & tools=$$!; \
	echo "setup: compiling, and installing Python's packages"; \
	cargo build $(EVERYTHING) $(MEASURED) $(if $(WITH_TESTS),--tests) --quiet || { kill $$tools 2>/dev/null; exit 1; }; wait $$tools
	.ci/develop target/debug
	rm -f $(VENV)/.optimised $(VENV)/.held
	touch $@

$(VENV)/bin/python:
	@rust=$$(rustc --version 2>/dev/null | cut -d' ' -f2) || true; \
	    [ "$$(printf '%s\n' 1.95 "$${rust:-0}" | sort -V | head -n 1)" = 1.95 ] \
	    || { echo "hushtable needs Rust 1.95 or later, found $${rust:-none}: https://rustup.rs" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hushtable needs Python 3.11 or later; set PYTHON=" >&2; exit 1; }
	@rustup component add rustfmt clippy 2>/dev/null || true
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: python/requirements-dev.txt $(VENV)/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^uv==' $<)
	@$(UV) --python $(BIN)/python -r $<
	@touch $@

# What is measured is what is shipped: the release profile, without what only tests need, and what measures it.
optimised: $(VENV)/.optimised
$(VENV)/.optimised: $(VENV)/.tools $(SOURCES)
	$(BIN)/maturin develop --release --features bench --quiet
	.ci/develop
	rm -f $(VENV)/.installed $(VENV)/.held
	touch $@

# The kernels and the features of what is shipped, without the five minutes in which what surrounds them is optimised.
$(VENV)/.held: $(VENV)/bin/python $(SOURCES) .ci/held.toml
	@$(MAKE) --no-print-directory $(VENV)/.tools
	cargo build -p hushtable-python --lib --features bench --config .ci/held.toml --quiet
	.ci/develop target/debug
	rm -f $(VENV)/.installed $(VENV)/.optimised
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
	    "and apt-get); test-oblivious, and so test-all, will fail until it is: https://valgrind.org" >&2

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

test: ## Format, lints, every crate's tests, Python's, README and tutorial (CHANGED=1: of what differs from main)
	@CHANGED=$(CHANGED) WITH_TESTS=$(if $(CHANGED),,1) .ci/timed setup lint test-rust docs-first test-python

test-rest: ## What test-all runs beside test
	@.ci/timed --beside wasm unmeasured stub test-oblivious test-timing test-caps $(if $(shell command -v qemu-aarch64),test-neon) \
	    test-soak test-doc docs test-notebooks test-torch test-held

test-all: test test-rest ## Everything that CI runs: test, then browsers, valgrind, timing, caps, NEON, soaks, all pages, torch

test-rust: setup
	@code=0; $(NEXTEST) $(if $(CHANGED),--filterset "$$(.ci/changed rust)") $(if $(FILTER),--filterset '$(FILTER)') \
	    $(if $(PART),--partition $(PART)) --no-tests pass || code=$$?; \
	    cp target/nextest/default/junit.xml target/reports/rust.xml; exit $$code

# In their short form; one after the other, as they count, and take servers down.
test-soak: setup ## Servers that are killed and drained, and what a thousand clients leave
	@code=0; $(NEXTEST) --profile rest || code=$$?; cp target/nextest/rest/junit.xml target/reports/soak.xml; exit $$code

test-doc: setup ## rustdoc, and the examples in it
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude hushtable-python --features hushtable-infer/bench,hushtable-oram/bench --no-deps --quiet
	cargo test --workspace $(MEASURED) --quiet --doc

test-notebooks: setup
	@$(PYTEST) -n 2 --dist loadfile -m rest --junitxml target/reports/notebooks.xml python/tests lab/tests examples/tests

# As it is shipped: an optimiser may make a branch of a mask at one level and not at another.
test-timing: setup
	cargo test --release --quiet -p hushtable-pir -p hushtable-ring -p hushtable-rlwe --lib timing::
	cargo test --release --quiet -p hushtable-pir -p hushtable-ring -p hushtable-rlwe --lib _time::

# Predictions held against what is measured, alone, and what must not be among the features of what is shipped.
test-held: $(VENV)/.held
	@$(PYTEST) -m "timed or shipped" --junitxml target/reports/held.xml python/tests lab/tests examples/tests

test-shipped: optimised ## The same on the release profile, which takes five minutes to build
	@$(PYTEST) -m "timed or shipped" --junitxml target/reports/shipped.xml python/tests lab/tests examples/tests

# The optimised code under valgrind, with all that is secret marked as undefined; and the divisions of
# what a client runs.
test-oblivious: setup
	HUSHTABLE_NEEDS_VALGRIND=1 cargo test --release --quiet -p hushtable-mpc -p hushtable-oram -p hushtable-pir --test ctgrind

# What asks a system for files, sockets or entropy by itself does not compile there. The standard library's own
# sockets, threads and clocks do, and fail when they are used: that clients have none is not shown by this.
wasm: wasm-target ## Checks that clients build for browsers
	@if $(HAS_WASM); then cargo check --quiet --target $(WASM) -p hushtable-client -p hushtable-pir; \
	    else echo "wasm: skipped, for Rust's library for $(WASM) is not there"; fi

# A module for it alone: what pyo3 says of it takes every other build time.
stub: setup ## Checks the native module's stub; WRITE=1 writes it
	cargo build $(EVERYTHING) $(MEASURED) --features hushtable-python/stub --quiet
	.ci/stub target/debug/lib_native.so $(if $(WRITE),,--check)

# What wheels are made of, which no other command here compiles: no example or test brings features along.
unmeasured: ## Checks the crates as they are shipped, without what measures them
	cargo clippy --workspace --lib --bins --quiet -- -D warnings

# As what setup installs: who has no network, or no rustup, goes on without.
wasm-target:
	@if $(HAS_WASM); then exit 0; fi; \
	if command -v rustup >/dev/null; then \
	    echo "wasm: installing Rust's library for $(WASM)"; \
	    rustup target add $(WASM) >/dev/null 2>&1 || true; \
	fi; \
	$(HAS_WASM) || echo "wasm: Rust's library for $(WASM) is missing and could not be installed (that takes rustup and" \
	    "the network): https://rustup.rs" >&2

kube: setup ## The Helm chart, rendered and held against Kubernetes' schemas; builds helm once, 150 s
	HUSHTABLE_NEEDS_KUBE=1 .ci/kube
	.ci/image

test-caps: setup ## The kernels below the machine's best: CAPS="avx2 portable"
	@$(RUNNER) .ci/capped $(CAPS) -- $(BIN)/cargo-nextest nextest run $(TESTS) $(MEASURED) --profile caps

# Of two cores: a third of them waits for servers and commands.
test-python: setup
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not timed and not shipped and not rest" --junitxml target/reports/python.xml \
	    $(if $(CHANGED),$$(.ci/changed python),python/tests lab/tests examples/tests)

# torch brings 5 GB of libraries for GPUs along, so it has an environment of its own; uv links what its cache keeps.
$(TORCH)/.installed: python/requirements-torch.txt $(VENV)/.tools
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(UV) --python $(TORCH)/bin/python -r $<
	printf '%s\n' $(CURDIR)/python $(CURDIR)/lab > $$(echo $(TORCH)/lib/python*/site-packages)/hushtable.pth
	touch $@

test-torch: setup $(TORCH)/.installed ## The layers under torch: compiled, exported, traced, copied, their gradients
	mkdir -p target/reports
	$(TORCH)/bin/python -m pytest -n 2 --dist loadfile --junitxml target/reports/torch.xml python/tests/test_torch.py python/tests/test_privatize.py python/tests/test_nn.py python/tests/test_nn_models.py python/tests/test_nn_trips.py python/tests/test_nn_ahead.py python/tests/test_torchao.py python/tests/test_nn_private_model.py python/tests/test_networks_torch.py python/tests/test_networks_torch_operators.py python/tests/test_networks_torch_random.py python/tests/test_infer_check_torch.py examples/tests/test_dlrm_encrypted.py 'examples/tests/test_notebooks.py::test_a_notebook_runs[private-layers]'

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
test-nightly: test-shipped setup test-neon ## What takes too long for `make test`: 30,000 lookups of 3,000 clients, drains, kills, NEON
	HUSHTABLE_SCALE_LONG=1 $(BIN)/python -m pytest python/tests/test_cluster_ray.py python/tests/test_cluster_real.py python/tests/test_scale_ray.py
	HUSHTABLE_SCALE_LONG=1 HUSHTABLE_SOAK_LONG=1 $(BIN)/python -m pytest python/tests/test_networks_onnx_random.py python/tests/test_networks_keras.py
	@$(MAKE) --no-print-directory $(TORCH)/.installed
	HUSHTABLE_SCALE_LONG=1 $(TORCH)/bin/python -m pytest python/tests/test_networks_torch_random.py
	cargo build --release $(EVERYTHING) $(MEASURED) --quiet
	HUSHTABLE_SOAK_LONG=1 $(NEXTEST) --release --profile nightly

lint: setup ## rustfmt, clippy, ruff, mypy
	@cargo fmt --all --check
	@$(BIN)/ruff check --quiet python lab examples bench docs .ci/release README.md
	@$(BIN)/ruff format --quiet --check python lab examples bench docs .ci/release README.md
	@$(BIN)/mypy -p hushtable -p hushtable_lab $(EXAMPLES:%=-p examples.%) & types=$$!; \
	cargo clippy --workspace --all-targets $(MEASURED) --quiet -- -D warnings || { wait $$types; exit 1; }; wait $$types

bench: optimised ## The figures of docs/figures.md, into bench/results
	$(BIN)/python bench/run.py
	$(BIN)/python bench/figures.py

evidence: optimised ## What the papers show, repeated: under 30 minutes; writes docs/evidence.md
	$(BIN)/python bench/evidence.py --measure

# zig links against the C library of manylinux_2_28 whatever this machine has; abi3: one wheel for Python 3.11 and later.
wheel: wheel-tools ## Source distribution and wheels for Linux (manylinux_2_28) on x86-64 and arm64, into dist/
	$(BIN)/python .ci/release wheels --cpus '$(WHEELS)'

# VERSION=0.2.0 commits the version and the changelog's section unless they are there; SIGN_KEY=FILE signs; docs/releasing.md.
release: wheel-tools ## Everything of a release up to the upload, into dist/: VERSION=0.2.0 [SIGN_KEY=~/.ssh/id_ed25519]
	@$(BIN)/python .ci/release release '$(VERSION)' --cpus '$(WHEELS)' $(if $(SIGN_KEY),--sign '$(SIGN_KEY)')

wheel-tools: $(VENV)/.tools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(WHEEL_TOOLS)

gpu: optimised ## On a machine with a GPU: correctness, then the paper's tables and figures
	$(BIN)/python bench/gpu.py --plots docs/plots

docs-first: setup ## Runs what README.md and the tutorial show
	$(BIN)/python docs/run.py README.md docs/tutorial.md

docs: setup site ## Runs what all pages show
	$(BIN)/python docs/run.py

# Strictly: a link that leads nowhere, or a docstring that names what is not there, fails it.
site: setup ## The pages and the reference of the package as a site, into site/
	NO_MKDOCS_2_WARNING=1 PYTHONWARNINGS=ignore::DeprecationWarning $(BIN)/mkdocs build --strict --quiet

notebooks: setup ## Runs examples/notebooks and keeps what they print; test-notebooks runs them too
	$(BIN)/python -m examples.notebooks.run

stress: setup ## The tests of `make test` ten times on a busy machine; says what failed
	.ci/stress 10

fuzz: ## Every decoder for 60 s (FUZZ_SECONDS=600: the long run); needs nightly and cargo-fuzz
	fuzz/run $(FUZZ_SECONDS)

clean: ## Forget the environment and what was built
	rm -rf $(VENV) $(TORCH) target
