// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The results for people: a table, or on a terminal that is too narrow for it a tree.

use tabled::builder::Builder;

use super::{Measurement, Results};
use crate::show::{fits, render, wrapped};

/// The ratio between the highest and the lowest ratio of the rounds from which a row is marked.
const WIDE: f64 = 2.0;

/// The results as text, for a terminal of `width` columns if they are printed to one.
pub(super) fn text(results: &Results, width: Option<usize>) -> String {
    let title = format!(
        "ib_xrc_rcv beside mainline on {}, Linux {}, {} CPU(s)",
        results.ifname, results.kernel, results.cpus
    );
    let mut notes = vec![
        "RATIO is the median of all rounds' ratios, below 1 where ib_xrc_rcv takes less;".into(),
        format!(
            "! marks rounds that differ by more than {WIDE}, as on a busy machine or with --divisor"
        ),
    ];
    if let Some(reason) = &results.mainline_skipped {
        notes = vec![format!("{reason}.")];
    }
    let table = format!("{title}\n{}\n\n{}\n", notes.join("\n"), table(results));
    if fits(&table, width) {
        return table;
    }
    let rows = results.measurements.iter().map(|row| {
        let name = format!("{}, N = {}", row.measurement, row.n);
        wrapped(name, 1, width).with_leaves([wrapped(described(row), 2, width)])
    });
    let tree = wrapped(title, 0, width).with_leaves(rows);
    format!("{}\n{tree}", wrapped(notes.join(" "), 0, width))
}

fn table(results: &Results) -> String {
    let mut table = Builder::new();
    table.push_record([
        "MEASUREMENT",
        "N",
        "UNIT",
        "IB_XRC_RCV",
        "MAINLINE",
        "RATIO",
        "LOWEST - HIGHEST",
    ]);
    for row in &results.measurements {
        table.push_record([
            row.measurement.into(),
            row.n.to_string(),
            row.unit.into(),
            shown(row.ib_xrc_rcv),
            mainline(row).unwrap_or("-".into()),
            row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            spread(&row.ratios).unwrap_or("-".into()),
        ]);
    }
    render(table)
}

/// The figures of a row of the table, in words.
fn described(row: &Measurement) -> String {
    let mut text = format!("ib_xrc_rcv {} {}", shown(row.ib_xrc_rcv), row.unit);
    if let Some(mainline) = mainline(row) {
        text += &format!(", mainline {mainline}");
    }
    if let (Some(ratio), Some(spread)) = (row.ratio, spread(&row.ratios)) {
        text += &format!(", RATIO {ratio:.2} ({spread})");
    }
    text
}

/// Mainline's figure, or how many readers got no event; `None` if mainline has no such operation.
fn mainline(row: &Measurement) -> Option<String> {
    match (row.mainline, row.delivered) {
        (Some(figure), _) => Some(shown(figure)),
        (None, Some(delivered)) => Some(format!(
            "not delivered to {} of {}",
            row.n - delivered,
            row.n
        )),
        (None, None) => None,
    }
}

/// The ratios of the rounds, from the lowest to the highest, and a mark if they differ much.
fn spread(ratios: &[f64]) -> Option<String> {
    let low = ratios.iter().copied().min_by(f64::total_cmp)?;
    let high = ratios.iter().copied().max_by(f64::total_cmp)?;
    let mark = if high > WIDE * low { " !" } else { "" };
    Some(format!("{low:.2} - {high:.2}{mark}"))
}

/// A figure, if it could be measured.
fn shown(figure: f64) -> String {
    if figure > 0.0 {
        format!("{figure:.1}")
    } else {
        "-".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::JSON_VERSION;

    fn results() -> Results {
        let mut silent = Measurement::new("event", 64, "us", &[(5.0, None)]);
        silent.delivered = Some(1);
        Results {
            version: JSON_VERSION,
            kernel: "7.2".into(),
            ifname: "rxe0".into(),
            cpus: 2,
            mainline_skipped: None,
            measurements: vec![
                Measurement::new(
                    "join (REG; ibv_open_qp)",
                    1,
                    "us",
                    &[(1.0, Some(2.0)), (3.0, Some(2.0))],
                ),
                Measurement::alone("a call without work", 1, "us", &[2.04]),
                silent,
            ],
        }
    }

    #[test]
    fn the_table_has_a_row_per_measurement() {
        let table = text(&results(), Some(139));
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(5)
            .map(|row| row.split("  ").filter(|cell| !cell.is_empty()))
            .map(|cells| cells.map(str::trim).collect())
            .collect();
        assert_eq!(
            rows,
            [
                vec![
                    "join (REG; ibv_open_qp)",
                    "1",
                    "us",
                    "2.0",
                    "2.0",
                    "1.00",
                    "0.50 - 1.50 !"
                ],
                vec!["a call without work", "1", "us", "2.0", "-", "-", "-"],
                vec![
                    "event",
                    "64",
                    "us",
                    "5.0",
                    "not delivered to 63 of 64",
                    "-",
                    "-"
                ],
            ]
        );
        assert_eq!(table, text(&results(), None));
    }

    #[test]
    fn a_sentence_says_why_mainline_was_skipped() {
        let mut results = results();
        results.mainline_skipped = Some("mainline's half is skipped".into());
        results.measurements = vec![Measurement::new("join", 1, "us", &[(1.0, None)])];
        let table = text(&results, None);
        assert!(table.contains("\nmainline's half is skipped.\n"), "{table}");
        assert!(!table.contains("RATIO is"), "{table}");
        let row = table.lines().last().unwrap().split_whitespace();
        assert_eq!(
            row.collect::<Vec<_>>(),
            ["join", "1", "us", "1.0", "-", "-", "-"]
        );
    }

    #[test]
    fn a_narrow_terminal_has_a_tree() {
        for width in [40, 60, 80] {
            let tree = text(&results(), Some(width));
            assert!(fits(&tree, Some(width)), "{tree}");
        }
        let tree = text(&results(), Some(80));
        let (_, tree) = tree.split_once("\n\n").unwrap();
        assert_eq!(
            tree,
            "ib_xrc_rcv beside mainline on rxe0, Linux 7.2, 2 CPU(s)\n\
             ├── join (REG; ibv_open_qp), N = 1\n\
             │   └── ib_xrc_rcv 2.0 us, mainline 2.0, RATIO 1.00 (0.50 - 1.50 !)\n\
             ├── a call without work, N = 1\n\
             │   └── ib_xrc_rcv 2.0 us\n\
             └── event, N = 64\n    \
                 └── ib_xrc_rcv 5.0 us, mainline not delivered to 63 of 64\n"
        );
    }

    #[test]
    fn figures_are_rounded() {
        assert_eq!([shown(0.0), shown(-3.0), shown(2.04)], ["-", "-", "2.0"]);
        assert_eq!(spread(&[1.0, 1.5]).unwrap(), "1.00 - 1.50");
        assert_eq!(spread(&[]), None);
    }
}
