# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device none               no RDMA device

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"

# No card is plugged in: ACPI's view of PCI is not needed.
device_append=pci=noacpi
device_sleep=off
