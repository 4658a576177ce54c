# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash

# The most telling part of the log of a build or a run that failed: a type whose layout bindgen asserts, and which
# rustc names after its error; or the line of a patch, a symbol, a type, a test.
first_fault() { # first_fault LOG
	grep -m 1 -oE '\["(Size|Alignment|Offset) of [^"]*"' "$1" ||
		grep -m 1 -E 'does not apply|the compilers here are not|^error(\[|:)|error: |undefined!|assertion.*failed|^ *not ok|WARNING|BUG|panic|lab: .*\<(no|not|fail[a-z]*)\>' "$1" ||
		tail -n 1 "$1"
}
