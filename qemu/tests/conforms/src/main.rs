// SPDX-License-Identifier: GPL-2.0

//! usage: conforms SCHEMA DEFINITION FILE
//!
//! Fails unless each JSON text of FILE is as SCHEMA says of DEFINITION, and has no key that SCHEMA
//! does not describe.

use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Deserializer, Value, json};

/// Later versions may have more keys; this one has those of its schema.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") {
                object.insert("unevaluatedProperties".into(), json!(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => (),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [schema, definition, file] = &arguments[..] else {
        bail!("usage: conforms SCHEMA DEFINITION FILE");
    };
    let mut schema: Value =
        serde_json::from_str(&fs::read_to_string(schema).context(schema.clone())?)?;
    ensure!(
        schema["$defs"].get(definition).is_some(),
        "the schema has no {definition}"
    );
    close(&mut schema["$defs"]);
    schema["$ref"] = json!(format!("#/$defs/{definition}"));
    let validator = jsonschema::draft202012::new(&schema)?;
    let text = fs::read_to_string(file).context(file.clone())?;
    let mut texts = 0;
    for value in Deserializer::from_str(&text).into_iter() {
        let value: Value = value?;
        if let Some(error) = validator.iter_errors(&value).next() {
            bail!("{file}: {}: {error}", error.instance_path);
        }
        texts += 1;
    }
    ensure!(texts > 0, "{file} is empty");
    Ok(())
}
