// SPDX-License-Identifier: GPL-2.0

//! Copies the file of the module whose functions C calls: a panic is to unwind through them, as a
//! test fails by one, and in functions of the ABI "C" it ends the process.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

const FILE: &str = "../../src/kernel_api.rs";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE))?;
    let copy = out.join("kernel_api.rs");
    let module = format!("#[path = {:?}]\nmod kernel_api;\n", copy);

    println!("cargo::rerun-if-changed={FILE}");
    fs::write(copy, text.replace("extern \"C\"", "extern \"C-unwind\""))?;
    fs::write(out.join("module.rs"), module)?;
    Ok(())
}
