// SPDX-License-Identifier: GPL-2.0

//! The QPs, the memory, and the time to connect and to disconnect of one node of a machine, in
//! which each process exchanges messages with each process of all other nodes.
//!
//! The costs of one object are those that `make bench` measured. The rest is arithmetic; no
//! contention is assumed, so that times are lower bounds.

mod chart;
mod costs;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;

use costs::{Costs, Object};

/// The machines of the table: nodes, and processes on each.
const NODES: [u64; 9] = [2, 10, 32, 100, 316, 1_000, 10_000, 31_600, 100_000];
const PROCESSES: [u64; 6] = [1, 4, 16, 64, 128, 384];

/// QPs that a number of 24 bits can name.
const QP_NUMBERS: u64 = 1 << 24;

#[derive(Parser)]
struct Arguments {
    /// The measurements of `make bench`
    bench: PathBuf,
    /// The table of all machines
    #[arg(long)]
    csv: PathBuf,
    /// The chart
    #[arg(long)]
    svg: PathBuf,
    /// Processes of each node in the chart
    #[arg(long, default_value_t = 64)]
    processes: u64,
    /// Receives that a process keeps posted: in an SRQ, or in the receive queue of each RC QP
    #[arg(long, default_value_t = 512)]
    receives: u64,
    /// Receives that are posted to each RC QP without an SRQ
    #[arg(long, default_value_t = 8)]
    receives_per_qp: u64,
    /// Bytes of a receive buffer
    #[arg(long, default_value_t = 4096)]
    buffer: u64,
    /// DC initiators of each process: UCX_DC_MLX5_NUM_DCI, whose default is 8, or 32 in newer
    /// releases
    #[arg(long, default_value_t = 8)]
    initiators: u64,
}

/// The connections between the processes of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum Design {
    #[serde(rename = "RC")]
    Rc,
    #[serde(rename = "RC with SRQs")]
    RcSrq,
    /// All processes of a node open each of its target QPs, so that the exit of its creator
    /// destroys none.
    #[serde(rename = "XRC, mainline")]
    Mainline,
    /// All processes of a node register with each of its receive QPs.
    #[serde(rename = "XRC, ib_xrc_rcv")]
    Ours,
    /// Only the creator registers: the domain keeps the receive QPs.
    #[serde(rename = "XRC, ib_xrc_rcv, kept by the domain")]
    Domain,
    #[serde(rename = "DC")]
    Dc,
}

impl Design {
    const ALL: [Design; 6] = [
        Design::Rc,
        Design::RcSrq,
        Design::Mainline,
        Design::Ours,
        Design::Domain,
        Design::Dc,
    ];

    fn name(self) -> &'static str {
        match self {
            Design::Rc => "RC",
            Design::RcSrq => "RC with SRQs",
            Design::Mainline => "XRC, mainline",
            Design::Ours => "XRC, ib_xrc_rcv",
            Design::Domain => "XRC, ib_xrc_rcv, kept by the domain",
            Design::Dc => "DC",
        }
    }

    /// The objects of a node, and how many of each.
    fn objects(self, nodes: u64, processes: u64, initiators: u64) -> Vec<(Object, u64)> {
        let peers = nodes - 1;
        // One from each process of the node to each other node, and one to the node from each
        // process elsewhere.
        let each_way = processes * peers;
        let others = each_way * (processes - 1);
        match self {
            Design::Rc => vec![(Object::Rc, each_way * processes)],
            Design::RcSrq => vec![(Object::RcSrq, each_way * processes)],
            Design::Mainline => vec![
                (Object::XrcSend, each_way),
                (Object::Target, each_way),
                (Object::Opened, others),
            ],
            Design::Ours => vec![
                (Object::XrcSend, each_way),
                (Object::Receive, each_way),
                (Object::Registration, others),
            ],
            Design::Domain => vec![(Object::XrcSend, each_way), (Object::Receive, each_way)],
            // The cost of a DC initiator and a target was not measured: the lab has no device with
            // them. They have the queues of an RC QP with an SRQ.
            Design::Dc => vec![(Object::RcSrq, processes * (initiators + 1))],
        }
    }

    /// The bytes of all receive buffers of a node.
    fn buffers(self, nodes: u64, processes: u64, arguments: &Arguments) -> u64 {
        let receives = match self {
            Design::Rc => (nodes - 1) * processes * processes * arguments.receives_per_qp,
            _ => processes * arguments.receives,
        };
        receives * arguments.buffer
    }
}

/// A node of a machine.
#[derive(Debug, Serialize)]
struct Node {
    nodes: u64,
    processes: u64,
    design: Design,
    qps: u64,
    /// Whether the device can number them.
    possible: bool,
    memory_bytes: f64,
    /// A process does its part, one call after the other.
    connect_seconds: f64,
    disconnect_seconds: f64,
}

impl Node {
    fn new(
        design: Design,
        nodes: u64,
        processes: u64,
        costs: &Costs,
        arguments: &Arguments,
    ) -> Node {
        let objects = design.objects(nodes, processes, arguments.initiators);
        let sum = |cost: fn(&costs::Cost) -> f64| -> f64 {
            let each = |(object, n): &(Object, u64)| cost(costs.of(*object)) * *n as f64;
            objects.iter().map(each).sum()
        };
        let qps = objects.iter().filter(|(object, _)| object.is_qp());
        let qps = qps.map(|(_, n)| n).sum();
        Node {
            nodes,
            processes,
            design,
            qps,
            possible: qps <= QP_NUMBERS,
            memory_bytes: sum(|cost| cost.bytes)
                + design.buffers(nodes, processes, arguments) as f64,
            connect_seconds: sum(|cost| cost.create_us) / 1e6 / processes as f64,
            disconnect_seconds: sum(|cost| cost.destroy_us) / 1e6 / processes as f64,
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let costs = Costs::read(&arguments.bench)?;
    let machine = |processes, nodes| {
        let node = |design| Node::new(design, nodes, processes, &costs, &arguments);
        Design::ALL.map(node)
    };

    let mut table = csv::Writer::from_path(&arguments.csv)
        .with_context(|| arguments.csv.display().to_string())?;
    for processes in PROCESSES {
        for node in NODES.iter().flat_map(|nodes| machine(processes, *nodes)) {
            table.serialize(node)?;
        }
    }
    table.flush()?;
    let charted: Vec<Node> = NODES
        .iter()
        .flat_map(|nodes| machine(arguments.processes, *nodes))
        .collect();
    chart::draw(&arguments.svg, arguments.processes, &charted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(design: Design, object: Object) -> u64 {
        let objects = design.objects(100, 64, 8);
        objects
            .iter()
            .filter(|(found, _)| *found == object)
            .map(|(_, n)| n)
            .sum()
    }

    #[test]
    fn rc_connects_each_pair_of_processes() {
        assert_eq!(count(Design::Rc, Object::Rc), 64 * 64 * 99);
    }

    #[test]
    fn xrc_connects_each_process_with_each_node() {
        for (design, target) in [
            (Design::Mainline, Object::Target),
            (Design::Ours, Object::Receive),
        ] {
            assert_eq!(count(design, Object::XrcSend), 64 * 99);
            assert_eq!(count(design, target), 64 * 99);
        }
        assert_eq!(count(Design::Ours, Object::Registration), 64 * 99 * 63);
        assert_eq!(count(Design::Mainline, Object::Opened), 64 * 99 * 63);
        assert_eq!(count(Design::Domain, Object::Registration), 0);
    }

    #[test]
    fn dc_does_not_grow_with_the_machine() {
        assert_eq!(count(Design::Dc, Object::RcSrq), 64 * 9);
    }
}
