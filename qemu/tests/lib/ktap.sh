# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP from a shell script, for the guest tests:
#
#	. "$(dirname "$0")/../lib/ktap.sh"
#	ktap_start "the name of the test" 2
#	ktap_run "a thing holds" some_command with arguments
#	ktap_run "another thing holds" some_function
#	ktap_end
#
# A result is the exit status of its command: 0 passes, 4 skips (as in the
# kernel's selftests), anything else fails. The output of a command is shown,
# as diagnostics, if it did not pass; KTAP_VERBOSE=1 shows it always, as it comes. Then nothing
# that it leaves running may have its output.

# shellcheck source=qemu/guest/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../guest/wait.sh"

# One directory for all output, and little is started below: a program takes long on the debug
# kernel.
ktap_scratch=$(mktemp -d) || exit

ktap_start() { # ktap_start NAME COUNT
	ktap_planned=$2 ktap_number=0 ktap_pass=0 ktap_fail=0 ktap_skip=0
	echo "KTAP version 1"
	echo "# $1"
	echo "1..$2"
}

ktap_diagnose() { # diagnostics from standard input
	sed -u 's/^/# /'
}

ktap_run() { # ktap_run DESCRIPTION COMMAND…
	local description=$1 output status=0
	shift
	ktap_number=$((ktap_number + 1))
	output=$ktap_scratch/$ktap_number
	# In a subshell: a command may change directory or exit.
	if [ -n "${KTAP_VERBOSE-}" ]; then
		("$@") 2>&1 </dev/null | tee "$output" | ktap_diagnose
		status=${PIPESTATUS[0]}
	else
		("$@") >"$output" 2>&1 </dev/null || status=$?
		[ "$status" = 0 ] || tail -n 60 "$output" | ktap_diagnose
	fi
	case $status in
	0)
		ktap_pass=$((ktap_pass + 1))
		echo "ok $ktap_number $description"
		;;
	4)
		ktap_skip=$((ktap_skip + 1))
		echo "ok $ktap_number $description # SKIP $(tail -n 1 "$output")"
		;;
	*)
		ktap_fail=$((ktap_fail + 1))
		echo "# exit status $status: $*"
		echo "not ok $ktap_number $description"
		;;
	esac
	return "$((status == 4 ? 0 : status))"
}

# Ends the script: with failure if a result failed or a planned one is missing.
ktap_end() {
	rm -rf "$ktap_scratch"
	if [ "$ktap_number" != "$ktap_planned" ]; then
		echo "# planned $ktap_planned results, ran $ktap_number"
	fi
	echo "# Totals: pass:$ktap_pass fail:$ktap_fail skip:$ktap_skip"
	[ "$ktap_fail" = 0 ] && [ "$ktap_number" = "$ktap_planned" ]
	exit
}
