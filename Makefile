# The commands of this project. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
INSTALL ?= install
STRIP ?= strip
TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET)/release/systx
LIBRARY := $(TARGET)/library/libsystx.a

.DEFAULT_GOAL := build
.PHONY: build help test quick lint oldest nightly deps demo bench long vm install uninstall clean

build: ## build the program systx, and libsystx for C (release)
	CARGO='$(CARGO)' bash scripts/build.sh
	@touch '$(PROGRAM)'
	CARGO='$(CARGO)' bash scripts/library.sh

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

test: ## format, lints and all short tests; installs missing Debian packages when root. What CI runs
	bash scripts/test.sh

quick: ## the tests beside the code, without the long ones: under a minute after a build, no root
	bash scripts/quick.sh

lint: ## format and lints only
	bash scripts/test.sh lint

oldest: ## the oldest Rust that is supported compiles everything, tests included (fetches it, where rustup can)
	bash scripts/oldest.sh

nightly: ## make test with new seeds
	SYSTX_NIGHT=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') bash scripts/test.sh

deps: ## install the Debian packages that tests and demo use
	bash scripts/deps.sh

demo: ## four transactions on a scratch file system: committed, aborted, in conflict, killed and recovered (root)
	bash demo/run.sh

bench: ## measure, against the plain program in the same run
	bash scripts/bench.sh
	bash scripts/workloads.sh

long: ## the test suites with larger bounds: much longer (docs/testing.md)
	bash scripts/long.sh

vm: ## tests, power cuts, reboots and other kernels in virtual machines with stock Debian kernels (docs/testing.md)
	bash scripts/vm/lives.sh
	bash scripts/vm/systemd.sh
	bash scripts/vm/power.sh
	bash scripts/vm.sh

# Root needs no cargo for a program that is there and newer than its sources.
$(PROGRAM): $(shell find crates/systx-cli/src crates/systx-places/src crates/systx-os/src crates/systx-engine/src crates/systx-view/src -name '*.rs') Cargo.lock
	@command -v '$(CARGO)' >/dev/null || { echo '$@ is not there or older than its sources: run make first, as the user who has cargo' >&2; exit 1; }
	CARGO='$(CARGO)' bash scripts/build.sh
	@touch '$@'

$(LIBRARY): $(shell find crates/systx-c/src crates/systx/src crates/systx-places/src crates/systx-os/src crates/systx-engine/src -name '*.rs') crates/systx-c/systx.map Cargo.lock
	@command -v '$(CARGO)' >/dev/null || { echo '$@ is not there or older than its sources: run make first, as the user who has cargo' >&2; exit 1; }
	CARGO='$(CARGO)' bash scripts/library.sh

install: $(PROGRAM) $(LIBRARY) ## install below PREFIX (default /usr/local); honours DESTDIR
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/doc/systx'
	$(INSTALL) -m 755 '$(PROGRAM)' '$(DESTDIR)$(PREFIX)/bin/systx'
	@# Without names of lines and variables it is 6 MB instead of 40; functions keep theirs, for backtraces.
	@-$(STRIP) --strip-debug '$(DESTDIR)$(PREFIX)/bin/systx'
	$(INSTALL) -m 644 README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE docs/*.md \
	    '$(DESTDIR)$(PREFIX)/share/doc/systx'
	'$(PROGRAM)' manuals '$(DESTDIR)$(PREFIX)/share/man/man1'
	for to in bash:bash-completion/completions/systx zsh:zsh/site-functions/_systx \
	    fish:fish/vendor_completions.d/systx.fish; do \
	    file='$(DESTDIR)$(PREFIX)/share/'"$${to#*:}"; $(INSTALL) -d "$$(dirname "$$file")" && \
	    '$(PROGRAM)' completions "$${to%%:*}" > "$$file" || exit 1; done
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(PREFIX)/lib/pkgconfig' '$(DESTDIR)$(PREFIX)/share/man/man3'
	$(INSTALL) -m 644 crates/systx-c/include/systx.h '$(DESTDIR)$(PREFIX)/include'
	$(INSTALL) -m 644 '$(LIBRARY)' '$(DESTDIR)$(PREFIX)/lib'
	cp -Pf $(TARGET)/library/libsystx.so* '$(DESTDIR)$(PREFIX)/lib'
	bash scripts/library.sh pc '$(PREFIX)' > '$(DESTDIR)$(PREFIX)/lib/pkgconfig/systx.pc'
	@# Each function is found by its name, too.
	for page in crates/systx-c/man/*.3; do to='$(DESTDIR)$(PREFIX)/share/man/man3'; \
	    $(INSTALL) -m 644 "$$page" "$$to" && for name in $$(sed -n 's/^\.Nm \([a-z0-9_]*\).*/\1/p' "$$page"); do \
	    [ "$$name.3" = "$${page##*/}" ] || ln -sf "$${page##*/}" "$$to/$$name.3"; done || exit 1; done

uninstall: ## remove what install wrote (hooks: `systx install-hooks --uninstall` first)
	rm -f '$(DESTDIR)$(PREFIX)/bin/systx'
	rm -rf '$(DESTDIR)$(PREFIX)/share/doc/systx'
	rm -f '$(DESTDIR)$(PREFIX)/include/systx.h' '$(DESTDIR)$(PREFIX)'/lib/libsystx.* \
	    '$(DESTDIR)$(PREFIX)/lib/pkgconfig/systx.pc' '$(DESTDIR)$(PREFIX)'/share/man/man3/systx*.3 \
	    '$(DESTDIR)$(PREFIX)'/share/man/man3/sys_x*.3
	rm -f '$(DESTDIR)$(PREFIX)/share/man/man1/systx.1' '$(DESTDIR)$(PREFIX)'/share/man/man1/systx-*.1 \
	    '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/systx' \
	    '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_systx' \
	    '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/systx.fish'

clean: ## remove what was built
	$(CARGO) clean
