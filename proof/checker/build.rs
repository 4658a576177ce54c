// SPDX-License-Identifier: GPL-2.0

//! Copies the files of the module whose functions C calls, or which are in directories below
//! others, and compiles functions of its C files.
//!
//! A panic is to unwind through functions that C calls, as a test fails by one, and in functions of
//! the ABI "C" it ends the process.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = "../../src";

/// The files that are copied, with the file that declares each as a module.
const FILES: [(&str, &str); 3] = [
    ("kernel_api", "module"),
    ("rdma/qp", "rdma"),
    ("rdma/qp_attr", "rdma"),
];

/// Parts of `rdma/qp_attr`. The compiler looks for them beside the copy of it.
const PARTS: [&str; 2] = ["rdma/qp_attr/mask", "rdma/qp_attr/state"];

/// The file of C, and the functions of it that the checker calls.
const HELPERS: &str = "helpers.c";
const FUNCTIONS: [&str; 2] = ["ib_xrc_rcv_ah_from_user", "ib_xrc_rcv_ah_to_user"];

/// The types and functions of the kernel that these use.
const HEADER: &str = "src/ib_core/address.h";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);

    for of in ["module", "rdma"] {
        let mut modules = String::new();

        for (name, _) in FILES.iter().filter(|(_, declares)| *declares == of) {
            let copy = out.join(name).join("mod.rs");
            let module = name.rsplit('/').next().unwrap_or(name);

            copy_source(&here, name, &copy)?;
            writeln!(modules, "#[path = {copy:?}]\npub(crate) mod {module};")?;
        }
        fs::write(out.join(of).with_extension("rs"), modules)?;
    }
    for name in PARTS {
        copy_source(&here, name, &out.join(name).with_extension("rs"))?;
    }
    // Without it, the module checks no labels.
    println!("cargo::rustc-cfg=CONFIG_SECURITY_INFINIBAND");
    println!("cargo::rustc-check-cfg=cfg(CONFIG_SECURITY_INFINIBAND)");
    println!("cargo::rustc-check-cfg=cfg(hooked)");
    compile_functions(&here, &out)
}

/// Copies a file of the module.
fn copy_source(here: &Path, name: &str, copy: &Path) -> Result<(), Box<dyn Error>> {
    let file = Path::new(SOURCE).join(name).with_extension("rs");
    let text = fs::read_to_string(here.join(&file))?;

    println!("cargo::rerun-if-changed={}", file.display());
    fs::create_dir_all(copy.parent().ok_or("no directory")?)?;
    fs::write(copy, text.replace("extern \"C\"", "extern \"C-unwind\""))?;
    Ok(())
}

/// Compiles functions of C into a library.
fn compile_functions(here: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let file = Path::new(SOURCE).join(HELPERS);
    let text = fs::read_to_string(here.join(&file))?;
    let mut functions = format!("#include \"{}\"\n", here.join(HEADER).display());

    for name in FUNCTIONS {
        let (begin, _) = text
            .match_indices(&format!("\nvoid {name}("))
            .next()
            .ok_or(name)?;
        let length = text[begin..].find("\n}\n").ok_or(name)? + 3;
        let line = text[..=begin].matches('\n').count() + 1;

        write!(
            functions,
            "#line {line} \"{SOURCE}/{HELPERS}\"{}",
            &text[begin..begin + length]
        )?;
    }

    let [code, object, library] = ["address.c", "address.o", "libaddress.a"].map(|f| out.join(f));

    println!("cargo::rerun-if-changed={}", file.display());
    println!("cargo::rerun-if-changed={HEADER}");
    fs::write(&code, functions)?;
    run(Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-g", "-fPIC", "-c", "-o"])
        .args([&object, &code]))?;
    let _ = fs::remove_file(&library);
    run(Command::new("ar").arg("rcs").args([&library, &object]))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=address");
    Ok(())
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    if !command.status()?.success() {
        return Err(format!("{command:?} failed").into());
    }
    Ok(())
}
