# SPDX-License-Identifier: GPL-2.0
#
# make help lists what there is. The module itself is described to Kbuild by Kbuild and src/Kbuild.

# A kernel of one's own: its build tree, and its source where that is another directory.
# Without KDIR the module is built for the lab's stock kernel, with the lab's compilers.
KDIR ?=
KSRC ?=
# Everything that is generated goes here, never beside the sources.
MO ?= $(CURDIR)/build
DESTDIR ?=
INSTALL_MOD_PATH ?= $(DESTDIR)

lab := scripts/lab

.PHONY: modules clippy doc rust-analyzer install modules_install
.PHONY: lint format test test-long demo bench clean help
modules:

ifneq ($(KDIR),)

# One sentence if no Rust module can be built against KDIR; else the compilers it wants.
kbuild = toolchain=$$(scripts/kernel-toolchain $(KDIR)) && \
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(abspath $(MO)) $$toolchain

modules: | $(MO)
	+@$(kbuild) modules

# Headers lack the kernel's .clippy.toml.
clippy: | $(MO)
	+@$(kbuild) CLIPPY=1 $(if $(KSRC),CLIPPY_CONF_DIR=$(KSRC)) MO=$(abspath $(MO))/clippy modules

# Headers lack what makes it: the source has it. An editor looks for it at the top of the tree,
# and wants to know where the bindings are; the lab's root is elsewhere for it.
rust-analyzer: modules
	+@$(kbuild) $(if $(KSRC),-C $(KSRC) O=$(KDIR)) rust-analyzer
	@sed -e 's|"\.\.[^"]*/src/\([^"]*\.rs"\)|"src/\1|' \
		-e 's|"RUST_MODFILE": |"XRC_RCV_OUT": "$(abspath $(MO))/src", &|' \
		-e 's|"/usr\([/"]\)|"$(LAB_ROOT)/usr\1|g' $(MO)/rust-project.json >rust-project.json

doc: modules
	+@scripts/rustdoc $(KDIR) $(abspath $(MO))

# Headers have no key to sign with, and no System.map, without which Kbuild leaves depmod out.
modules_install: modules
	+@$(kbuild) INSTALL_MOD_PATH=$(INSTALL_MOD_PATH) \
		$(if $(wildcard $(KDIR)/certs/signing_key.pem),,CONFIG_MODULE_SIG_ALL=) modules_install
	$(if $(INSTALL_MOD_PATH),,depmod $$(cat $(KDIR)/include/config/kernel.release))

install: modules_install
	install -D -m 644 src/ib_xrc_rcv.conf $(DESTDIR)/etc/modprobe.d/ib_xrc_rcv.conf
	install -D -m 644 src/include/uapi/rdma/ib_xrc_rcv.h $(DESTDIR)/usr/include/rdma/ib_xrc_rcv.h
	@echo "Installed. Reboot, or unload ib_uverbs and load it again, so that ib_xrc_rcv comes first."

$(MO):
	@mkdir -p $@

else

# The same, in the lab's root, which MO may be outside of.
modules clippy doc rust-analyzer:
	+@mkdir -p $(MO) && env=$$($(lab) env) && eval "$$env" && LAB_BIND=$(abspath $(MO)) $(lab) exec -- $(MAKE) --no-print-directory KDIR=$$KDIR KSRC=$$KSRC LAB_ROOT=$$LAB_ROOT MO=$(abspath $(MO)) $@

install modules_install:
	@echo "Give the kernel to install for: make KDIR=/lib/modules/\$$(uname -r)/build $@" >&2; exit 1

endif

lint:
	@scripts/lint

format:
	@scripts/lint --fix

test:
	@scripts/test

test-long:
	@scripts/test --long

demo:
	@scripts/demo

bench:
	@scripts/bench

clean:
	rm -rf $(MO) rust-project.json
	$(lab) clean

help:
	@echo 'For everybody:'
	@echo '  make demo            boot a guest and watch a receive QP outlive its creator (half a minute; 5 minutes the first time)'
	@echo '  make test            build and test everything in guests; ends with "N passed, N failed"'
	@echo '  make bench           measure against mainline in the same run'
	@echo '  scripts/lab shell    a prompt in a guest with the module loaded (scripts/lab help)'
	@echo
	@echo 'The module:'
	@echo "  make                 build/ib_xrc_rcv.ko for the lab's stock kernel"
	@echo '  make KDIR=DIR        for a kernel of your own (7.2 or later, with its Rust metadata)'
	@echo '  make KDIR=DIR install   install it, its modprobe.d file and its uapi header (DESTDIR=)'
	@echo '  make doc             rustdoc of the module in build/doc'
	@echo '  make rust-analyzer   rust-project.json for editors'
	@echo
	@echo 'For those who change it:'
	@echo '  make lint            rustfmt, clippy, checkpatch, shellcheck; make format mends what can be'
	@echo '  make test-long       the tests that take longer (an hour)'
	@echo "  make clean           forget what was built from this tree ('scripts/lab clean all': the cache too)"
