# Every chore of the project. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Build results stay between checkouts if CARGO_TARGET_DIR points outside.
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/target)
# `fast-build` is for trying and testing. `make install` and `make bench` use `release`, optimized in full.
PROFILE ?= fast-build
FLAME := $(TARGET)/$(PROFILE)/flame
MODULES := $(TARGET)/$(PROFILE)/modules
RELEASED := FLAME=$(TARGET)/release/flame FLAME_MODULES=$(TARGET)/release/modules
FLEET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/fleet/target)/$(PROFILE)/flame-fleet
VENV := $(TARGET)/venv
TESTED := $(TARGET)/test-cache
# A command that was built in another checkout with the same build results looks for the SDKs there.
export FLAME_SDK := $(CURDIR)/sdk
# What is installed states its commit. A build to try does not: each commit would build the command again.
ifeq ($(PROFILE),release)
export FLAME_COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null)
endif
export PATH := $(HOME)/.cargo/bin:$(PATH)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## Install what is missing: system packages, Rust, the wasm32 target
	@scripts/setup.sh

build: setup ## Build the command and the standard modules; PROFILE=release to optimize in full
	@cargo build --profile $(PROFILE) -p flame
	@# By itself, so that no feature of other packages brings the compiler into it.
	@cargo build --profile $(PROFILE) -p flame-runner
	@$(MAKE) -s -j$$(nproc) --no-print-directory $(patsubst modules/%/,$(MODULES)/%.wasm,$(wildcard modules/*/))

demo: build ## Run the standard modules over the recorded capture
	@scripts/demo.sh $(FLAME)

test: build $(VENV)/ready ## Run every test; PROFILE=release to test what is installed
	@# A cache of their own: what a user's run or an earlier test recorded of a module does not change results.
	@rm -f $(TESTED)/flame/*-violated-*
	@FLAME=$(FLAME) FLAME_MODULES=$(MODULES) XDG_CACHE_HOME=$(TESTED) FLAME_PYTHON=$(VENV)/bin/python \
	  cargo test --profile $(PROFILE) --workspace --no-fail-fast

fleet: build ## Build the program of a fleet's commands too, with its query engine, beside the command
	@cd fleet && cargo build --profile $(PROFILE) -p flame-fleet
	@[ $(FLEET) -ef $(dir $(FLAME))flame-fleet ] || cp $(FLEET) $(dir $(FLAME))

fleet-demo: fleet $(VENV)/ready ## Run three nodes, agents, a server and an archive, and query it
	@NATS_SERVER=$${NATS_SERVER:-$(VENV)/bin/nats-server} scripts/fleet-demo.sh $(FLAME) $(MODULES)

test-fleet: build $(VENV)/ready ## Test the fleet, a workspace of its own; SEEDS=n for n times as many runs of its simulation
	@cd fleet && cargo fmt --check && cargo clippy --profile $(PROFILE) --workspace --all-targets -- -D warnings
	@cd fleet && RUSTDOCFLAGS="-D warnings" cargo doc --profile $(PROFILE) --no-deps --workspace
	@cd fleet && NATS_SERVER=$${NATS_SERVER:-$(VENV)/bin/nats-server} FLAME_SEEDS=$(or $(SEEDS),1) \
	  FLAME=$(FLAME) FLAME_MODULES=$(MODULES) \
	  cargo test --profile $(PROFILE) --workspace --no-fail-fast

active-demo: build ## Run three active nodes in namespaces, and ping and trace across them; needs root
	@scripts/active-demo.sh $(FLAME)

python: $(VENV)/ready ## Install the Python packages of the tests

$(VENV)/ready: tests/requirements.txt
	@echo "setup: Python packages of tests/requirements.txt into $(VENV)"
	@python3 -m venv $(VENV) && $(VENV)/bin/pip install -q --no-compile -r tests/requirements.txt && touch $@

release: ## Build the command and the standard modules as they are installed
	@$(MAKE) -s --no-print-directory build PROFILE=release

bench: release ## Measure against native code and rivals; TRACE=file to choose the trace
	@scripts/setup.sh bench
	@$(RELEASED) cargo run -q --release -p flame-bench -- --json $(TARGET)/bench.json $(if $(TRACE),--trace $(TRACE))
	@echo "also in $(TARGET)/bench.json"

six: ## Compare the six modules that read protocols with flow alone on TRACE, in processor time
	@FLAME=$(FLAME) FLAME_MODULES=$(MODULES) scripts/six.py $(TRACE)

experiments: release ## Measure figures of the papers, with tables and plots (as root); ONLY=name for one
	@$(RELEASED) cargo run -q --release -p flame-bench -- --experiments $(TARGET)/experiments $(if $(ONLY),--only $(ONLY))

paper: release ## Measure what the papers did, and write it beside their figures (as root); QUICK=1 only shows that it runs
	@$(RELEASED) cargo run -q --release -p flame-bench -- --paper $(TARGET)/paper $(if $(QUICK),--quick) \
	  $(if $(ONLY),--only $(ONLY))

fuzz: ## Fuzz every parser for SECONDS each (needs nightly and cargo-fuzz)
	@fuzz/run.sh $(or $(SECONDS_EACH),60)

soak: ## Hold bounds and counters against Wasmtime's meter: 30 million calls of generated modules; PROGRAMS=n for fewer
	@FLAME_PROGRAMS=$(or $(PROGRAMS),8000) FLAME_ARGUMENTS=2000 FLAME_THREADS=$$(nproc) cargo test --profile $(PROFILE) -p flame-bounds --test all -- oracle:: --nocapture
	@FLAME_PROGRAMS=$(or $(PROGRAMS),60000) FLAME_ARGUMENTS=40 cargo test --profile $(PROFILE) -p flame-bounds --test all -- bounds:: --nocapture
	@FLAME_PROGRAMS=$(or $(SMITH_MODULES),60000) FLAME_ARGUMENTS=8 cargo test --profile $(PROFILE) -p flame-bounds --test all -- smith:: --nocapture

soak-node: build ## Change a node's modules at random for SOAK_SECONDS, hostile ones among them, and kill it: no leak, no crash
	@FLAME=$(FLAME) FLAME_MODULES=$(MODULES) FLAME_SOAK_SECONDS=$(or $(SOAK_SECONDS),3600) cargo test --profile $(PROFILE) -p flame --test all -- node_soak:: --nocapture

walls: build ## Try each module that takes too much beside count on a virtual link: bounded and metered, with and without priorities
	@FLAME=$(FLAME) FLAME_MODULES=$(MODULES) FLAME_WALLS=1 cargo test --profile $(PROFILE) -p flame --test alone -- stalls:: --nocapture

prove: ## Prove the rules that bounds rest on, by z3
	@scripts/setup.sh prove
	@crates/control/verify/prove/run.sh

mutants: ## Change the rewriter's code and see which changes no test notices (cargo install cargo-mutants); FILE=path for one file
	@FLAME_PROGRAMS=$(or $(PROGRAMS),400) cargo mutants --in-place $(if $(FILE),--file $(FILE)) --output $(TARGET)

mutants-checker: ## Change the checker of bounds and see which changes no test notices
	@FLAME_PROGRAMS=$(or $(PROGRAMS),400) cargo mutants --no-config --in-place --profile fast-build --timeout 60 -p flame-verify $(if $(FILE),--file $(FILE)) --output $(TARGET)

lint: ## rustfmt, clippy
	@cargo fmt --check && cargo clippy --profile $(PROFILE) --workspace --all-targets -- -D warnings

doc: ## Build the documentation of the crates; warnings are errors
	@# Private items are documented, so links to them resolve.
	@RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --profile $(PROFILE) --no-deps --workspace --document-private-items

deny: ## Check licences and advisories of dependencies (cargo install cargo-deny)
	@cargo deny --workspace check
	@cd fleet && cargo deny --config ../deny.toml check
	@cd tests/foreign && cargo deny --config ../../deny.toml check licenses bans sources

# Where `make install` puts things: below DESTDIR, which a package's builder sets, as the tree of PREFIX.
PREFIX ?= /usr/local
DESTDIR ?=
BUILT := $(TARGET)/release
PLACE := $(DESTDIR)$(PREFIX)
SHARED := $(PLACE)/share
# Debian's zsh looks for functions of packages in a folder of its own.
ZSH := $(SHARED)/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)

install: release ## Install to PREFIX (default /usr/local)
	@$(MAKE) -s --no-print-directory place

place: # Copies what is built in BUILT
	install -D -t $(PLACE)/bin $(BUILT)/flame $(BUILT)/flame-runner
	mkdir -p $(SHARED)/flame/modules $(SHARED)/flame/sdk $(SHARED)/bash-completion/completions
	mkdir -p $(ZSH) $(SHARED)/fish/vendor_completions.d
	$(BUILT)/flame help --man $(SHARED)/man/man1
	$(BUILT)/flame completions bash > $(SHARED)/bash-completion/completions/flame
	$(BUILT)/flame completions zsh > $(ZSH)/_flame
	$(BUILT)/flame completions fish > $(SHARED)/fish/vendor_completions.d/flame.fish
	install -m 644 -t $(SHARED)/flame/modules $(BUILT)/modules/*.wasm
	cp -r sdk/c sdk/rust sdk/rust-macros crates/contract/abi $(SHARED)/flame/sdk/
	install -D -m 644 -t $(PLACE)/lib/systemd/system packaging/flame-node.service packaging/flame-node.socket
	sed -i 's|/usr/local/bin/|$(PREFIX)/bin/|' $(PLACE)/lib/systemd/system/flame-node.service
	@# The SDK's crates are members of a workspace there too.
	sed -e 's/^members = .*/members = ["abi", "rust", "rust-macros"]/' -e '/^exclude = /d' -e 's|"crates/contract/abi"|"abi"|' \
	  -e 's|"sdk/|"|' Cargo.toml > $(SHARED)/flame/sdk/Cargo.toml

# The package of Debian 12.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
DEB ?= $(TARGET)/flame_$(VERSION)-1_amd64.deb

deb: release ## Make the Debian package DEB
	@$(MAKE) -s --no-print-directory package

package: # Makes the package of what is built in BUILT
	@rm -rf $(TARGET)/deb
	@$(MAKE) -s --no-print-directory place DESTDIR=$(TARGET)/deb PREFIX=/usr > $(TARGET)/deb.log
	@scripts/deb.sh $(TARGET)/deb $(VERSION)-1 $(DEB)

test-deb: ## Install, use, upgrade and purge the package DEB in a clean Debian root (as root; downloads it once)
	@scripts/test-deb.sh $(DEB) $(TARGET)/debian-root.tar

.PHONY: help setup build release six demo test fleet fleet-demo test-fleet python bench experiments paper fuzz soak soak-node prove mutants mutants-checker lint doc deny install place deb package test-deb walls active-demo

# A module is built again when its files, the SDKs or the command have changed.
.SECONDEXPANSION:
$(MODULES)/%.wasm: $(FLAME) $$(shell find modules/$$* sdk crates/contract/abi -type f)
	@$(FLAME) build modules/$* --output $(MODULES)
