// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Layouts of mlx5 commands, from the kernel's `include/linux/mlx5/mlx5_ifc.h`.
//!
//! The header says how many bits each field has, as sizes of arrays; the offsets follow. It is
//! GPL-2.0 or BSD, and not in this tree: `MLX5_IFC` names it, or `KSRC` the kernel's source.
//! Without either the crate has no ConnectX-6.

// It runs on no guest's words: a panic is how a build fails.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The structures that the model uses.
const STRUCTURES: &[&str] = &[
    "access_register_in",
    "ads",
    "alloc_pd_out",
    "alloc_q_counter_out",
    "alloc_transport_domain_out",
    "alloc_uar_out",
    "alloc_xrcd_out",
    "arm_rq_in",
    "arm_xrc_srq_in",
    "atomic_caps",
    "attach_to_mcg_in",
    "cmd_hca_cap",
    "cqc",
    "create_cq_in",
    "create_cq_out",
    "create_eq_in",
    "create_eq_out",
    "create_mkey_in",
    "create_mkey_out",
    "create_qp_in",
    "create_qp_out",
    "create_rmp_in",
    "create_rmp_out",
    "create_srq_in",
    "create_srq_out",
    "create_xrc_srq_in",
    "create_xrc_srq_out",
    "dealloc_pd_in",
    "dealloc_uar_in",
    "dealloc_xrcd_in",
    "destroy_cq_in",
    "destroy_eq_in",
    "destroy_mkey_in",
    "destroy_qp_in",
    "destroy_rmp_in",
    "destroy_srq_in",
    "destroy_xrc_srq_in",
    "eqc",
    "hca_vport_context",
    "init2rtr_qp_in",
    "mad_ifc_in",
    "manage_pages_in",
    "manage_pages_out",
    "mkc",
    "modify_cq_in",
    "modify_hca_vport_context_in",
    "modify_rmp_in",
    "pmtu_reg",
    "ptys_reg",
    "pvlc_reg",
    "qpc",
    "query_adapter_out",
    "query_adapter_param_block",
    "query_cq_in",
    "query_cq_out",
    "query_hca_cap_in",
    "query_hca_cap_out",
    "query_hca_vport_context_out",
    "query_hca_vport_gid_in",
    "query_hca_vport_gid_out",
    "query_hca_vport_pkey_in",
    "query_hca_vport_pkey_out",
    "query_issi_out",
    "query_mkey_in",
    "query_mkey_out",
    "query_pages_in",
    "query_pages_out",
    "query_qp_in",
    "query_qp_out",
    "query_rmp_in",
    "query_rmp_out",
    "query_special_contexts_out",
    "query_srq_in",
    "query_srq_out",
    "query_xrc_srq_in",
    "query_xrc_srq_out",
    "rmpc",
    "set_hca_cap_in",
    "set_issi_in",
    "srqc",
    "wq",
    "xrc_srqc",
];

fn header() -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed=MLX5_IFC");
    println!("cargo::rerun-if-env-changed=KSRC");
    let named = env::var_os("MLX5_IFC").map(PathBuf::from);
    let kernel = || Some(Path::new(&env::var_os("KSRC")?).join("include/linux/mlx5/mlx5_ifc.h"));
    named.or_else(kernel).filter(|path| path.exists())
}

/// The header without comments, in words.
fn words(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let mut words = Vec::new();
    let mut word = String::new();
    for char in plain.chars() {
        if char.is_alphanumeric() || char == '_' {
            word.push(char);
            continue;
        }
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if !char.is_whitespace() {
            words.push(char.to_string());
        }
    }
    words
}

/// A field: its offset in bits, and its size; of an array, those of the first element.
type Fields = Vec<(String, u64, u64)>;

struct Header {
    words: Vec<String>,
    /// Where the body of each structure begins, and whether it is a union.
    bodies: BTreeMap<String, (usize, bool)>,
}

impl Header {
    fn new(words: Vec<String>) -> Self {
        let mut bodies = BTreeMap::new();
        for (at, window) in words.windows(3).enumerate() {
            let name = window[1]
                .strip_prefix("mlx5_ifc_")
                .and_then(|name| name.strip_suffix("_bits"));
            if let (Some(name), "struct" | "union", "{") = (name, window[0].as_str(), &*window[2]) {
                bodies.insert(name.to_string(), (at + 3, window[0] == "union"));
            }
        }
        Self { words, bodies }
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The sizes in brackets from `at`, and where they end; none has no size.
    fn brackets(&self, mut at: usize) -> (Vec<Option<u64>>, usize) {
        let mut sizes = Vec::new();
        while self.word(at) == "[" {
            let size = self.word(at + 1);
            if size == "]" {
                sizes.push(None);
                at += 2;
                continue;
            }
            sizes.push(match size.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => size.parse().ok(),
            });
            at += 3;
        }
        (sizes, at)
    }

    fn size(&self, name: &str) -> u64 {
        // Those of other headers only end unions.
        let body = self.bodies.get(name).copied();
        body.map_or(0, |(at, union)| self.block(at, union, 0, &mut Vec::new()).0)
    }

    /// The fields of a block whose body begins `at`: its size, and where it ends.
    fn block(&self, mut at: usize, union: bool, base: u64, fields: &mut Fields) -> (u64, usize) {
        let (mut offset, mut longest) = (0, 0);
        while self.word(at) != "}" && at < self.words.len() {
            let here = if union { base } else { base + offset };
            let (size, end) = match (self.word(at), self.word(at + 1)) {
                ("struct" | "union", "{") => {
                    let (size, end) = self.block(at + 2, self.word(at) == "union", here, fields);
                    // A member may have a name, on which no offset depends.
                    (
                        size,
                        if self.word(end + 1) == ";" {
                            end + 2
                        } else {
                            end + 3
                        },
                    )
                }
                ("struct" | "union", kind) => {
                    let kind = kind
                        .trim_start_matches("mlx5_ifc_")
                        .trim_end_matches("_bits");
                    let (sizes, end) = self.brackets(at + 3);
                    let element = self.size(kind);
                    fields.push((self.word(at + 2).into(), here, element));
                    let count = sizes.first().map_or(1, |count| count.unwrap_or(0));
                    (element * count, end + 1)
                }
                _ => {
                    let (sizes, end) = self.brackets(at + 2);
                    let element = sizes.last().copied().flatten().unwrap_or(1);
                    let count: u64 = sizes[..sizes.len().max(1) - 1]
                        .iter()
                        .map(|size| size.unwrap_or(0))
                        .product();
                    fields.push((self.word(at + 1).into(), here, element));
                    (element * count, end + 1)
                }
            };
            at = end;
            offset += size;
            longest = longest.max(size);
        }
        (if union { longest } else { offset }, at)
    }
}

fn generate(text: &str) -> String {
    let header = Header::new(words(text));
    let mut out = String::new();
    for name in STRUCTURES {
        let Some((at, union)) = header.bodies.get(*name).copied() else {
            panic!("there is no structure {name} in the header");
        };
        let mut fields = Vec::new();
        let (size, _) = header.block(at, union, 0, &mut fields);
        let _ = writeln!(out, "pub mod {name} {{\n    use super::Field;\n");
        let _ = writeln!(out, "    pub const SIZE: usize = {};", size / 8);
        for (field, offset, bits) in fields {
            if !field.starts_with("reserved_at") {
                let field = field.to_uppercase();
                let _ = writeln!(
                    out,
                    "    pub const {field}: Field = Field::new({offset}, {bits});"
                );
            }
        }
        out.push_str("}\n\n");
    }
    let mut opcodes = String::new();
    out.push_str("pub mod op {\n");
    for window in header.words.windows(3) {
        let Some(name) = window[0].strip_prefix("MLX5_CMD_OP_") else {
            continue;
        };
        if window[1] == "=" && window[2].starts_with("0x") && name != "MAX" {
            let digit = name.starts_with(|char: char| char.is_ascii_digit());
            let _ = writeln!(
                out,
                "    pub const {}{name}: u16 = {};",
                if digit { "_" } else { "" },
                window[2]
            );
            let _ = writeln!(opcodes, "    (\"{name}\", {}),", window[2]);
        }
    }
    let _ = writeln!(
        out,
        "}}\n\npub const OPCODES: &[(&str, u16)] = &[\n{opcodes}];"
    );
    out
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(mlx5)");
    let Some(path) = header() else {
        return;
    };
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rustc-cfg=mlx5");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("ifc.rs"), generate(&text)).unwrap_or_else(|error| panic!("{error}"));
}
