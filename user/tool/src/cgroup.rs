// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Control groups of version 2, by their ids. The module keeps an id alone: that of a group
//! that was removed is not used again, but its path may be.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FsWord, statfs};

/// The places at which the hierarchy is mounted: alone, or beside those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The type of the file system, as in `<linux/magic.h>`.
const CGROUP2_SUPER_MAGIC: FsWord = 0x6367_7270;

/// The paths of the wanted groups below the root of the caller's cgroup namespace, as
/// `/proc/PID/cgroup` has them. A group that was removed has none, nor has one above that root.
pub(crate) fn paths(wanted: HashSet<u64>) -> HashMap<u64, String> {
    let is_hierarchy =
        |path: &&str| statfs(*path).is_ok_and(|found| found.f_type == CGROUP2_SUPER_MAGIC);
    match MOUNTS.iter().copied().find(is_hierarchy) {
        Some(root) if !wanted.is_empty() => paths_below(Path::new(root), wanted),
        _ => HashMap::new(),
    }
}

/// The id of a group is the inode number of its directory.
fn paths_below(root: &Path, mut wanted: HashSet<u64>) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    if let Ok(id) = fs::metadata(root).map(|directory| directory.ino()) {
        wanted.remove(&id).then(|| found.insert(id, "/".into()));
    }
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop().filter(|_| !wanted.is_empty()) {
        // It may have been removed meanwhile.
        let entries = fs::read_dir(root.join(&directory)).into_iter().flatten();
        for entry in entries.flatten() {
            // A group has files beside the groups below it.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                let path = format!("{directory}{}/", name.to_string_lossy());
                if wanted.remove(&entry.ino()) {
                    found.insert(entry.ino(), format!("/{}", path.trim_end_matches('/')));
                }
                directories.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_the_inode_numbers_of_their_directories() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("kube.slice/pod 7/kv");
        fs::create_dir_all(&deep).unwrap();
        fs::write(root.path().join("kube.slice/cgroup.procs"), "").unwrap();
        let id = |path: &Path| fs::metadata(path).unwrap().ino();
        let file = id(&root.path().join("kube.slice/cgroup.procs"));
        let wanted = [id(root.path()), id(&deep), id(deep.parent().unwrap()), file];
        let found = paths_below(root.path(), wanted.into());
        assert_eq!(
            wanted.map(|id| found.get(&id).map(String::as_str)),
            [
                Some("/"),
                Some("/kube.slice/pod 7/kv"),
                Some("/kube.slice/pod 7"),
                None
            ]
        );
        assert_eq!(
            paths_below(Path::new("/nonexistent"), wanted.into()),
            HashMap::new()
        );
    }
}
