# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Guests: QEMU on the lab root over 9p, a command, its status, and the kernel's log read for
# any report.

device=
device_argument=
# Of `--device DEVICE*N`, on the host; each of them is booted without.
nodes=
with_module=y
leak_check=y
keep_log=
icount=
parallel=
timeout=7200
boot_timeout=${LAB_BOOT_TIMEOUT:-240}

device_names() {
	local file
	for file in "$tree"/qemu/devices/*.sh; do basename "$file" .sh; done
}

# device_source NAME - its hooks, see qemu/devices/lib/hooks.sh
device_source() {
	[ -e "$tree/qemu/devices/$1.sh" ] ||
		die "no device is called '$1'; there are $(device_names | paste -sd ' ')"
	# shellcheck source=/dev/null
	. "$tree/qemu/devices/$1.sh"
}

guest_options() {
	local wanted=rxe variable
	kernel_option "$@"
	set -- "${kernel_rest[@]}"
	while [ $# -gt 0 ]; do
		case $1 in
		--device | --keep-log | --timeout) [ -n "${2-}" ] || die "$1 needs a value" ;;
		esac
		case $1 in
		--device) wanted=$2 && shift 2 ;;
		--no-module) with_module= && shift ;;
		--no-leak-check) leak_check= && shift ;;
		--icount) icount=y LAB_ACCEL=tcg && shift ;;
		--parallel) parallel=y && shift ;;
		--keep-log) keep_log=$2 && shift 2 ;;
		--timeout) timeout=$2 && shift 2 ;;
		--) shift && break ;;
		-*) die "unknown option $1 (scripts/lab help lists them)" ;;
		*) break ;;
		esac
	done
	guest_command=("$@")
	[[ $timeout =~ ^[1-9][0-9]*$ ]] || die "--timeout wants a number of seconds, not '$timeout'"
	for variable in LAB_CPUS LAB_MEMORY LAB_BOOT_TIMEOUT; do
		[[ ${!variable:-1} =~ ^[1-9][0-9]*$ ]] || die "$variable wants a number, not '${!variable}'"
	done
	[[ ${LAB_ACCEL:-tcg} =~ ^(tcg|kvm)$ ]] || die "LAB_ACCEL wants tcg or kvm, not '$LAB_ACCEL'"
	[ -z "$foreign" ] || [ "${LAB_ACCEL:-tcg}" = tcg ] || die "LAB_ACCEL=kvm is for guests of ${architectures[0]}, not $arch"
	if [[ $wanted == *\** ]]; then
		[[ $wanted =~ ^vmlx(4|5|-mixed)\*([1-9][0-9]?)$ ]] ||
			die "nodes are vmlx4*N, vmlx5*N or vmlx-mixed*N with N from 1 to 99, not '$wanted'"
		nodes=${wanted#*\*} wanted=${wanted%\**}
		[ -z "${LAB_NODE-}" ] || node_options
	fi
	device=${wanted%%=*}
	[ "$device" = "$wanted" ] || device_argument=${wanted#*=}
	[ -z "${VMLX_ADAPTER-}" ] || [ "$device" = vmlx4 ] || [ -n "${LAB_NODE-}" ] ||
		die "VMLX_ADAPTER is for --device vmlx4, not $device"
	device_source "$device"
	device_claim
}

# One of several nodes: its card, by its adapter's place in scripts/lab.d/fabric.
node_options() {
	case $wanted in
	vmlx-mixed) wanted=vmlx5 && [ "$LAB_NODE" -gt $(((nodes + 1) / 2)) ] || wanted=vmlx4 ;;
	esac
	[ "$LAB_NODE" = 1 ] || keep_log=
	nodes=
}

# KVM only where it really works: some hosts offer /dev/kvm in a guest without vmx or svm.
guest_accel() {
	if [ -n "${LAB_ACCEL-}" ]; then
		echo "$LAB_ACCEL"
	elif [ -z "$foreign" ] && grep -qE '^flags.*\<(vmx|svm)\>' /proc/cpuinfo && [ -w /dev/kvm ]; then
		echo kvm
	else
		echo tcg
	fi
}

# Prints the number of CPUs. QEMU emulates several in turn, on one core of the host: a second makes
# nothing faster, and a CPU that spins on a lock spins for its whole turn, a tenth of a second,
# before the lock's owner runs.
guest_cpus() { # guest_cpus ACCELERATOR
	if [ -n "$icount" ]; then
		echo 4
	elif [ -n "$parallel" ] || [ "$1" = kvm ]; then
		echo 2
	else
		echo 1
	fi
}

guest_build() {
	[ -z "$with_module" ] || build module user
	build "$device"
	# Tests run programs and load modules of their own.
	case ${guest_command[0]-} in
	qemu/tests/run | */qemu/tests/run) build test-modules tests demo ;;
	demo/*) build demo ;;
	esac
}

guest_prepare() {
	root_setup
	kernel_setup
	[ -n "${LAB_BUILT-}" ] || guest_build
	run=$(mktemp -d "$cache/run.XXXXXX")
	trap guest_cleanup EXIT
	{
		printf 'LAB_TREE=%q\nLAB_CACHE=%q\nLAB_CWD=%q\n' "$tree" "$cache" "$PWD"
		printf 'LAB_BUILD=%q\nLAB_BUILD_ROOT=%q\nLAB_MODULES=%q\n' "$(build_dir)" "$build_root" "$kmodules"
		printf 'LAB_ARCH=%q\nLAB_KERNEL=%q\nLAB_DEVICE=%q\n' "$arch" "$kernel" "$device"
		printf 'LAB_MODULE=%q\n' "${with_module:+${LAB_MODULE-$(build_dir)/module/ib_xrc_rcv.ko}}"
		printf 'LAB_LEAK_CHECK=%q\nLAB_SHELL=%q\nLAB_LIVE=%q\nLAB_ICOUNT=%q\n' "$leak_check" "${shell-}" "${LAB_LIVE-}" "$icount"
		printf 'LAB_FABRIC=%q\nLAB_NODE=%q\nLAB_NODES=%q\n' "${LAB_FABRIC:+/run/fabric}" "${LAB_NODE-}" "${LAB_NODES-}"
		printf 'LAB_LONG=%q\nVERBOSE=%q\n' "${LAB_LONG-}" "${VERBOSE-}"
		printf 'KSRC=%q\n' "$ksrc"
		printf 'LAB_ROWS=%q\nLAB_COLUMNS=%q\n' "${rows-}" "${columns-}"
	} >"$run/env"
	: >"$run/kernel.log"
}

guest_cleanup() {
	[ -z "${keep_log-}" ] || cp "$run/kernel.log" "$keep_log" 2>/dev/null || :
	rm -rf "${run:?}"
	[ -z "${shell-}" ] || [ ! -t 0 ] || stty sane
	device_release
}

# The guest's console is our standard output; the kernel's log is written to a file.
guest_qemu() {
	local accel cpus memory=${LAB_MEMORY:-1024} thread=single qemu more
	# Where dummy is built in, there is a dummy0.
	local append="$arch_append loglevel=8 panic=-1 dummy.numdummies=0"
	# kmemleak is two fifths of the debug kernel's work.
	[ -n "$leak_check" ] || append+=" kmemleak=off"
	read -ra more <<<"${LAB_QEMU_ARGS-}"
	accel=$(guest_accel)
	cpus=${LAB_CPUS:-$(guest_cpus "$accel")}
	qemu=("${arch_qemu[@]}" -smp "$cpus" -m "$memory"
		-object "memory-backend-memfd,id=mem,size=${memory}M,share=on"
		-nodefaults -no-user-config -display none -no-reboot
		-kernel "$kimage" -initrd "$initramfs"
		-serial "file:$run/kernel.log"
		-chardev "stdio,id=console,signal=$1" -device virtio-serial-pci -device virtconsole,chardev=console
		-device virtio-rng-pci "${more[@]}")
	case $accel in
	kvm) qemu+=(-accel kvm -cpu host -append "$append ${LAB_APPEND-}") ;;
	*)
		append+=" $arch_emulated_append"
		[ -z "$icount" ] || append=${append/tsc_early_khz=HOST/tsc_early_khz=1000000}
		# Old terminals take seconds.
		append+=" pty.legacy_count=0"
		# On a busy host a reader of RCU with the lowest priority waits for 20 s, the last
		# of many tasks for a mutex for minutes, and a CPU of the guest for the host.
		append+=" rcupdate.rcu_cpu_stall_timeout=300 sysctl.kernel.hung_task_timeout_secs=900"
		append+=" watchdog_thresh=60 $device_append ${LAB_APPEND-}"
		[ -z "$icount" ] || qemu+=(-icount "shift=1,sleep=$device_sleep")
		# CPUs that take turns never wait for one that the host does not run, and need no
		# atomic instructions: half the work.
		[ -z "$parallel" ] || [ -n "$icount" ] || thread=multi
		qemu+=(-accel "tcg,thread=$thread" "${arch_emulated[@]}" -append "$append")
		;;
	esac
	[ -z "${shell-}" ] || qemu+=(
		-chardev "socket,id=terminal,path=$run/terminal.sock,server=on,wait=off" -device virtconsole,chardev=terminal)
	share root "${foreign:+$foreign/root}/" ,readonly=on
	share run "$run"
	share tree "$tree"
	share cache "$cache"
	[ -z "${LAB_FABRIC-}" ] || share fabric "$LAB_FABRIC"
	device_qemu_args "$run"
	root_exec "$tree/qemu/host/launch" "$run" "$device" "$host_build_root" -- \
		timeout --foreground --kill-after=5 "$timeout" "${qemu[@]}"
}

# share TAG DIRECTORY [OPTIONS] - a 9p export
share() {
	qemu+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3-}"
		-device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}

# Starts QEMU and waits until the command runs in the guest. A guest that hangs is killed; one that
# is slow is not, on a busy host: its kernel's log has grown since the last look.
guest_boot() {
	local begin=$SECONDS look=$SECONDS size=0 seen
	: >"$run/kernel.log"
	rm -f "$run"/*.sock "$run"/clock.* "$run/booted"
	background guest_qemu on </dev/null
	qemu_pid=$!
	while [ ! -e "$run/started" ] && kill -0 "$qemu_pid" 2>/dev/null; do
		if ((SECONDS - look >= boot_timeout)); then
			look=$SECONDS seen=$size
			size=$(stat -c %s "$run/kernel.log")
			((size == seen || look - begin >= 4 * boot_timeout)) || continue
			boot_seconds=$((look - begin))
			kill -KILL -- "-$qemu_pid"
			wait "$qemu_pid" 2>/dev/null
			return 125
		fi
		sleep 0.1
	done
}

guest_run() {
	local status=0
	guest_options "$@"
	[ ${#guest_command[@]} -gt 0 ] || die "run needs a command: scripts/lab run -- COMMAND…"
	[ -z "$nodes" ] || nodes_run "$@"
	guest_prepare
	printf '%q ' "${guest_command[@]}" >"$run/command"
	guest_boot || {
		# On a busy host an emulated machine now and then loses a timer interrupt while it
		# boots, and hangs: it is booted once more. A guest that has booted, or whose
		# kernel reports a fault, fails by itself.
		[ ! -e "$run/booted" ] && guest_log_check || {
			guest_keep_log
			tail -n 30 "$run/kernel.log" | sed 's/^/     /' >&2
			die "the guest's device did not come up within $boot_seconds s; above is the end of the kernel's log, all of it is in $keep_log"
		}
		say "the guest did not boot within $boot_seconds s; once more"
		guest_boot || status=$?
	}
	[ "$status" -ne 0 ] || wait "$qemu_pid" || status=$?
	trap - INT TERM HUP
	if [ "$status" -eq 124 ]; then
		say "the guest did not end within $timeout s (--timeout) and was given up"
	fi
	if [ ! -s "$run/status" ]; then
		tail -n 30 "$run/kernel.log" | sed 's/^/     /' >&2
		guest_keep_log
		die "the guest ended before its command did; above is the end of the kernel's log, all of it is in $keep_log"
	fi
	status=$(cat "$run/status")
	guest_log_check || status=$((status == 0 ? 1 : status))
	exit "$status"
}

# Files that explain a failure are kept.
guest_keep_log() {
	[ -z "$keep_log" ] || return 0
	mkdir -p "$logs"
	keep_log=$logs/guest-${run##*.}.log
}

# They are built for once.
nodes_run() { # nodes_run ARGUMENT… of run
	root_setup
	kernel_setup
	if [ -z "${LAB_BUILT-}" ]; then
		guest_build
		[ "$device" != vmlx-mixed ] || build vmlx4
	fi
	exec "$tree/scripts/lab.d/fabric" "$device" "$nodes" "$host_build_root" "$@"
}

guest_shell() {
	guest_options "$@"
	[ -z "$nodes" ] || die "shell boots one guest; \`run\` boots nodes"
	shell=y
	read -r rows columns < <(stty size 2>/dev/null || echo 24 80)
	guest_prepare
	say "a prompt in the guest; 'exit' ends it"
	[ ! -t 0 ] || stty raw -echo
	# In the background, but of this process group, which has the terminal: a shell that waits
	# for a command heeds no signal meanwhile.
	guest_qemu off <&0 &
	# shellcheck disable=SC2064
	trap "kill -KILL \$(cat /proc/$!/task/$!/children) || :; wait $! || :; exit 130" INT TERM HUP
	wait $! || :
	trap - INT TERM HUP
	guest_log_check
}

# Another terminal of the newest guest that `shell` of this tree has booted.
guest_terminal() {
	local directory found='' status=0
	for directory in "$cache"/run.*/; do
		[ -S "$directory/terminal.sock" ] && grep -qxF "$(printf 'LAB_TREE=%q' "$tree")" "$directory/env" || continue
		[ -n "$found" ] && [ "$found" -nt "$directory" ] || found=$directory
	done
	[ -n "$found" ] || die "no guest of this tree has a prompt: scripts/lab shell boots one"
	root_setup
	read -r rows columns < <(stty size 2>/dev/null || echo 24 80)
	say "another prompt in the guest; 'exit' or Ctrl-] ends it"
	[ ! -t 0 ] || stty raw -echo
	root_exec "$tree/qemu/host/terminal" "$found/terminal.sock" "$rows" "$columns" || status=$?
	[ ! -t 0 ] || stty sane
	return "$status"
}

# Lines of the kernel's log that begin a report, or belong to one.
readonly REPORTS='WARNING|BUG|Oops|general protection|Call Trace|Kernel panic|corruption
rust_kernel: panicked
INFO: (possible|task|rcu|suspicious|trying|lockdep)|DEADLOCK|DEBUG_LOCKS
KASAN|UBSAN|kmemleak|refcount_t
unregister_netdevice: waiting'
# Of these, lines in which KASAN and the like announce themselves at boot, and the command line.
readonly ANNOUNCEMENTS='[Cc]ommand line|kmemleak=off
kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning)
[Kk]asan: KernelAddressSanitizer
LOCKDEP_|lockdep is|Lock dependency validator|Debug: |DEBUG_LOCKS_WARN_ON\(0\)'

# Fails if the kernel's log has a report, and prints it. With --no-leak-check kmemleak announces
# that it is disabled; without, that is a report: a kmemleak that gave up finds no leak any more.
guest_log_check() {
	local splats expected=$ANNOUNCEMENTS
	[ -n "$leak_check" ] || expected+=$'\nkmemleak: Kernel memory leak detector disabled'
	splats=$(grep -aE "$REPORTS" "$run/kernel.log" | grep -avE "$expected" || :)
	[ -n "$splats" ] || return 0
	guest_keep_log
	say "the kernel's log (all of it is in $keep_log) has:"
	# The first report with its call trace; of all others the line.
	awk -v first="$(printf '%s\n' "$splats" | head -n 1)" 'index($0, first) { on = 40 } on-- > 0' "$run/kernel.log" | head -n 80 | sed 's/^/     /' >&2
	printf '%s\n' "$splats" | tail -n +2 | head -n 20 | sed 's/^/     /' >&2
	return 1
}
