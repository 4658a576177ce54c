# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts that run guests side by side, $jobs at a time: each job has a process group of its
# own, which a signal to the script ends.

# MOST, or fewer if they need more memory than is available.
jobs_fit() { # jobs_fit MOST MEGABYTES-OF-EACH
	awk -v most="$1" -v each="$2" '
		/^MemAvailable:/ { fit = int($2 / 1000 / each) }
		END { print fit < 1 ? 1 : fit < most ? fit : most }' /proc/meminfo
}

# When fewer than that run.
start_job() { # start_job COMMAND…
	while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n || :; done
	set -m
	"$@" </dev/null &
	set +m
}

# In a process group of its own, too, and to its end.
await_job() { # await_job COMMAND…
	set -m
	"$@" </dev/null &
	set +m
	wait $!
}

interrupt() {
	local group
	for group in $(jobs -p); do kill -TERM -- "-$group" 2>/dev/null || :; done
	wait
	exit 130
}
trap interrupt INT TERM HUP

# The lines of jobs that run side by side begin with the job's name.
label() { # label NAME
	local line
	while IFS= read -r line; do printf '%-12s %s\n' "$1" "$line"; done
}
