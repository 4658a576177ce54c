// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Serves modelled adapters, ConnectX-3 and ConnectX-6, to QEMU.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use vmlx::engine::adapter::Adapter;
use vmlx::engine::server::{bind, Backend, SharedFabric};
use vmlx::mlx4::card::Hca;

/// Serves modelled adapters, ConnectX-3 and ConnectX-6, to QEMU's vfio-user-pci.
///
/// Several sockets make several adapters on one InfiniBand subnet, for a guest each.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// UNIX socket for QEMU to connect to; a ConnectX-3 each
    #[arg(long = "socket")]
    sockets: Vec<PathBuf>,

    /// The same, for a ConnectX-6 each; they come after those of --socket
    #[cfg(mlx5)]
    #[arg(long = "mlx5-socket")]
    mlx5_sockets: Vec<PathBuf>,

    /// UNIX socket for tests to connect to, see vmlxctl
    #[arg(long)]
    control: Option<PathBuf>,

    /// Directory that captures may be written to, see vmlxctl
    #[arg(long)]
    captures: Option<PathBuf>,

    /// End when the first QEMU disconnects, instead of waiting for another
    #[arg(long)]
    once: bool,
}

impl Arguments {
    /// The sockets of all adapters, in order.
    fn sockets(&self) -> impl Iterator<Item = &PathBuf> {
        #[cfg(mlx5)]
        return self.sockets.iter().chain(&self.mlx5_sockets);
        #[cfg(not(mlx5))]
        self.sockets.iter()
    }

    /// The ConnectX-6 adapters, numbered after the others.
    #[cfg(mlx5)]
    fn mlx5_hcas(&self) -> impl Iterator<Item = Box<dyn Adapter>> + '_ {
        let hcas = (self.sockets.len()..).take(self.mlx5_sockets.len());
        hcas.map(|index| -> Box<dyn Adapter> { Box::new(vmlx::mlx5::card::Hca::new(index)) })
    }

    #[cfg(not(mlx5))]
    fn mlx5_hcas(&self) -> impl Iterator<Item = Box<dyn Adapter>> + '_ {
        std::iter::empty()
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Removes a socket that a process killed earlier left behind.
fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        if let Err(error) = std::fs::remove_file(path) {
            log::warn!("{}: {error}", path.display());
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let connectx3 =
        (0..arguments.sockets.len()).map(|index| -> Box<dyn Adapter> { Box::new(Hca::new(index)) });
    let hcas: Vec<_> = connectx3.chain(arguments.mlx5_hcas()).collect();
    if hcas.is_empty() {
        return Err("there is no socket, so there is no adapter".into());
    }
    let sockets: Vec<_> = arguments.sockets().cloned().collect();
    let identities: Vec<_> = hcas.iter().map(|hca| hca.identity()).collect();
    let shared = SharedFabric::new(hcas);
    shared.with(|fabric| fabric.captures = arguments.captures.clone());
    if let Some(path) = &arguments.control {
        remove_stale(path);
        vmlx::engine::control::listen(path, &shared)?;
    }
    let engine = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || engine.engine())?;

    // All sockets listen before the first answer, so that QEMU may be started at once.
    let mut servers = Vec::new();
    for (path, identity) in sockets.iter().zip(identities) {
        remove_stale(path);
        servers.push(bind(path, identity)?);
    }
    let (ended, end) = std::sync::mpsc::channel();
    for (index, server) in servers.into_iter().enumerate() {
        let mut backend = Backend::new(Arc::clone(&shared), index);
        let ended = ended.clone();
        let once = arguments.once;
        std::thread::Builder::new()
            .name(format!("hca{index}"))
            .spawn(move || loop {
                let result = server.run(&mut backend);
                backend.disconnect();
                if let Err(error) = &result {
                    log::warn!("adapter {index}: {error}");
                }
                if once {
                    // The receiver lives as long as the process.
                    let _ = ended.send(());
                    return;
                }
            })?;
    }
    end.recv()?;
    for path in sockets.iter().chain(&arguments.control) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
