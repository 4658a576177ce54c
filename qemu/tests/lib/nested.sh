# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Tests as subtests of one KTAP document, https://docs.kernel.org/dev-tools/ktap.html:
#
#	nested_start 2
#	nested NAME COMMAND…
#	nested NAME COMMAND…
#	nested_end

nested_start() { # nested_start COUNT
	nested_number=0 nested_status=0
	printf 'KTAP version 1\n1..%d\n' "$1"
}

# The result is COMMAND's status: 0 passes, 4 skips, anything else fails.
nested() { # nested NAME COMMAND…
	local name=$1 status begin=$SECONDS
	shift
	nested_number=$((nested_number + 1))
	printf '    KTAP version 1\n    # Subtest: %s\n' "$name"
	"$@" 2>&1 | sed -u '/^KTAP version 1$/d; s/^/    /'
	status=${PIPESTATUS[0]}
	echo "# $((SECONDS - begin)) s"
	case $status in
	0) echo "ok $nested_number $name" ;;
	4) echo "ok $nested_number $name # SKIP" ;;
	*)
		nested_status=1
		echo "# exit status $status"
		echo "not ok $nested_number $name"
		;;
	esac
}

nested_end() { return $nested_status; }
