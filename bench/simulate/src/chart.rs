// SPDX-License-Identifier: GPL-2.0

//! The chart: memory, QPs and time beside each other, over the number of nodes.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use crate::{Design, NODES, Node, QP_NUMBERS};

const SIZE: (u32, u32) = (1500, 520);

/// A panel: its title, its range, and what it shows of a node.
type Panel = (&'static str, std::ops::Range<f64>, fn(&Node) -> f64);

const PANELS: [Panel; 3] = [
    // With room for the legend.
    ("QPs of a node", 1e0..1e12, |node| node.qps as f64),
    ("Memory of a node, MiB", 1e0..1e9, |node| {
        node.memory_bytes / 1_048_576.0
    }),
    ("Time to connect, s", 1e-4..1e5, |node| node.connect_seconds),
];

fn color(design: Design) -> RGBColor {
    match design {
        Design::Rc => RGBColor(0x99, 0x99, 0x99),
        Design::RcSrq => RGBColor(0x55, 0x55, 0x55),
        Design::Mainline => RGBColor(0xd5, 0x5e, 0x00),
        Design::Ours => RGBColor(0x00, 0x72, 0xb2),
        Design::Domain => RGBColor(0x00, 0x9e, 0x73),
        Design::Dc => RGBColor(0xcc, 0x79, 0xa7),
    }
}

pub(crate) fn draw(path: &Path, processes: u64, nodes: &[Node]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title =
        format!("A node with {processes} processes, each connected with each of all others");
    let root = root.titled(&title, ("sans-serif", 22))?;
    let x = NODES[0] as f64..NODES[NODES.len() - 1] as f64;

    for (area, (name, y, value)) in root.split_evenly((1, PANELS.len())).iter().zip(PANELS) {
        let mut chart = ChartBuilder::on(area)
            .caption(name, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(62)
            .build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("nodes")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:e}"))
            .draw()?;
        if name == PANELS[0].0 {
            let limit = [x.start, x.end].map(|x| (x, QP_NUMBERS as f64));
            chart
                .draw_series(DashedLineSeries::new(limit, 6, 4, BLACK.stroke_width(1)))?
                .label("QP numbers of a device")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK));
        }
        for design in Design::ALL {
            let points = nodes.iter().filter(|node| node.design == design);
            let points = points.map(|node| (node.nodes as f64, value(node)));
            let style = color(design).stroke_width(2);
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(design.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        if name == PANELS[0].0 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .draw()?;
        }
    }
    root.present()?;
    Ok(())
}
