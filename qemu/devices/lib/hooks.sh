# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The hooks that a device of the lab may define, with their defaults. --device NAME=ARGUMENT
# is the file NAME.sh in the directory above, which sources this one first; its line "# --device" is
# its line in `scripts/lab help`. The hooks run in three places:
#
# in scripts/lab, on the host:
#	device_claim			checks $device_argument; takes the hardware for the guest
#	device_build			builds the parts of the device (scripts/lab.d/build.sh)
#	device_qemu_args RUN		adds to the array qemu
#	device_release			gives back the hardware that device_claim took
# in qemu/host/launch, in the lab's root, beside QEMU:
#	device_start RUN BUILD-ROOT	starts processes of QEMU's devices, in the directory RUN;
#					their programs are below BUILD-ROOT
# in the guest:
#	device_environment		exports the variables below
#	device_up			makes the RDMA devices, after the stack and the module
#	device_down			removes them, wherever they are; may be tried again
#	device_unplug KIND [NODE]	removes the device of node right, or of NODE, by KIND:
#		unplug		as hot-unplug does
#		driver		by unloading its driver
#		move		into the network namespace "elsewhere"
#		surprise	without a notice to its driver
#		catastrophe	by an error after which its driver resets it
#	device_replug KIND [NODE]	brings it back
#
# Tests know a device by these variables:
#	LAB_LEFT, LAB_RIGHT	devices and ports of the two nodes, as rdma(8) writes them
#	LAB_NETNS		y: the nodes are the network namespaces left and right
#	LAB_DRIVER_ID		its enum rdma_driver_id
#	LAB_RDMA_CORE		the rdma-core that programs are run with; empty: Debian's

# More of an emulated kernel's command line.
device_append=
# With --icount, on: an idle guest waits for the host's clock, because a process of the host, or
# hardware, answers it. off: its clock leaps to the next timer, for which a busy host is not late.
device_sleep=on

device_claim() { [ -z "$device_argument" ] || die "--device $device takes no argument"; }
device_build() { :; }
device_qemu_args() { :; }
device_release() { :; }

device_start() { :; }

device_environment() { export LAB_LEFT='' LAB_RIGHT='' LAB_NETNS='' LAB_DRIVER_ID='' LAB_RDMA_CORE=''; }
device_up() { :; }
device_down() { :; }
device_unplug() {
	echo "device $LAB_DEVICE: there is no way to $1 it" >&2
	return 1
}
device_replug() { device_unplug "$@"; }
