// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Asks the C compiler for the values in its headers, and compares them with those in Rust.

use std::path::Path;
use std::process::Command;

/// The value in Rust, and the C expression that must have the same.
#[derive(Default)]
pub(crate) struct Facts(pub(crate) Vec<(u64, String)>);

macro_rules! constants {
    ($facts:ident: $($name:ident)*) => {
        $($facts.0.push((u64::from($name), stringify!($name).into()));)*
    };
}

/// The offset of each field, and the size: the C struct's own, or the given expression's where
/// Rust leaves out the rest.
macro_rules! structs {
    ($facts:ident: $($name:ident [$size:expr] { $($field:ident)* })*) => {$(
        $($facts.0.push((
            std::mem::offset_of!($name, $field) as u64,
            // bindgen adds an underscore to a keyword of Rust.
            format!(
                "offsetof(struct {}, {})",
                stringify!($name),
                stringify!($field).trim_end_matches('_')
            ),
        ));)*
        let whole = format!("sizeof(struct {})", stringify!($name));
        let size: Option<&str> = $size;
        $facts.0.push((size_of::<$name>() as u64, size.map_or(whole, String::from)));
    )*};
}

pub(crate) use {constants, structs};

impl Facts {
    /// Panics with everything that is different in C. Directories are below `user/`.
    pub(crate) fn check(&self, directories: &[&str], headers: &[&str]) {
        let user = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, program) = (build.join("facts.c"), build.join("facts"));
        let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n");
        for header in headers {
            text += &format!("#include <{header}>\n");
        }
        text += "int main(void)\n{\n";
        for (_, expression) in &self.0 {
            text += &format!("\tprintf(\"%llu\\n\", (unsigned long long)({expression}));\n");
        }
        text += "\treturn 0;\n}\n";
        std::fs::write(&source, text).unwrap();

        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let status = Command::new(compiler)
            .args(
                directories
                    .iter()
                    .map(|name| format!("-I{}", user.join(name).display())),
            )
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .status()
            .expect("a C compiler");
        assert!(
            status.success(),
            "the headers (libibverbs-dev, linux-libc-dev) do not compile"
        );

        let output = Command::new(program).output().unwrap();
        let values: Vec<u64> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert_eq!(values.len(), self.0.len());
        let wrong: Vec<String> = self
            .0
            .iter()
            .zip(values)
            .filter(|((rust, _), c)| rust != c)
            .map(|((rust, expression), c)| format!("{expression} is {c}, not {rust}"))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
