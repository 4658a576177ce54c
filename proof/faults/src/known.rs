// SPDX-License-Identifier: GPL-2.0

//! The list of faults that no test finds, each with the reason.

use anyhow::{Context, Result};
use std::{collections::BTreeMap, fs, path::Path};

/// The reason of a fault that is found in some runs.
const BY_CHANCE: &str = "by chance";

/// The reasons, by the names of the faults.
pub struct Known {
    reasons: BTreeMap<String, String>,
}

impl Known {
    /// Reads the list: the four parts of a name and the reason, with tabs between them.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut reasons = BTreeMap::new();

        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (name, reason) = line
                .rsplit_once('\t')
                .with_context(|| format!("no reason: {line}"))?;

            reasons.insert(name.into(), reason.into());
        }
        Ok(Self { reasons })
    }

    /// Returns the reason for which a fault survives.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }

    /// Returns the names of faults that have to survive and are not among these.
    pub fn without<'a>(&'a self, survivors: &'a [String]) -> impl Iterator<Item = &'a str> {
        let names = self
            .reasons
            .iter()
            .filter(|(_, reason)| !reason.starts_with(BY_CHANCE));

        names
            .map(|(name, _)| name.as_str())
            .filter(|name| !survivors.iter().any(|survivor| survivor == name))
    }
}
