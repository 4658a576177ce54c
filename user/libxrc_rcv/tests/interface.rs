// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Every function that the library exports is declared in the header and has a manual page with its
//! errors and an example, and nothing else is and has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The names that `marks` are around in `text`.
fn names(text: &str, before: char, after: char) -> BTreeSet<&str> {
    text.split(|c: char| c.is_whitespace() || c == '*')
        .filter_map(|word| word.strip_prefix(before).or(Some(word)))
        .filter_map(|word| word.split_once(after))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("xrc_rcv_"))
        .collect()
}

#[test]
fn exported_functions_are_declared_and_documented() {
    let map = read("libxrc_rcv.map");
    let exported = names(&map, '\t', ';');
    assert!(exported.contains("xrc_rcv_alloc_qp"));

    let header = read("include/infiniband/xrc_rcv.h");
    // Declarations, without comments.
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    assert_eq!(names(&code, '*', '('), exported);

    for name in &exported {
        let page = read(&format!("man/{name}.3.scd"));
        for section in ["# SYNOPSIS", "# RETURN VALUE", "# ERRORS", "# EXAMPLE"] {
            assert!(page.contains(section), "{name}(3) has no {section}");
        }
    }
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("man")).unwrap();
    let pages = pages.filter(|page| {
        page.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".3.scd")
    });
    assert_eq!(pages.count(), exported.len());
}
