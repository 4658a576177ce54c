// SPDX-License-Identifier: GPL-2.0

//! Finds the faults that a file of the module can have.
//!
//! Each is an edit of the text that asks at run time whether the fault is there. The original text
//! stays beside it, with other faults in it. Code that runs at compile time has none, nor have
//! patterns, tests and the insides of macros.

mod expressions;
mod functions;
mod statements;

use crate::{
    edit::Edit,
    fault::{Fault, Operator, in_line},
};
use proc_macro2::Span;
use std::{collections::HashSet, ops::Range};
use syn::{
    Attribute, Block, Expr, ExprConst, ExprLet, ExprRepeat, GenericArgument, Generics,
    ImplItemConst, ImplItemFn, ItemConst, ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Macro,
    Pat, TraitItemConst, TraitItemFn, Type,
    spanned::Spanned,
    visit::{self, Visit},
};

/// The faults of a file, and edits that are needed with or without them.
pub struct Found {
    pub faults: Vec<Fault>,
    pub edits: Vec<Edit>,
}

/// Finds the faults of a file, which have numbers from `first` on.
pub fn find(file: &str, source: &str, first: usize) -> syn::Result<Found> {
    let mut finder = Finder {
        file,
        source,
        first,
        names: Vec::new(),
        depth: 0,
        units: HashSet::new(),
        negated: HashSet::new(),
        faults: Vec::new(),
        edits: Vec::new(),
    };

    finder.visit_file(&syn::parse_file(source)?);
    Ok(Found {
        faults: finder.faults,
        edits: finder.edits,
    })
}

struct Finder<'s> {
    file: &'s str,
    source: &'s str,
    first: usize,
    /// The functions around, and the types that have them.
    names: Vec<String>,
    /// The number of functions around.
    depth: usize,
    /// The blocks whose value is `()`.
    units: HashSet<Range<usize>>,
    /// The expressions of which there is the opposite already.
    negated: HashSet<Range<usize>>,
    faults: Vec<Fault>,
    edits: Vec<Edit>,
}

fn place(what: &impl Spanned) -> Range<usize> {
    what.span().byte_range()
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident(name))
}

/// Whether the code is for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    let tests = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    };

    has(attributes, "kunit_tests") || has(attributes, "test") || attributes.iter().any(tests)
}

impl<'s> Finder<'s> {
    fn text(&self, place: Range<usize>) -> &'s str {
        &self.source[place]
    }

    /// Adds a fault, whose edits have its number, and a sequence number that is greater than those
    /// of the faults around it.
    fn add(
        &mut self,
        operator: Operator,
        place: Range<usize>,
        after: &str,
        edits: impl FnOnce(usize, i64) -> Vec<Edit>,
    ) {
        if self.depth == 0 {
            return;
        }

        let index = self.faults.len();

        self.faults.push(Fault {
            file: self.file.into(),
            line: 1 + self.source[..place.start].matches('\n').count(),
            function: self.names.join("::"),
            operator,
            before: in_line(self.text(place)),
            after: in_line(after),
            edits: edits(self.first + index, index as i64),
            twin: 1,
        });
    }

    /// Adds a fault that surrounds a part; `{}` in the text before it is its number.
    fn surround(
        &mut self,
        operator: Operator,
        place: Range<usize>,
        after: &str,
        before_it: &str,
        after_it: &str,
    ) {
        self.add(operator, place.clone(), after, |number, sequence| {
            vec![
                Edit::begin(place.start, sequence, numbered(before_it, number)),
                Edit::end(place.end, sequence, after_it.into()),
            ]
        });
    }

    /// Adds a fault that inserts a text, in which `{}` is its number; it is reported at `place`.
    fn insert(
        &mut self,
        operator: Operator,
        place: Range<usize>,
        after: &str,
        at: usize,
        text: &str,
    ) {
        self.add(operator, place, after, |number, sequence| {
            vec![Edit::begin(at, sequence, numbered(text, number))]
        });
    }

    /// Adds a fault in place of an expression.
    fn replace(&mut self, operator: Operator, place: Range<usize>, by: &str) {
        let before = format!("(if crate::fault::is({{}}) {{ {by} }} else {{ ");

        self.surround(operator, place, by, &before, " })");
    }

    /// A condition always or never holds, or is the opposite, unless what is in it has that.
    fn condition(&mut self, condition: &Expr) {
        let place = place(condition);

        self.surround(
            Operator::Always,
            place.clone(),
            "true",
            "crate::fault::always({}, ",
            ")",
        );
        self.surround(
            Operator::Never,
            place,
            "false",
            "crate::fault::never({}, ",
            ")",
        );
        if !matches!(condition, Expr::Binary(_) | Expr::Unary(_) | Expr::Lit(_)) {
            self.negate(condition);
        }
    }

    fn negate(&mut self, expression: &Expr) {
        let place = place(expression);

        if self.negated.insert(place.clone()) {
            let after = format!("!({})", self.text(place.clone()));

            self.surround(
                Operator::Negated,
                place,
                &after,
                "crate::fault::not({}, ",
                ")",
            );
        }
    }

    /// The value of a block is `()`.
    fn unit(&mut self, block: &Block) {
        self.units.insert(place(block));
    }

    fn named(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.names.push(name);
        visit(self);
        self.names.pop();
    }
}

fn numbered(text: &str, number: usize) -> String {
    text.replacen("{}", &number.to_string(), 1)
}

/// Returns the place between two delimiters.
fn inside(open: Span, close: Span) -> Range<usize> {
    open.byte_range().end..close.byte_range().start
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };

        self.named(name.unwrap_or_default(), |finder| {
            visit::visit_item_impl(finder, item)
        });
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.named(item.ident.to_string(), |finder| {
            visit::visit_item_trait(finder, item)
        });
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.statements(block);
        visit::visit_block(self, block);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        self.expression(expression);
        visit::visit_expr(self, expression);
    }

    fn visit_expr_let(&mut self, condition: &'ast ExprLet) {
        self.visit_expr(&condition.expr);
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.in_macro(call);
    }

    // What follows is known when the module is compiled, or is no code.
    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast TraitItemConst) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generics(&mut self, _: &'ast Generics) {}
    fn visit_generic_argument(&mut self, _: &'ast GenericArgument) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
}
