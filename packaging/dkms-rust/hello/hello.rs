// SPDX-License-Identifier: GPL-2.0
//! The example of dkms-rust(7): a module that greets the kernel's log.

use kernel::prelude::*;

module! {
    type: Hello,
    name: "hello",
    description: "Greet the kernel's log",
    license: "GPL",
}

struct Hello;

impl kernel::Module for Hello {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        pr_info!("Hello from Rust\n");
        Ok(Hello)
    }
}
