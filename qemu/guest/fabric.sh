# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For a guest of `scripts/lab fabric`: it is number LAB_GUEST, from 0, of LAB_GUESTS, and all of
# them share the directory LAB_FABRIC. A wait ends when its file appears, however long the others
# take, or when it cannot appear any more: when another guest has given up, or has ended.

# shellcheck source=qemu/guest/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"

# give_up - let the others wait no longer for what this guest has not done.
give_up() { : >"$LAB_FABRIC/ended.$LAB_GUEST"; }

# await NAME GUEST - the file NAME of another guest
await() {
	local ended
	until [ -e "$LAB_FABRIC/$1" ]; do
		# Its acts before its end count.
		[ -e "$LAB_FABRIC/ended.$2" ] && ended=y || ended=
		[ ! -e "$LAB_FABRIC/$1" ] || break
		[ -z "$ended" ] || { echo "guest $2 ended without $1" && return 1; }
		nap
	done
}

# meet NAME - all guests have come to the same place.
meet() {
	local guest
	: >"$LAB_FABRIC/$1.$LAB_GUEST"
	for ((guest = 0; guest < LAB_GUESTS; guest++)); do await "$1.$guest" $guest || return; done
}
