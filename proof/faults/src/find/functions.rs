// SPDX-License-Identifier: GPL-2.0

//! Functions that do nothing.

use super::{Finder, inside};
use crate::fault::Operator;
use syn::{
    Block, GenericArgument, PathArguments, PathSegment, ReturnType, Signature, Type, visit::Visit,
};

impl Finder<'_> {
    pub(super) fn function(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() {
            return;
        }
        self.depth += 1;
        self.named(signature.ident.to_string(), |finder| {
            if matches!(signature.output, ReturnType::Default) {
                finder.unit(block);
            }
            finder.bodies(signature, block);
            finder.visit_block(block);
        });
        self.depth -= 1;
    }

    fn bodies(&mut self, signature: &Signature, block: &Block) {
        let inside = inside(
            block.brace_token.span.open(),
            block.brace_token.span.close(),
        );

        if block.stmts.is_empty() {
            return;
        }
        for value in values(&signature.output) {
            let text = format!(" if crate::fault::is({{}}) {{ return {value}; }}");
            let after = format!("return {value};");

            self.insert(
                Operator::Body,
                inside.clone(),
                after.trim(),
                inside.start,
                &text,
            );
        }
    }
}

/// Returns values of the type that a function returns, if there is a constant one.
fn values(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, of) => values_of(of),
    }
}

fn values_of(of: &Type) -> Vec<String> {
    let last = match of {
        Type::Path(path) => path.path.segments.last(),
        Type::Tuple(tuple) if tuple.elems.is_empty() => return vec!["()".into()],
        _ => None,
    };
    let Some(last) = last else {
        return Vec::new();
    };

    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => vec!["0".into(), "1".into()],
        "Option" => vec!["None".into()],
        "Result" => match argument(last) {
            None => vec!["Ok(())".into()],
            Some(of) => {
                let values = values_of(of);

                values.iter().map(|value| format!("Ok({value})")).collect()
            }
        },
        _ => Vec::new(),
    }
}

/// Returns the first argument of a generic type.
fn argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };

    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    })
}
