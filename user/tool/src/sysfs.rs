// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! RDMA devices, as sysfs lists them for the caller's network namespace. Files of ib_uverbs it
//! lists for all namespaces.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use xrc_rcv::Path;

/// An RDMA device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RdmaDevice {
    pub(crate) name: String,
    /// Its file in `/dev/infiniband`, if ib_uverbs offers it to user space; or that of another
    /// device of its name.
    pub(crate) uverbs: Option<String>,
}

/// The mount point of sysfs.
pub(crate) const ROOT: &str = "/sys";

/// All devices, by name.
pub(crate) fn devices(root: &std::path::Path) -> Result<Vec<RdmaDevice>> {
    let mut devices: Vec<RdmaDevice> = names(&root.join("class/infiniband"))?
        .into_iter()
        .map(|name| RdmaDevice { name, uverbs: None })
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
            device.uverbs = Some(uverbs);
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

/// The device of that name, which has to be there, or all of them.
pub(crate) fn devices_named(root: &std::path::Path, name: Option<&str>) -> Result<Vec<RdmaDevice>> {
    let mut found = devices(root)?;
    if let Some(name) = name {
        found.retain(|device| device.name == name);
        if found.is_empty() {
            bail!("no RDMA device {name} in this network namespace ('rdma dev' lists them)");
        }
    }
    Ok(found)
}

/// A port, and the way from it to itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) path: Path,
}

/// The first active port of a device.
pub(crate) fn active_port(root: &std::path::Path, device: &str) -> Result<Option<Port>> {
    let ports = root.join("class/infiniband").join(device).join("ports");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok::<_, anyhow::Error>(text.trim().to_string())
    };
    let mut numbers: Vec<u8> = names(&ports)?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    for number in numbers {
        let port = ports.join(number.to_string());
        if !read(port.join("state"))?.ends_with("ACTIVE") {
            continue;
        }
        if read(port.join("link_layer"))? == "InfiniBand" {
            let lid = read(port.join("lid"))?;
            let lid = u16::from_str_radix(lid.trim_start_matches("0x"), 16).context(lid)?;
            let path = Path::lid(number, lid);
            return Ok(Some(Port { number, path }));
        }
        // One of IPv4 if there is one: a link-local address may not lead to itself.
        let mut paths = Vec::new();
        for index in 0..=u8::MAX {
            // Entries without a GID have no type to be read.
            let Ok(kind) = read(port.join(format!("gid_attrs/types/{index}"))) else {
                continue;
            };
            if kind == "RoCE v2" {
                let gid = read(port.join(format!("gids/{index}")))?;
                let gid: Ipv6Addr = gid.parse().context(gid)?;
                let path = Path::gid(number, gid.octets(), index);
                paths.push((gid.to_ipv4_mapped().is_none(), path));
            }
        }
        paths.sort_by_key(|(not_ipv4, _)| *not_ipv4);
        if let Some((_, path)) = paths.into_iter().next() {
            return Ok(Some(Port { number, path }));
        }
    }
    Ok(None)
}

/// The names in a directory; none if it does not exist.
fn names(directory: &std::path::Path) -> Result<Vec<String>> {
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
        let named = |name| devices_named(root.path(), Some(name));
        assert_eq!(named("mlx4_0").unwrap().len(), 1);
        assert!(
            named("mlx4")
                .unwrap_err()
                .to_string()
                .contains("no RDMA device mlx4 ")
        );
        let found: Vec<_> = devices(root.path())
            .unwrap()
            .into_iter()
            .map(|d| (d.name, d.uverbs.is_some()))
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
    #[test]
    fn the_first_active_port_leads_to_itself() {
        let root = tempfile::tempdir().unwrap();
        let port = |device: &str, number: u8, files: &[(&str, &str)]| {
            for (name, text) in files {
                let ports = root.path().join("class/infiniband").join(device);
                let file = ports.join(format!("ports/{number}")).join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
        };
        let (down, up) = (("state", "1: DOWN\n"), ("state", "4: ACTIVE\n"));
        let (ib, ethernet) = (("link_layer", "InfiniBand\n"), ("link_layer", "Ethernet\n"));
        port("mlx4_0", 1, &[down, ib, ("lid", "0x1\n")]);
        port("mlx4_0", 2, &[up, ib, ("lid", "0x2a\n")]);
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
        let local = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
        port(
            "rxe0",
            1,
            &[up, ethernet, ("gids/1", local), ("gids/2", gid)],
        );
        for kind in ["gid_attrs/types/1", "gid_attrs/types/2"] {
            port("rxe0", 1, &[(kind, "RoCE v2\n")]);
        }
        port("rxe1", 1, &[down, ethernet]);

        let found = |device| active_port(root.path(), device).unwrap();
        let path = Path::lid(2, 0x2a);
        assert_eq!(found("mlx4_0"), Some(Port { number: 2, path }));
        let mapped = "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
        let path = Path::gid(1, mapped, 2);
        assert_eq!(found("rxe0"), Some(Port { number: 1, path }));
        assert_eq!(found("rxe1"), None);
    }
}
