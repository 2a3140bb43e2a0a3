# What a contributor and CI run. `make help` lists it.

CARGO ?= cargo
XTASK := $(CARGO) run --quiet --package xtask --
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

DEMO_DIR ?= demo
DEMO_SIZE ?= 1G
DEMO_ISCSI ?= 127.0.0.1:3260
DEMO_NVME ?= 127.0.0.1:4420

.DEFAULT_GOAL := help
.PHONY: help build run test test-all check bench fmt lint doc deny install clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## The optimised server
	$(CARGO) build --release --package longshore-cli

run: build ## Build, serve a 1 GiB thin demo volume on loopback, and print how to connect
	@mkdir -p $(DEMO_DIR)
	exec $(RELEASE)/longshore serve --print-connect --state-dir $(DEMO_DIR)/state \
	  --volume disk0,backend=file,path=$(DEMO_DIR)/disk0.img,size=$(DEMO_SIZE) \
	  --iscsi $(DEMO_ISCSI) --nvme $(DEMO_NVME)

# Built with the features of the whole workspace, as the tests are: what both need is built once.
XTASK_CI := $(CARGO) build --workspace --bin xtask && $(or $(CARGO_TARGET_DIR),target)/debug/xtask

# Without what speeds up later builds: it is more than everything else that is built together.
test: ## What decides a landing, under 20 minutes; installs missing Debian packages; needs 6 GB of disk
	export CARGO_INCREMENTAL=0; $(XTASK_CI) ci

test-all: ## Everything, long fuzzing and many seeds included: some hours, for each night
	export CARGO_INCREMENTAL=0; $(XTASK_CI) ci --all

# Of one crate without xtask, which would be built anew when a crate that it uses has changed.
PACKAGE = --package $(if $(filter longshore-% xtask,$(CRATE)),$(CRATE),longshore-$(CRATE))
check: ## For each step of the work: format, lints, quick tests; of one crate with CRATE=iscsi
ifdef CRATE
	$(CARGO) fmt $(PACKAGE) --check
	$(CARGO) clippy --quiet $(PACKAGE) --all-targets -- --deny warnings
	$(CARGO) test --quiet $(PACKAGE)
else
	$(XTASK_CI) check
endif

bench: ## Side by side with tgt, and the numbers to reach: IOPS and CPU per operation
	$(XTASK) bench

fmt: ## Format all code
	$(CARGO) fmt --all

lint: ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings

doc: ## The documentation of all crates, warnings denied
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --document-private-items

deny: ## Licences, advisories and sources of dependencies (needs cargo-deny)
	$(CARGO) deny --workspace check

PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
install: build ## Install the binary, manual pages, completions and units below PREFIX
	install -Dm755 $(RELEASE)/longshore $(DESTDIR)$(PREFIX)/bin/longshore
	$(RELEASE)/longshore manual --directory $(SHARE)/man
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(RELEASE)/longshore completions bash > $(SHARE)/bash-completion/completions/longshore
	$(RELEASE)/longshore completions zsh > $(SHARE)/zsh/site-functions/_longshore
	$(RELEASE)/longshore completions fish > $(SHARE)/fish/vendor_completions.d/longshore.fish
	install -Dm644 dist/longshore.toml $(SHARE)/doc/longshore/longshore.toml
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m644 dist/longshore.socket dist/longshore-nvme.socket $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|^ExecStart=[^ ]*|ExecStart=$(PREFIX)/bin/longshore|' dist/longshore.service \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/longshore.service

clean: ## Remove what was built; the demo volume stays
	$(CARGO) clean
