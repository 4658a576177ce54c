# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Waiting. It starts no program, which takes long on the debug kernel.

# Seconds after which a state is believed never to come. A busy host takes any time for anything, so
# this is no bound of what is tested: only failures take so long.
: "${patience:=240}"

# A tenth of a second.
nap() {
	[ -n "${nap_silence-}" ] || exec {nap_silence}<> <(:)
	read -rt 0.1 -u "$nap_silence" || :
}

# wait_for COMMAND… - until the command succeeds.
wait_for() {
	local end=$((SECONDS + patience))
	until "$@"; do
		[ $SECONDS -lt $end ] || return
		nap
	done
}
