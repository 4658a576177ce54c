# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Sourced with $tree set: a Debian with a stock kernel, in which packages are tested. It is made
# once, and made again when the mirror has a newer kernel.

here=$tree/qemu/tests/packages
for part in common root; do
	# shellcheck source=/dev/null
	. "$tree/scripts/lab.d/$part.sh"
done

base_make() {
	local mirror
	[ ! -d "$base" ] || return 0
	mirror=$(root_mirror) || exit
	rm -rf --one-file-system "$cache"/packages-*.new
	step packages-root "making a Debian 13 with a stock kernel (about 2 minutes)" \
		unshare --mount --fork --kill-child "$here/make-root" "$mirror" "$base.new"
	mv "$base.new" "$base"
}

# base_setup NAME - $base is that Debian, $old and $new are the kernel that it has and the next one;
# and $work is an empty directory of the test NAME.
base_setup() {
	root_setup
	eval "$("$tree/scripts/lab" env | grep '^LAB_STOCK=')"
	base=$cache/packages-$(key_of "$here/make-root" "$here/packages" <(echo "$LAB_STOCK"))
	with_cache_lock packages base_make
	# shellcheck disable=SC2034  # the tests read them
	read -r old new <"$base/etc/kernels"
	# shellcheck disable=SC2154  # lab.d/common.sh
	work=$build_root/$1
	rm -rf --one-file-system "$work"
	mkdir -p "$work"/{upper,work,root}
}

# in_root COMMAND… - in that Debian, with a layer above it that all of this test's commands share.
# With $aside set, changes are made to one more layer, above that.
in_root() {
	local lower=$base layer=$work
	[ -z "${aside-}" ] || lower=$work/upper:$base layer=$work/aside
	unshare --mount --pid --fork --kill-child --propagation private bash -ec '
		lower=$1 layer=$2 work=$3 root=$3/root
		shift 3
		mount -t overlay -o "lowerdir=$lower,upperdir=$layer/upper,workdir=$layer/work" overlay "$root"
		mount -t proc proc "$root/proc"
		mount -t sysfs sys "$root/sys"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs run "$root/run"
		mkdir -p "$root/media/work"
		mount --bind "$work" "$root/media/work"
		cat /etc/resolv.conf >"$root/etc/resolv.conf"
		exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive "$@"' in_root "$lower" "$layer" "$work" "$@"
}
