// SPDX-License-Identifier: GPL-2.0
// E0515
//! The name of a process for longer than its copy exists.

use crate::kernel_ext::process::Process;
use kernel::str::BStr;

pub(crate) fn name() -> &'static BStr {
    Process::current().name()
}
