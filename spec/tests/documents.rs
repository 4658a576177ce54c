// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The errors that `semantics.rst` and `uapi.rst` have for each method are those of the contract.

use std::fs;
use std::path::{Path, PathBuf};

use xrc_rcv_spec::{Errno, Errno::*, Errnos, Method};

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read_file(name: &str) -> String {
    let path = path_of(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn document(name: &str) -> String {
    read_file(&format!("Documentation/{name}"))
}

/// Returns the text of a section, up to the next heading of any level.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let is_line = |line: &str| line.len() > 2 && line.chars().all(|c| c == '-' || c == '=');
    let mut lines = document.lines().scan(0, |end, line| {
        let begin = *end;
        *end += line.len() + 1;
        Some((begin, line))
    });
    let found = lines.find(|(_, line)| *line == heading);
    assert!(found.is_some(), "no section {heading}");
    let (begin, line) = lines.next().expect("a heading is underlined");
    assert!(is_line(line), "no section {heading}");
    let mut before = begin;
    let end = lines.find_map(|(begin, line)| {
        let is_heading = is_line(line) && before != begin && !document[before..].starts_with('\n');
        let heading = before;
        before = begin;
        // The line of a table has blanks or is followed by its rows; that of a heading is as long.
        let is_as_long = document[heading..].lines().next().map(str::len) == Some(line.len());
        (is_heading && is_as_long && !line.contains(' ')).then_some(heading)
    });
    &document[begin..end.unwrap_or(document.len())]
}

/// Returns the errors that a text names.
fn errors_in(text: &str) -> Errnos {
    let mut errors = Errnos::NONE;
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        for errno in Errno::ALL {
            errors.add_if(word == errno.to_string(), *errno);
        }
    }
    errors
}

/// Returns the errors of a method in the table of the errors of any call: rows that name methods
/// are for these, those of a handle or a descriptor for the calls that have one.
fn common_errors(common: &str, method: Method) -> Errnos {
    let mut rows: Vec<(Errno, String)> = Vec::new();
    for line in common.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        match Errno::ALL.iter().find(|errno| errno.to_string() == first) {
            Some(errno) => rows.push((*errno, line.to_string())),
            None if line.starts_with(' ') => {
                if let Some((_, row)) = rows.last_mut() {
                    row.push_str(line);
                }
            }
            None => (),
        }
    }
    assert!(rows.len() > 8, "the table of semantics.rst");
    let mut errors = Errnos::NONE;
    for (errno, row) in rows {
        let names = |method: Method| {
            let mut words = row.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
            words.any(|word| word == method.name())
        };
        let is_for_some = Method::ALL.iter().any(|method| names(*method));
        let is_its_own = match errno {
            _ if is_for_some => names(method),
            ENOENT | EBUSY => method.names_handle(),
            EBADF => method.names_channel(),
            _ => true,
        };
        errors.add_if(is_its_own, errno);
    }
    errors
}

#[test]
fn semantics() {
    let document = document("semantics.rst");
    let common = section(&document, "Commands");
    for method in Method::ALL.iter().filter(|method| **method != Method::Read) {
        let own = errors_in(section(&document, method.name()));
        let documented = own.or(common_errors(common, *method));
        assert_eq!(documented, method.errors(), "{}", method.name());
    }
}

#[test]
fn read() {
    let document = document("uapi.rst");
    let documented = errors_in(section(&document, "Event channels"));
    assert_eq!(documented, Method::Read.errors());
}

/// The errors that the header has for the attributes of a method are of those of the method.
#[test]
fn header() {
    let header = read_file("src/include/uapi/rdma/ib_xrc_rcv.h");
    for method in Method::ALL.iter().filter(|method| **method != Method::Read) {
        let is_named = |prefix: &str, block: &str| {
            block.contains(&format!(
                "attributes of XRC_RCV_METHOD_{prefix}{}\n",
                method.name()
            ))
        };
        let mut blocks = header
            .split("/**")
            .filter_map(|block| block.split("*/").next());
        let block = blocks.find(|block| is_named("QP_", block) || is_named("", block));
        let errors = errors_in(block.expect("kernel-doc of the attributes"));
        let others = errors.without(method.errors());
        assert!(others.is_empty(), "{}: {others:?}", method.name());
    }
}

const HOSTILE: &str = "qemu/tests/module/errors.h";

/// Returns the errors of each method as module/hostile compares them.
fn errors_of_hostile() -> String {
    let mut table = String::from(
        "/* SPDX-License-Identifier: GPL-2.0 */\n\
         /* Written by spec/tests/documents.rs with SPEC_WRITE=y, of spec/src/method.rs. */\n\n\
         static const struct {\n\tconst char *method;\n\tint errors[24];\n} documented[] = {\n",
    );
    for method in Method::ALL.iter().filter(|method| **method != Method::Read) {
        let errors: Vec<_> = method
            .errors()
            .iter()
            .map(|errno| errno.to_string())
            .collect();
        let lines: Vec<_> = errors.chunks(7).map(|line| line.join(", ")).collect();
        let lines = lines.join(",\n\t\t");
        table += &format!("\t{{ \"{}\", {{\n\t\t{lines}\n\t}} }},\n", method.name());
    }
    table += "};\n";
    table
}

/// With SPEC_WRITE, the table is written anew.
#[test]
fn hostile() {
    let table = errors_of_hostile();
    if std::env::var_os("SPEC_WRITE").is_some() {
        fs::write(path_of(HOSTILE), &table).expect("the tree can be written to");
    }
    assert_eq!(read_file(HOSTILE), table, "write it with SPEC_WRITE=y");
}

/// A table that lacks an error is noticed.
#[cfg(feature = "mutants")]
#[test]
fn a_mutant_differs_from_the_documents() {
    use xrc_rcv_spec::Mutant;

    let mutant = Some(Mutant::BusyUndocumented);
    let check = || Mutant::during(mutant, semantics);
    assert!(std::panic::catch_unwind(check).is_err());
    let table = Mutant::during(mutant, errors_of_hostile);
    assert_ne!(read_file(HOSTILE), table);
}
