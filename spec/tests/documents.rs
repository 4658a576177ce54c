// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The errors that `semantics.rst` and `uapi.rst` have for each method are those of the contract.

use std::fs;
use std::path::{Path, PathBuf};

use xrc_rcv_spec::{
    Call, Caller, Contract, Errno, Errno::*, Errnos, Membership, Method, Outcome, Right, Wrong,
};

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

/// The table of `uapi.rst` is that of the contract, and each error is one of the methods whose
/// calls can have what is wrong.
#[test]
fn wrong_calls() {
    let document = document("uapi.rst");
    let rows = section(&document, "Wrong calls")
        .lines()
        .filter_map(|line| {
            let (text, errno) = line.rsplit_once("  ")?;
            let errno = Errno::ALL.iter().find(|known| known.to_string() == errno)?;
            Some((text.trim_end().to_string(), *errno))
        });
    let rows: Vec<_> = rows.collect();
    let wrongs: Vec<_> = Wrong::ALL
        .iter()
        .map(|wrong| (wrong.text().to_string(), wrong.errno()))
        .collect();
    assert_eq!(rows, wrongs);
    for method in Method::ALL.iter().filter(|method| **method != Method::Read) {
        let can_have = |wrong: &&Wrong| match wrong {
            Wrong::NoHandle | Wrong::Handle | Wrong::Object => method.names_handle(),
            Wrong::Channel | Wrong::Descriptor => method.names_channel(),
            // Those with a structure.
            Wrong::NotZero | Wrong::Padding => matches!(method, Method::Alloc | Method::Modify),
            _ => true,
        };
        for wrong in Wrong::ALL.iter().filter(can_have) {
            let is_documented = method.errors().has(wrong.errno());
            assert!(is_documented, "{}: {wrong:?}", method.name());
        }
    }
}

const HOSTILE: &str = "qemu/tests/module/errors.h";

/// Returns the error of REG of a number that no QP has.
fn error_of_unknown_number() -> Errno {
    let mut contract = Contract::new();
    let (file, handle, channel) = (1, 1, 1);
    let caller = Caller {
        file,
        user: 1,
        right: Right::Own,
    };
    let open = Call::EventChannelAlloc {
        handle,
        mask: !0,
        of: Some(Membership::Named),
    };
    let opened = Outcome {
        result: Ok(()),
        number: 0,
        serial: 0,
        channel,
        done: 0,
        total: None,
    };
    let numbers = [0xff_ffff][..].into();
    contract.objects.open_domain(file, handle, 1);
    let taken = contract.take(caller, &open, &opened, Errnos::NONE);
    assert_eq!(taken, Ok(()));
    let results = contract.results(caller, &Call::Reg { channel, numbers });
    let mut errors = results.certain.iter();
    errors.next().expect("it fails")
}

/// Returns the errors of wrong calls, and those of each method, as module/hostile compares them.
fn errors_of_hostile() -> String {
    let mut table = String::from(
        "/* SPDX-License-Identifier: GPL-2.0 */\n\
         /* Written by spec/tests/documents.rs with SPEC_WRITE=y, of spec/src/. */\n\n\
         /* The error of a call with one thing wrong, and of REG of an unknown number. */\nenum {\n",
    );
    for wrong in Wrong::ALL {
        table += &format!("\tWRONG_{} = {},\n", wrong.name(), wrong.errno());
    }
    table += &format!("\tUNKNOWN_NUMBER = {},\n", error_of_unknown_number());
    table.push_str("};\n\nstatic const struct {\n\tconst char *method;\n\tint errors[24];\n");
    table.push_str("} documented[] = {\n");
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
