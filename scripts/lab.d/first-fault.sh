# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash

# The most telling part of the log of a build or a run that failed: a type whose layout bindgen
# asserts, and which rustc names after its error; why the kernel does not load a module; the line of
# a patch, a symbol, a type, a test; or what the lab says after all of them.
first_fault() { # first_fault LOG
	grep -m 1 -oE '\["(Size|Alignment|Offset) of [^"]*"|struct [a-z_]+ of the kernel crate has another layout' "$1" ||
		grep -m 1 -E 'Unknown symbol|disagrees about version|section size must match|version magic' "$1" ||
		grep -m 1 -E 'does not apply|the compilers here are not|^error(\[|:)|error: |undefined!|assertion.*failed|^ *not ok|WARNING|BUG|panic' "$1" ||
		grep -m 1 -E 'lab: .*\<(no|not|fail[a-z]*)\>' "$1" ||
		tail -n 1 "$1"
}
