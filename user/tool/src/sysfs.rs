// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! RDMA devices, as sysfs lists them for the caller's network namespace.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result};

/// An RDMA device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RdmaDevice {
    pub(crate) name: String,
    /// Whether ib_uverbs offers it to user space.
    pub(crate) exposed: bool,
}

/// Where sysfs is mounted.
pub(crate) const ROOT: &str = "/sys";

/// All devices, by name.
pub(crate) fn devices(root: &Path) -> Result<Vec<RdmaDevice>> {
    let mut devices: Vec<RdmaDevice> = names(&root.join("class/infiniband"))?
        .into_iter()
        .map(|name| RdmaDevice {
            name,
            exposed: false,
        })
        .collect();
    let class = root.join("class/infiniband_verbs");
    for uverbs in names(&class)? {
        // The directory has files beside the devices.
        let Ok(name) = fs::read_to_string(class.join(&uverbs).join("ibdev")) else {
            continue;
        };
        if let Some(device) = devices
            .iter_mut()
            .find(|device| device.name == name.trim_end())
        {
            device.exposed = true;
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| directory.display().to_string())?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()
        .with_context(|| directory.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(devices(root.path()).unwrap(), []);
        for name in ["rxe_right", "mlx4_0", "rxe_left"] {
            fs::create_dir_all(root.path().join("class/infiniband").join(name)).unwrap();
        }
        let class = root.path().join("class/infiniband_verbs");
        for (uverbs, name) in [("uverbs0", "rxe_left\n"), ("uverbs1", "rxe_right\n")] {
            fs::create_dir_all(class.join(uverbs)).unwrap();
            fs::write(class.join(uverbs).join("ibdev"), name).unwrap();
        }
        fs::write(class.join("abi_version"), "6\n").unwrap();
        let found: Vec<_> = devices(root.path())
            .unwrap()
            .into_iter()
            .map(|d| (d.name, d.exposed))
            .collect();
        assert_eq!(
            found,
            [
                ("mlx4_0".into(), false),
                ("rxe_left".into(), true),
                ("rxe_right".into(), true),
            ]
        );
    }
}
