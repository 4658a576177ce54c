// SPDX-License-Identifier: GPL-2.0

//! The costs of one object, from a file of `make bench`.

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

/// An object of a process that costs memory and time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Object {
    /// An RC QP with a receive queue, in RTS.
    Rc,
    /// An RC QP with an SRQ, in RTS.
    RcSrq,
    /// An XRC initiator, in RTS.
    XrcSend,
    /// A target QP of mainline, in RTR.
    Target,
    /// A target QP that another process opened.
    Opened,
    /// A receive QP with the registration of its creator, in RTR.
    Receive,
    /// The registration of another process.
    Registration,
}

impl Object {
    pub(crate) fn is_qp(self) -> bool {
        !matches!(self, Object::Opened | Object::Registration)
    }
}

/// The cost of one object.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Cost {
    pub(crate) create_us: f64,
    pub(crate) destroy_us: f64,
    pub(crate) bytes: f64,
}

/// The costs of all objects.
pub(crate) struct Costs(HashMap<Object, Cost>);

impl Costs {
    const ALL: [Object; 7] = [
        Object::Rc,
        Object::RcSrq,
        Object::XrcSend,
        Object::Target,
        Object::Opened,
        Object::Receive,
        Object::Registration,
    ];

    /// Reads `objects` of the part `scale`.
    pub(crate) fn read(path: &Path) -> Result<Costs> {
        #[derive(Deserialize)]
        struct Bench {
            scale: Scale,
        }
        #[derive(Deserialize)]
        struct Scale {
            costs: HashMap<Object, Cost>,
        }

        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let bench: Bench = serde_json::from_str(&text)
            .with_context(|| format!("{} is not of make bench", path.display()))?;
        for object in Costs::ALL {
            bench.scale.costs.get(&object).with_context(|| {
                format!("{} has no cost of an object {object:?}", path.display())
            })?;
        }
        Ok(Costs(bench.scale.costs))
    }

    pub(crate) fn of(&self, object: Object) -> &Cost {
        // read() saw that each is there.
        &self.0[&object]
    }
}
