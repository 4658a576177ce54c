# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Waiting. It starts no program, which takes long on the debug kernel.

# A tenth of a second.
nap() {
	[ -n "${nap_silence-}" ] || exec {nap_silence}<> <(:)
	read -rt 0.1 -u "$nap_silence" || :
}

# within SECONDS COMMAND… - waits until the command succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return
		nap
	done
}
