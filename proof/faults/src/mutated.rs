// SPDX-License-Identifier: GPL-2.0

//! A copy of the tree in which the module's files have all faults.
//!
//! The files are those that the checker compiles. A module for guests needs the list of all, and a
//! guard that reads a module parameter.

use crate::{
    edit::{Edit, Edited},
    fault::{self, Fault, Operator},
    find,
};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    ops::Range,
    path::{Component, Path, PathBuf},
};

/// The checker in the tree, and the file of it that says which fault is there.
pub const CHECKER: &str = "proof/checker";
const GUARD: &str = include_str!("../guard/checker.rs");

/// The files of the module that the checker's build script copies. A file whose parts are beside it
/// is `mod.rs` there.
const COPIED: [&str; 5] = [
    "src/kernel_api.rs",
    "src/rdma/qp.rs",
    "src/rdma/qp_attr.rs",
    "src/rdma/qp_attr/mask.rs",
    "src/rdma/qp_attr/state.rs",
];

/// The end of the ABI there.
const UNWIND: &str = "-unwind";

/// A file of the module.
struct Source {
    name: String,
    text: String,
    /// Edits that all faults need.
    edits: Vec<Edit>,
    /// The numbers of its faults.
    numbers: Range<usize>,
}

/// The places of the faults of a file in the copy.
pub struct Placed {
    /// The texts that were inserted for each.
    pub inserted: Vec<(usize, Range<usize>)>,
    /// The part that each changes, with these.
    pub hulls: HashMap<usize, Range<usize>>,
}

/// See the [module's documentation](self). The first fault has the number 1.
pub struct Mutated {
    /// The tree without faults.
    tree: PathBuf,
    root: PathBuf,
    sources: Vec<Source>,
    faults: Vec<Fault>,
    /// The numbers of those with which the source does not compile.
    left_out: BTreeSet<usize>,
}

impl Mutated {
    /// Finds the faults of a tree, of which `root` becomes a copy.
    pub fn new(tree: &Path, root: &Path) -> Result<Self> {
        let mut sources = Vec::new();
        let mut faults = Vec::new();

        for name in files(tree)? {
            let text = fs::read_to_string(tree.join(&name)).with_context(|| name.clone())?;
            let first = faults.len() + 1;
            let found = find::find(&name, &text, first).with_context(|| name.clone())?;

            faults.extend(found.faults);
            sources.push(Source {
                name,
                text,
                edits: found.edits,
                numbers: first..faults.len() + 1,
            });
        }
        fault::tell_apart(&mut faults);
        Ok(Self {
            tree: tree.into(),
            root: root.into(),
            sources,
            faults,
            left_out: BTreeSet::new(),
        })
    }

    /// Returns where the copy is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the faults that are in the copy, with their numbers.
    pub fn faults(&self) -> impl Iterator<Item = (usize, &Fault)> {
        (1..)
            .zip(&self.faults)
            .filter(|(number, _)| !self.left_out.contains(number))
    }

    /// Returns the numbers of faults with which the source does not compile, by their kind.
    pub fn left_out(&self) -> BTreeMap<Operator, usize> {
        let mut numbers = BTreeMap::new();

        for number in &self.left_out {
            *numbers.entry(self.faults[number - 1].operator).or_default() += 1;
        }
        numbers
    }

    /// Returns their numbers.
    pub fn left_out_numbers(&self) -> impl Iterator<Item = usize> {
        self.left_out.iter().copied()
    }

    /// Leaves out faults.
    pub fn leave_out(&mut self, numbers: impl IntoIterator<Item = usize>) {
        self.left_out.extend(numbers);
    }

    /// Writes the copy, whose files have the faults. Returns where these are, by file.
    pub fn write(&self) -> Result<HashMap<String, Placed>> {
        let mut placed = HashMap::new();
        let root_file = Path::new(CHECKER).join("src/lib.rs");
        let is_changed = |name: &Path| {
            name == root_file
                || self
                    .sources
                    .iter()
                    .any(|source| Path::new(&source.name) == name)
        };

        copy(&self.tree, &self.root, Path::new(""), &is_changed)?;

        for source in &self.sources {
            let of_faults = source
                .numbers
                .clone()
                .filter(|number| !self.left_out.contains(number));
            let edits = of_faults.flat_map(|number| {
                let edits = self.faults[number - 1].edits.iter();

                edits.map(move |edit| (number, edit.clone()))
            });
            let needed = source.edits.iter().map(|edit| (0, edit.clone()));
            let edited = Edited::new(&source.text, edits.chain(needed));

            write_if_new(&self.root.join(&source.name), edited.text.as_bytes())?;
            placed.insert(source.name.clone(), Placed::new(edited.inserted));
        }

        let root_text = fs::read_to_string(self.tree.join(&root_file))?;
        let guard = self.root.join(CHECKER).join("src/fault.rs");
        let count = format!(
            "\n/// The number of faults, and one.\nconst COUNT: usize = {};\n",
            self.faults.len() + 1
        );

        write_if_new(
            &self.root.join(root_file),
            format!("{root_text}\nmod fault;\n").as_bytes(),
        )?;
        write_if_new(&guard, format!("{GUARD}{count}").as_bytes())?;
        Ok(placed)
    }
}

impl Placed {
    fn new(inserted: Vec<(usize, Range<usize>)>) -> Self {
        let mut hulls: HashMap<usize, Range<usize>> = HashMap::new();

        for (number, place) in &inserted {
            let hull = hulls.entry(*number).or_insert(place.clone());

            *hull = hull.start.min(place.start)..hull.end.max(place.end);
        }
        hulls.remove(&0);
        Self {
            inserted: inserted
                .into_iter()
                .filter(|(number, _)| *number != 0)
                .collect(),
            hulls,
        }
    }
}

/// Writes a file unless it has this text: cargo builds what is newer.
fn write_if_new(path: &Path, text: &[u8]) -> Result<()> {
    if fs::read(path).ok().as_deref() != Some(text) {
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Copies what is in a directory of a tree, but for files that are written otherwise, and links to
/// nothing.
fn copy(
    tree: &Path,
    root: &Path,
    directory: &Path,
    is_changed: &impl Fn(&Path) -> bool,
) -> Result<()> {
    fs::create_dir_all(root.join(directory))?;
    for entry in fs::read_dir(tree.join(directory))? {
        let name = directory.join(entry?.file_name());
        let from = tree.join(&name);

        if from.is_dir() {
            copy(tree, root, &name, is_changed)?;
        } else if from.is_file() && !is_changed(&name) {
            write_if_new(
                &root.join(&name),
                &fs::read(&from).with_context(|| from.display().to_string())?,
            )?;
        }
    }
    Ok(())
}

/// Returns the path without `..`, which follows the names of directories that exist.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();

    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => (),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns a place in the tree for a place that the compiler names, which may be in the copy of the
/// build script.
pub fn in_tree(path: &Path, place: Range<usize>) -> (PathBuf, Range<usize>) {
    match (copied(path), fs::read(path)) {
        (Some(file), Ok(text)) => (file.into(), before_copying(&text, place)),
        _ => (plain(path), place),
    }
}

/// Returns the file that a path is a copy of, if it is in the directory of the build script.
fn copied(path: &Path) -> Option<&'static str> {
    let (_, copy) = path.to_str()?.rsplit_once("/out/")?;
    let name = copy.strip_suffix("/mod.rs").or(copy.strip_suffix(".rs"))?;
    let mut files = COPIED.into_iter();

    files.find(|file| *file == format!("src/{name}.rs"))
}

/// Returns the place in the original of a place in the copy, whose ABI is longer.
fn before_copying(copy: &[u8], place: Range<usize>) -> Range<usize> {
    let original = |place: usize| {
        let before = String::from_utf8_lossy(&copy[..place.min(copy.len())]).into_owned();

        place - before.matches(UNWIND).count() * UNWIND.len()
    };

    original(place.start)..original(place.end)
}

/// Returns the files of `src/` that the checker compiles, as paths in the tree.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    let mut directories = vec![root.join(CHECKER).join("src")];

    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();

            if path.is_dir() {
                directories.push(path);
                continue;
            }
            for line in fs::read_to_string(&path)?.lines() {
                let named = line
                    .strip_prefix("#[path = \"")
                    .and_then(|rest| rest.strip_suffix("\"]"));
                let file = named.map(|named| plain(&directory.join(named)));
                let name = file.as_ref().and_then(|file| file.strip_prefix(root).ok());

                files.extend(
                    name.filter(|name| name.starts_with("src"))
                        .map(|name| name.display().to_string()),
                );
            }
        }
    }
    if files.is_empty() {
        bail!("{CHECKER} compiles no file of src/");
    }
    files.extend(COPIED.map(String::from));
    Ok(files.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_copied() {
        let copied = |name: &str| copied(Path::new(name));

        assert_eq!(
            copied("/target/build/checker-1/out/rdma/qp_attr/mod.rs"),
            Some("src/rdma/qp_attr.rs")
        );
        assert_eq!(
            copied("/target/build/checker-1/out/rdma/qp_attr/mask.rs"),
            Some("src/rdma/qp_attr/mask.rs")
        );
        assert_eq!(copied("/target/build/checker-1/out/module.rs"), None);
        assert_eq!(copied("proof/checker/src/kernel_api.rs"), None);
    }

    #[test]
    fn places_in_the_copy() {
        let original = "extern \"C\" fn f() { a } extern \"C\" fn g() { b }";
        let copy = original.replace("\"C\"", "\"C-unwind\"");

        for name in ["a", "b"] {
            let place = |text: &str| {
                let start = text.find(&format!(" {name} ")).unwrap();

                start..start + name.len()
            };

            assert_eq!(
                before_copying(copy.as_bytes(), place(&copy)),
                place(original)
            );
        }
    }
}
