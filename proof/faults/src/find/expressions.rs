// SPDX-License-Identifier: GPL-2.0

//! Conditions, operators, constants and calls that are others.

use super::{Finder, place, statements::is_call};
use crate::{edit::Edit, fault::Operator};
use syn::{
    BinOp, Expr, ExprBinary, ExprIf, ExprMethodCall, Lit, LitInt, Macro, Pat, Path, Token, UnOp,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    visit::Visit,
};

/// Methods, and what is called in their place.
const OTHERS: &[(&str, &str)] = &[
    ("push_back", "push_front"),
    ("pop_front", "pop_back"),
    ("pop_back", "pop_front"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("saturating_sub", "saturating_add"),
    ("checked_sub", "checked_add"),
    ("checked_add", "checked_sub"),
    ("any", "all"),
    ("all", "any"),
    ("trailing_zeros", "leading_zeros"),
    ("min_by_key", "max_by_key"),
    ("or", "and"),
    ("fetch_add", "fetch_sub"),
    ("notify_all", "notify_one"),
];

/// Methods whose argument is a predicate.
const WITH_PREDICATE: &[&str] = &[
    "all",
    "any",
    "filter",
    "find",
    "is_none_or",
    "is_some_and",
    "position",
    "remove_after",
    "skip_while",
    "take_while",
];

/// Returns the function that stands for an operator, or for another with its fault.
fn function_of(operator: &BinOp) -> Option<(&'static str, Operator, &'static str)> {
    Some(match operator {
        BinOp::Lt(_) => ("lt", Operator::Boundary, "<="),
        BinOp::Le(_) => ("le", Operator::Boundary, "<"),
        BinOp::Gt(_) => ("gt", Operator::Boundary, ">="),
        BinOp::Ge(_) => ("ge", Operator::Boundary, ">"),
        BinOp::Add(_) => ("add", Operator::Arithmetic, "-"),
        BinOp::Sub(_) => ("sub", Operator::Arithmetic, "+"),
        BinOp::Mul(_) => ("mul", Operator::Arithmetic, "+"),
        BinOp::Div(_) => ("div", Operator::Arithmetic, "*"),
        BinOp::Rem(_) => ("rem", Operator::Arithmetic, "/"),
        BinOp::BitAnd(_) => ("bit_and", Operator::Arithmetic, "|"),
        BinOp::BitOr(_) => ("bit_or", Operator::Arithmetic, "&"),
        BinOp::Shl(_) => ("shl", Operator::Arithmetic, ">>"),
        BinOp::Shr(_) => ("shr", Operator::Arithmetic, "<<"),
        _ => return None,
    })
}

/// Returns the comparison that holds where another does not.
fn negation(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Lt(_) => ">=",
        BinOp::Le(_) => ">",
        BinOp::Gt(_) => "<=",
        BinOp::Ge(_) => "<",
        _ => return None,
    })
}

/// Returns the other operator of two conditions, and how the left one compares with whether the
/// fault is there if the right one counts.
fn and_or(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    match operator {
        BinOp::And(_) => Some(("||", "!=")),
        BinOp::Or(_) => Some(("&&", "==")),
        _ => None,
    }
}

/// Whether it is evaluated in no time: it may be twice in the text.
fn is_simple(expression: &Expr) -> bool {
    match expression {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(field) => is_simple(&field.base),
        Expr::Reference(reference) => is_simple(&reference.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)) && is_simple(&unary.expr),
        _ => false,
    }
}

/// Whether the text takes a lock, or has code of its own: it must not be in another scope.
fn has_scope(text: &str) -> bool {
    ["lock(", "read(", "write(", "|", "{"]
        .iter()
        .any(|word| text.contains(word))
}

/// Whether the name of a method is a predicate's.
fn is_predicate(name: &str) -> bool {
    ["is_", "has_", "may_", "can_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || ["contains", "follows", "keeps", "listens", "wants", "has"].contains(&name)
}

/// The arguments of `matches!`.
struct Matches {
    expression: Expr,
    guard: Option<Expr>,
}

impl Parse for Matches {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let expression = input.parse()?;

        input.parse::<Token![,]>()?;
        Pat::parse_multi_with_leading_vert(input)?;

        let guard = if input.peek(Token![if]) {
            input.parse::<Token![if]>()?;
            Some(input.parse()?)
        } else {
            None
        };

        input.parse::<Option<Token![,]>>()?;
        Ok(Self { expression, guard })
    }
}

impl Finder<'_> {
    pub(super) fn expression(&mut self, expression: &Expr) {
        match expression {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let after = self.text(place(&unary.expr)).to_string();

                self.surround(
                    Operator::Negated,
                    place(expression),
                    &after,
                    "crate::fault::not({}, ",
                    ")",
                );
            }
            Expr::Lit(literal) => self.literal(&literal.lit, expression),
            Expr::Path(path) if path.qself.is_none() => self.constant(&path.path, expression),
            Expr::If(choice) => self.choice(choice),
            Expr::While(repeated) => {
                self.repeated_while(&repeated.cond);
                self.unit(&repeated.body);
                self.turns(&repeated.body, true);
            }
            Expr::ForLoop(repeated) => {
                self.unit(&repeated.body);
                self.turns(&repeated.body, false);
            }
            Expr::Loop(repeated) => {
                self.unit(&repeated.body);
                self.turns(&repeated.body, true);
            }
            Expr::Match(choice) => {
                for (_, guard) in choice.arms.iter().filter_map(|arm| arm.guard.as_ref()) {
                    self.condition(guard);
                }
            }
            Expr::MethodCall(call) => self.method(call, expression),
            Expr::Call(call) => self.arguments(&call.args, expression),
            _ => (),
        }
    }

    /// The condition of a loop, which has no end if it always holds.
    fn repeated_while(&mut self, condition: &Expr) {
        if matches!(condition, Expr::Let(_)) {
            return;
        }
        self.surround(
            Operator::Never,
            place(condition),
            "false",
            "crate::fault::never({}, ",
            ")",
        );
        if is_call(condition) {
            self.negate(condition);
        }
    }

    fn choice(&mut self, choice: &ExprIf) {
        if choice.else_branch.is_none() {
            self.unit(&choice.then_branch);
        }
        if !matches!(*choice.cond, Expr::Let(_)) {
            self.condition(&choice.cond);
        } else if choice.else_branch.is_none() {
            self.branch(&choice.then_branch);
        }
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let (left, right) = (place(&binary.left), place(&binary.right));
        let (left, right) = (self.text(left), self.text(right));
        let texts = |op: &str| format!("{left} {op} {right}");

        if let Some(op) = negation(&binary.op) {
            self.surround(
                Operator::Negated,
                place(binary),
                &texts(op),
                "crate::fault::not({}, ",
                ")",
            );
        }
        if let Some((op, compared)) = and_or(&binary.op) {
            self.and_or(binary, &texts(op), compared);
        } else if let Some((function, kind, op)) = function_of(&binary.op) {
            self.by_function(binary, function, kind, &texts(op));
        }
    }

    /// Evaluates the right operand if the left one compares so with whether the fault is there.
    fn and_or(&mut self, binary: &ExprBinary, after: &str, compared: &str) {
        let (left, right) = (place(&binary.left), place(&binary.right));

        self.add(Operator::AndOr, place(binary), after, |number, sequence| {
            let between = format!(
                ") {{ fault_left => if fault_left {compared} crate::fault::is({number}) {{"
            );

            vec![
                Edit::begin(left.start, sequence, "(match (".into()),
                Edit::instead(place(&binary.op), between),
                Edit::end(right.end, sequence, " } else { fault_left } })".into()),
            ]
        });
    }

    /// Calls a function in place of an operator.
    fn by_function(&mut self, binary: &ExprBinary, function: &str, kind: Operator, after: &str) {
        let (left, right) = (place(&binary.left), place(&binary.right));
        let (open, between, close) = match kind {
            Operator::Boundary => ("&(", "), &(", "))"),
            _ => ("", ",", ")"),
        };

        self.add(kind, place(binary), after, |number, sequence| {
            let call = format!("crate::fault::{function}({number}, {open}");

            vec![
                Edit::begin(left.start, sequence, call),
                Edit::instead(place(&binary.op), between.into()),
                Edit::end(right.end, sequence, close.into()),
            ]
        });
    }

    fn literal(&mut self, literal: &Lit, expression: &Expr) {
        match literal {
            Lit::Bool(value) => {
                let other = (!value.value).to_string();

                self.replace(Operator::Constant, place(expression), &other);
            }
            Lit::Int(value) => self.integer(value, expression),
            _ => (),
        }
    }

    fn integer(&mut self, value: &LitInt, expression: &Expr) {
        let other = match value.base10_digits() {
            "0" => format!("1{}", value.suffix()),
            "1" => format!("0{}", value.suffix()),
            _ => return self.neighbours(expression),
        };

        self.replace(Operator::Constant, place(expression), &other);
    }

    fn neighbours(&mut self, expression: &Expr) {
        let text = self.text(place(expression)).to_string();

        self.surround(
            Operator::Constant,
            place(expression),
            &format!("{text} + 1"),
            "crate::fault::more({}, ",
            ")",
        );
        self.surround(
            Operator::Constant,
            place(expression),
            &format!("{text} - 1"),
            "crate::fault::less({}, ",
            ")",
        );
    }

    /// Constants of the module, and errors.
    fn constant(&mut self, path: &Path, expression: &Expr) {
        let Some(name) = path.get_ident().map(ToString::to_string) else {
            return;
        };
        let is_constant = name.len() > 1
            && name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');

        if !is_constant || name.starts_with("GFP_") {
            return;
        }
        if name.starts_with('E') && !name.contains('_') {
            self.surround(
                Operator::Errno,
                place(expression),
                "EXDEV",
                "crate::fault::errno({}, ",
                ")",
            );
        } else {
            self.neighbours(expression);
        }
    }

    fn method(&mut self, call: &ExprMethodCall, expression: &Expr) {
        let name = call.method.to_string();

        if is_predicate(&name) {
            self.negate(expression);
        }
        self.other_method(call, expression, &name);
        self.arguments(&call.args, expression);
        match call.args.first() {
            Some(Expr::Closure(closure))
                if WITH_PREDICATE.contains(&name.as_str())
                    && !matches!(*closure.body, Expr::Block(_)) =>
            {
                self.condition(&closure.body);
            }
            _ => (),
        }
        if name == "then" || name == "then_some" {
            self.condition(&call.receiver);
        }
    }

    fn other_method(&mut self, call: &ExprMethodCall, expression: &Expr, name: &str) {
        let whole = place(expression);
        let receiver = place(&call.receiver);
        let other = match name {
            "min" => "max",
            "max" => "min",
            _ => OTHERS
                .iter()
                .find(|(one, _)| *one == name)
                .map_or("", |(_, other)| other),
        };

        if other.is_empty() {
            return;
        }

        let method = place(&call.method);
        let after = format!(
            "{}{other}{}",
            self.text(whole.start..method.start),
            self.text(method.end..whole.end)
        );

        if let (true, Some(argument)) = (["min", "max"].contains(&name), call.args.first()) {
            let between = receiver.end..place(argument).start;

            self.add(
                Operator::Function,
                whole.clone(),
                &after,
                |number, sequence| {
                    vec![
                        Edit::begin(
                            whole.start,
                            sequence,
                            format!("crate::fault::{name}({number}, "),
                        ),
                        Edit::instead(between, ", ".into()),
                    ]
                },
            );
        } else if !has_scope(self.text(receiver)) {
            self.replace(Operator::Function, whole, &after);
        }
    }

    /// Each two arguments that follow one another change places.
    fn arguments(&mut self, arguments: &Punctuated<Expr, Token![,]>, call: &Expr) {
        let whole = place(call);

        if has_scope(self.text(whole.clone())) {
            return;
        }
        for (one, next) in arguments.iter().zip(arguments.iter().skip(1)) {
            let (first, second) = (place(one), place(next));

            if !is_simple(one)
                || !is_simple(next)
                || self.text(first.clone()) == self.text(second.clone())
            {
                continue;
            }

            let after = [
                self.text(whole.start..first.start),
                self.text(second.clone()),
                self.text(first.end..second.start),
                self.text(first),
                self.text(second.end..whole.end),
            ]
            .concat();

            self.replace(Operator::Arguments, whole.clone(), &after);
        }
    }

    /// The insides of `matches!`.
    pub(super) fn in_macro(&mut self, call: &Macro) {
        if !call.path.is_ident("matches") {
            return;
        }

        let Ok(matches) = call.parse_body::<Matches>() else {
            return;
        };

        self.visit_expr(&matches.expression);
        if let Some(guard) = &matches.guard {
            self.condition(guard);
            self.visit_expr(guard);
        }
    }
}
