# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Sourced first, with $tree set. Programs find directories where they are, and users other than root
# run what is built. make and Kbuild cannot quote a path. If that of the checkout is not plain
# (plain-path), the script runs again with the checkout mounted at a plain path, which is the same
# every time, so that builds are found again. The mount ends with the script.

unset CDPATH
umask 022
if ! "$tree/scripts/plain-path" "$tree" 2>/dev/null; then
	[ "$(id -u)" -eq 0 ] || {
		echo "lab: the lab mounts and boots things: run it as root" >&2
		exit 125
	}
	place=/run/ib_xrc_rcv/$(printf '%s' "$tree" | sha256sum | cut -c1-12)
	mkdir -p "$place" || exit 125
	# shellcheck disable=SC2016  # for the shell in there
	exec unshare --mount --propagation private bash -c '
		tree=$1 place=$2 cwd=$(pwd -P)
		shift 2
		mount --rbind "$tree" "$place" || exit 125
		case $cwd/ in "$tree"/*) cd "$place${cwd#"$tree"}" || exit ;; esac
		exec "$@"' place "$tree" "$place" "$place/scripts/$(basename "$0")" "$@"
fi
