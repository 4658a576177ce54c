# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The suites of qemu/tests/suites as they are run. Sourced at the top of the tree.

# Whether the architecture of guests (LAB_ARCH) has a kernel. Others than amd64 have Debian's, and
# suites of the host are tested without them.
has_kernel() { # has_kernel KERNEL
	[ "${LAB_ARCH:-amd64}" = amd64 ] || [[ $1 == stock* || $1 == "$LAB_ARCH":* ]]
}

# selected [SUITE…] - a line for each suite, or for these: WHEN NAME KERNEL DEVICE, and then
# [--OPTION…] TEST… [then TEST…], or a command. The long ones are left out if $long is empty, but
# for those that are named. The tests are in the order that the options of qemu/tests/select in the
# array order, which may be unset, say.
selected() {
	local when name kernel device rest
	while read -r when name kernel device rest; do
		case $when in
		'' | '#'*) continue ;;
		long) [ -n "$long" ] || [ $# -gt 0 ] || continue ;;
		esac
		has_kernel "$kernel" || continue
		[ $# -gt 0 ] && [[ " $* " != *" $name "* ]] ||
			echo "$when $name $kernel $device $(with_tests "$kernel" "$rest")"
	done <qemu/tests/suites
}

# with_tests KERNEL REST - a suite with its tests in place of the expressions that select them.
with_tests() {
	local kernel=$1 rest=$2 after
	if [[ $rest == ": "* ]]; then
		echo "${rest#: }"
		return
	fi
	[ "$kernel" != host ] || printf 'qemu/tests/run '
	while [[ $rest == --* ]]; do
		printf '%s ' "${rest%% *}"
		rest=${rest#* }
	done
	after=${rest##* then }
	rest=${rest%% then *}
	# Some tests are for amd64 only.
	[ "${LAB_ARCH:-amd64}" = amd64 ] && [[ $kernel != *:stock* ]] || rest="${rest//|/"!amd64 |"} !amd64"
	qemu/tests/select "${order[@]}" "$rest" | paste -sd ' ' - | tr -d '\n'
	[ "$2" = "${2/ then /}" ] || printf ' then %s' "$(qemu/tests/select "${order[@]}" "$after" | paste -sd ' ' -)"
	echo
}
