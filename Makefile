# SPDX-License-Identifier: GPL-2.0
#
# make help lists the targets. Kbuild and src/Kbuild describe the module.

# Your own kernel: its build tree, and its source where that is another directory.
# Without KDIR the module is built for the lab's stock kernel, with the lab's compilers.
KDIR ?=
KSRC ?=
# All generated files are below it, never beside the sources.
MO ?= $(CURDIR)/build
DESTDIR ?=
INSTALL_MOD_PATH ?= $(DESTDIR)
INSTALL_MOD_STRIP ?= 1
MODPROBEDIR ?= /usr/lib/modprobe.d
SBINDIR ?= /usr/sbin
MANDIR ?= /usr/share/man
DATADIR ?= /usr/share
# The places where shells look for completions of xrc-rcv-module.
completions := bash:bash-completion/completions/xrc-rcv-module zsh:zsh/site-functions/_xrc-rcv-module \
	fish:fish/vendor_completions.d/xrc-rcv-module.fish

# make and Kbuild cannot quote a path: one with white space would become two, and one of them may be
# a directory that has nothing to do with the project. The scripts of these targets mount the
# checkout at a plain path.
anywhere := test test-long release-check demo demo-restart demo-cluster bench lint format help
# The characters are written here, in user/Makefile and in scripts/plain-path: at a path with one of
# them, make cannot include a file either. qemu/tests/lab/plain-paths tries each with all three.
special := ! " \# $$ % & ' ( ) * , : ; < = > ? [ \ ] ^ ` { | }
plain = $(and $(filter 1,$(words x$(1)x)),$(if $(strip $(foreach each,$(special),$(findstring $(each),$(1)))),,y))
paths := $(if $(filter-out $(anywhere),$(or $(MAKECMDGOALS),modules)),\
	CURDIR KDIR KSRC MO DESTDIR INSTALL_MOD_PATH MODPROBEDIR SBINDIR MANDIR DATADIR)
$(foreach path,$(paths),$(if $(call plain,$($(path))),,\
	$(error ib_xrc_rcv: the path '$($(path))'$(if $(filter CURDIR,$(path)),, in $(path)) has white space or a special character, which make and Kbuild cannot handle; use a directory whose path has letters, digits and + - . @ _ ~ only)))

# Of guests, and of a module without KDIR; not that of the environment, which is for kernels.
ifeq ($(origin ARCH),command line)
export LAB_ARCH := $(ARCH)
endif

lab := scripts/lab
# A checkout can be read-only.
made = { mkdir -p $(1) 2>/dev/null || { echo "ib_xrc_rcv: $(1) cannot be made; MO= names another directory" >&2; exit 1; }; }

.PHONY: modules clippy doc rust-analyzer install modules_install tool_install dkms_install uninstall
.PHONY: htmldocs lint format test test-long release-check fuzz test-clients demo demo-restart demo-cluster bench deb rpm clean help
modules:

ifneq ($(KDIR),)

# Prints one sentence if no Rust module can be built against KDIR; otherwise the compilers to use.
kbuild = toolchain=$$(scripts/kernel-toolchain $(KDIR)) && \
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(abspath $(MO)) $$toolchain

modules: | $(MO)/.made
	+@$(kbuild) modules

# Headers lack the kernel's .clippy.toml.
clippy: | $(MO)/.made
	+@$(kbuild) CLIPPY=1 $(if $(KSRC),CLIPPY_CONF_DIR=$(KSRC)) MO=$(abspath $(MO))/clippy modules

# Headers lack the script for it: the source has it. An editor looks for its output at the top of
# the tree, and needs the directory of the bindings, and the lab's root at its path outside it.
rust-analyzer: modules
	+@$(kbuild) $(if $(KSRC),-C $(KSRC) O=$(KDIR)) rust-analyzer
	@sed -e 's|"\.\.[^"]*/src/\([^"]*\.rs"\)|"src/\1|' \
		-e 's|"RUST_MODFILE": |"XRC_RCV_OUT": "$(abspath $(MO))/src", &|' \
		-e 's|"/usr\([/"]\)|"$(LAB_ROOT)/usr\1|g' $(MO)/rust-project.json >rust-project.json

doc: modules
	+@scripts/rustdoc $(KDIR) $(abspath $(MO))

# Headers have no key to sign with, and no System.map, without which Kbuild leaves depmod out.
modules_install: modules
	+@$(kbuild) INSTALL_MOD_PATH=$(INSTALL_MOD_PATH) INSTALL_MOD_STRIP=$(INSTALL_MOD_STRIP) \
		$(if $(wildcard $(KDIR)/certs/signing_key.pem),,CONFIG_MODULE_SIG_ALL=) modules_install
	$(if $(INSTALL_MOD_PATH),,depmod $$(cat $(KDIR)/include/config/kernel.release))

# The uapi header is installed with the libraries: user/Makefile.
install: modules_install tool_install
	@echo "Installed. 'xrc-rcv-module load' loads it, and prints any obstacle; a reboot loads it, too. See Documentation/loading.rst."

# Files that were in the directory before are not removed by clean.
$(MO)/.made:
	@$(call made,$(MO)) && { [ -n "$$(ls -A $(MO))" ] || : >$@; }

else

# The same, in the lab's root, which MO may be outside of, and which gets no MAKEFLAGS.
modules clippy doc rust-analyzer:
	+@$(call made,$(MO)) && env=$$($(lab) env) && eval "$$env" && LAB_BIND=$(abspath $(MO)) $(lab) exec -- $(MAKE) --no-print-directory $(filter -j%,$(MAKEFLAGS)) $(MAKEOVERRIDES) KDIR=$$KDIR KSRC=$$KSRC LAB_ROOT=$$LAB_ROOT MO=$(abspath $(MO)) $@

install modules_install:
	@echo "Give the kernel to install for: make KDIR=/lib/modules/\$$(uname -r)/build $@" >&2; exit 1

endif

# The files that a system has beside the module.
tool_install:
	install -D -m 644 src/ib_xrc_rcv.conf $(DESTDIR)$(MODPROBEDIR)/ib_xrc_rcv.conf
	install -D -m 755 packaging/xrc-rcv-module/xrc-rcv-module $(DESTDIR)$(SBINDIR)/xrc-rcv-module
	install -D -m 644 packaging/xrc-rcv-module/xrc-rcv-module.8 $(DESTDIR)$(MANDIR)/man8/xrc-rcv-module.8
	for completion in $(completions); do \
		install -D -m 644 packaging/xrc-rcv-module/completions/$${completion%%:*} $(DESTDIR)$(DATADIR)/$${completion#*:} || exit; \
	done

# The module's part of the tree, as it is, for DKMS, which calls Kbuild: for packages.
dkms_source = $(DESTDIR)/usr/src/ib-xrc-rcv-$(shell cat VERSION)
dkms_install: tool_install
	mkdir -p $(dkms_source)
	cp -r --parents Kbuild VERSION packaging/dkms src $(dkms_source)

# From every kernel. A loaded module stays loaded: run xrc-rcv-module unload before.
uninstall:
	@for file in $(INSTALL_MOD_PATH)/lib/modules/*/updates/ib_xrc_rcv.ko*; do \
		[ -e "$$file" ] || continue; \
		echo "rm $$file"; rm -f "$$file" || exit; \
		release=$${file#$(INSTALL_MOD_PATH)/lib/modules/}; \
		$(if $(INSTALL_MOD_PATH),:,depmod "$${release%%/*}") || exit; \
	done
	rm -f $(DESTDIR)$(MODPROBEDIR)/ib_xrc_rcv.conf $(DESTDIR)$(SBINDIR)/xrc-rcv-module \
		$(DESTDIR)$(MANDIR)/man8/xrc-rcv-module.8
	for completion in $(completions); do rm -f $(DESTDIR)$(DATADIR)/$${completion#*:} || exit; done

htmldocs:
	@$(call made,$(MO)/html) && scripts/htmldocs $(abspath $(MO))/html

lint:
	@scripts/lint

format:
	@scripts/lint --fix

test:
	@scripts/test

test-long:
	@scripts/test --long --seed random

# Fails if a suite did not pass on the sources that a release would have.
release-check:
	@scripts/results --release

fuzz:
	@proof/fuzz/run

test-clients:
	@CLIENTS='$(CLIENTS)' scripts/test-clients

demo:
	@scripts/demo

demo-restart:
	@scripts/demo-restart

demo-cluster:
	@scripts/demo-cluster

bench:
	@scripts/bench

# In the lab's root, which MO may be outside of.
deb rpm:
	@$(call made,$(MO)/$@) && LAB_BIND=$(abspath $(MO)) $(lab) exec -- packaging/build-$@ $(abspath $(MO))/$@

clean:
	@[ '$(MO)' != '$(CURDIR)/build' ] && [ ! -e '$(MO)/.made' ] || rm -rf '$(MO)'
	rm -f rust-project.json
	$(lab) clean

help:
	@echo 'Run it:'
	@echo '  make demo            boot a guest and see a receive QP outlive its creator (half a minute; 5 minutes the first time)'
	@echo '  make demo-restart    restart a server in five ways, and see what its clients notice (4 minutes)'
	@echo '  make demo-cluster    a job on four nodes, whose processes and one of which are killed (4 minutes)'
	@echo '  make test            build and test everything in guests; ends with "N passed, N failed"'
	@echo '  make test ARCH=arm64 the suites on kernels of Debian, in guests of arm64; make demo, make and others take it, too'
	@echo '  make bench           measure against mainline in the same run'
	@echo '  scripts/lab shell    a prompt in a guest with the module loaded (scripts/lab help)'
	@echo
	@echo 'The module:'
	@echo "  make                 build/ib_xrc_rcv.ko for the lab's stock kernel"
	@echo '  make KDIR=DIR        for a kernel of your own (7.2 or later, with its Rust metadata)'
	@echo '  make KDIR=DIR install   install it, its modprobe.d file and xrc-rcv-module(8) (DESTDIR=)'
	@echo '  make uninstall       remove the installed files, for every kernel'
	@echo '  make deb             Debian packages of module (DKMS), dkms-rust, libraries and tool in build/deb'
	@echo '  make rpm             RPMs of the same in build/rpm'
	@echo '  xrc-rcv-module load  load it beside an ib_uverbs that is in use (Documentation/loading.rst)'
	@echo
	@echo 'User space:'
	@echo '  make -C user         libraries, OFED layer, tool, manual pages'
	@echo '  make -C user install install them (PREFIX=/usr/local, DESTDIR=); make -C user uninstall'
	@echo '  make -C user doc     the reference of the crate in user/target/doc'
	@echo '  make doc             rustdoc of the module in build/doc'
	@echo '  make htmldocs        Documentation as HTML in build/html'
	@echo '  make rust-analyzer   rust-project.json for editors'
	@echo
	@echo 'Change it:'
	@echo '  make lint            rustfmt, clippy, checkpatch, shellcheck; make format mends formatting'
	@echo '  make test-long       the tests that take longer (several hours)'
	@echo '  make release-check   fails if a suite did not pass since the last change of what it tests'
	@echo '  make fuzz            programs that call the module in any way, on the debug kernel (ten minutes)'
	@echo '  make test-clients    programs of others, of Debian and of CLIENTS=DIR (Documentation/clients.rst)'
	@echo "  make clean           remove the builds of this tree ('scripts/lab clean all': the cache too)"
