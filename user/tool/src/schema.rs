// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The JSON Schema of all that is printed as JSON. It is derived from the types that are printed,
//! so that it has every key.

use anyhow::Result;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::{bench, show, trace};

/// The schema, as it is installed.
pub(crate) fn schema() -> Result<String> {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    generator.subschema_for::<show::Devices<'_>>();
    generator.subschema_for::<trace::Record>();
    generator.subschema_for::<bench::Results>();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "xrc-rcv/output.schema.json",
        "$comment": "SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause",
        "title": "What xrc-rcv prints as JSON: show --json one object, watch --json one a line, bench \
                  --output one to a file. Names are those of rdma(8) -j where they mean the same; more \
                  keys may come.",
    });
    schema["$defs"] = Value::Object(generator.take_definitions(true));
    unwrap_lines(&mut schema);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Makes each description one line: it has those of the comment.
fn unwrap_lines(schema: &mut Value) {
    match schema {
        Value::String(text) => *text = text.replace('\n', " "),
        Value::Array(values) => values.iter_mut().for_each(unwrap_lines),
        Value::Object(object) => object.values_mut().for_each(unwrap_lines),
        _ => (),
    }
}
