// SPDX-License-Identifier: GPL-2.0

//! Statements that are missing, in another order, or without a lock.

use super::{Finder, inside, place};
use crate::{
    edit::Edit,
    fault::{Operator, in_line},
};
use std::ops::Range;
use syn::{BinOp, Block, Expr, Pat, PatIdent, Stmt};

/// Whether an expression is a call, whose error may be returned.
pub(super) fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Try(call) => is_call(&call.expr),
        _ => false,
    }
}

/// Returns another operator that changes a variable.
fn other_change(operator: &BinOp) -> Option<&'static str> {
    match operator {
        BinOp::AddAssign(_) => Some("-="),
        BinOp::SubAssign(_) => Some("+="),
        BinOp::BitOrAssign(_) => Some("&="),
        BinOp::BitAndAssign(_) => Some("|="),
        _ => None,
    }
}

fn is_change(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) => true,
        Expr::Binary(binary) => other_change(&binary.op).is_some(),
        _ => false,
    }
}

/// Whether another statement may come before it.
fn is_movable(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expression, Some(_)) => is_call(expression) || is_change(expression),
        _ => is_ignored_call(statement),
    }
}

/// Whether a statement is `let _ = call();`.
fn is_ignored_call(statement: &Stmt) -> bool {
    match statement {
        Stmt::Local(local) => {
            matches!(local.pat, Pat::Wild(_))
                && local.init.as_ref().is_some_and(|init| is_call(&init.expr))
        }
        _ => false,
    }
}

/// A variable that is a lock's guard.
struct Guard<'a> {
    variable: &'a PatIdent,
    /// The expression that takes the lock.
    taking: &'a Expr,
}

impl<'a> Guard<'a> {
    fn of(statement: &'a Stmt) -> Option<Self> {
        let Stmt::Local(local) = statement else {
            return None;
        };
        let Pat::Ident(variable) = &local.pat else {
            return None;
        };
        let init = local.init.as_ref().filter(|init| init.diverge.is_none())?;
        let takes = match &*init.expr {
            Expr::Try(call) => takes_lock(&call.expr),
            call => takes_lock(call),
        };

        takes.then_some(Self {
            variable,
            taking: &init.expr,
        })
    }

    fn is_dropped_by(&self, statement: &Stmt) -> bool {
        let Stmt::Expr(Expr::Call(call), _) = statement else {
            return false;
        };

        matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop"))
            && matches!(call.args.first(), Some(Expr::Path(path)) if path.path.is_ident(&self.variable.ident))
    }
}

fn takes_lock(call: &Expr) -> bool {
    let name = match call {
        Expr::MethodCall(call) if call.args.is_empty() => call.method.to_string(),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path
                .path
                .segments
                .last()
                .map(|last| last.ident.to_string())
                .unwrap_or_default(),
            _ => return false,
        },
        _ => return false,
    };

    ["lock", "read", "write", "read_killable", "lock_killable"].contains(&name.as_str())
}

impl Finder<'_> {
    pub(super) fn statements(&mut self, block: &Block) {
        let is_unit = self.units.contains(&place(block));

        self.locks(block);
        self.orders(block);
        for (index, statement) in block.stmts.iter().enumerate() {
            let is_last = index + 1 == block.stmts.len();

            if is_unit || !is_last || !matches!(statement, Stmt::Expr(_, None)) {
                self.statement(statement);
            }
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        if is_ignored_call(statement) {
            return self.missing(Operator::Call, place(statement));
        }

        let Stmt::Expr(expression, _) = statement else {
            return;
        };

        if is_change(expression) {
            self.missing(Operator::Assignment, place(statement));
            self.other_change(expression);
        } else if is_call(expression) {
            self.missing(Operator::Call, place(statement));
            self.error_ignored(expression, place(statement));
        } else {
            self.unit_value(expression);
        }
    }

    fn missing(&mut self, operator: Operator, place: Range<usize>) {
        self.surround(operator, place, "", "if !crate::fault::is({}) { ", " }");
    }

    fn error_ignored(&mut self, expression: &Expr, statement: Range<usize>) {
        let Expr::Try(call) = expression else {
            return;
        };
        let ignored = format!("let _ = {};", self.text(place(&call.expr)));
        let before = format!("if crate::fault::is({{}}) {{ {ignored} }} else {{ ");

        self.surround(Operator::Error, statement, &ignored, &before, " }");
    }

    fn other_change(&mut self, expression: &Expr) {
        let Expr::Binary(binary) = expression else {
            return;
        };
        let Some(operator) = other_change(&binary.op) else {
            return;
        };
        let (left, right) = (
            self.text(place(&binary.left)),
            self.text(place(&binary.right)),
        );
        let other = format!("{left} {operator} {right}");
        let before = format!("if crate::fault::is({{}}) {{ {other} }} else {{ ");

        self.surround(
            Operator::Arithmetic,
            place(expression),
            &other,
            &before,
            " }",
        );
    }

    /// The value of an expression is `()`, and so are those of its blocks and arms.
    fn unit_value(&mut self, expression: &Expr) {
        match expression {
            Expr::If(choice) => {
                self.unit(&choice.then_branch);
                if let Some((_, other)) = &choice.else_branch {
                    self.unit_value(other);
                }
            }
            Expr::Block(block) => self.unit(&block.block),
            Expr::Unsafe(block) => self.unit(&block.block),
            Expr::Match(choice) => {
                for arm in &choice.arms {
                    if is_call(&arm.body) && !matches!(*arm.body, Expr::Try(_)) {
                        self.missing(Operator::Call, place(&arm.body));
                    } else {
                        self.unit_value(&arm.body);
                    }
                }
            }
            _ => (),
        }
    }

    /// Each two of the statements that follow one another change places.
    fn orders(&mut self, block: &Block) {
        for run in block
            .stmts
            .chunk_by(|one, next| is_movable(one) && is_movable(next))
        {
            let places: Vec<_> = run.iter().map(place).collect();
            let (Some(first), Some(last)) = (places.first(), places.last()) else {
                continue;
            };

            for index in 1..places.len() {
                let mut order = places.clone();

                order.swap(index - 1, index);

                let text = |places: &[Range<usize>]| -> String {
                    let texts: Vec<_> = places
                        .iter()
                        .map(|place| self.text(place.clone()))
                        .collect();

                    texts.join("\n")
                };
                let all = format!("if crate::fault::is({{}}) {{ {} }} else {{ ", text(&order));
                let after = text(&order[index - 1..=index]);
                let pair = places[index - 1].start..places[index].end;
                let run = first.start..last.end;

                self.add(Operator::Order, pair, &after, |number, sequence| {
                    vec![
                        Edit::begin(run.start, sequence, super::numbered(&all, number)),
                        Edit::end(run.end, sequence, " }".into()),
                    ]
                });
            }
        }
    }

    /// Locks that are not held, and those that others can take between two statements.
    fn locks(&mut self, block: &Block) {
        for (index, statement) in block.stmts.iter().enumerate() {
            let Some(guard) = Guard::of(statement) else {
                continue;
            };
            let name = guard.variable.ident.to_string();
            let taking = self.text(place(guard.taking)).to_string();
            let mut is_released = false;

            if name.starts_with('_') {
                let place = place(statement);
                let at = place.end;

                self.insert(
                    Operator::Lock,
                    place,
                    "not held",
                    at,
                    &format!(" if crate::fault::is({{}}) {{ drop({name}); }}"),
                );
            }
            for next in block.stmts[index + 1..]
                .iter()
                .take_while(|next| !guard.is_dropped_by(next))
                .skip(1)
            {
                let before = in_line(self.text(place(next)));
                let after = format!(
                    "released before {}",
                    before.chars().take(50).collect::<String>()
                );
                let text =
                    format!("if crate::fault::is({{}}) {{ drop({name}); {name} = {taking}; }} ");

                self.insert(
                    Operator::Lock,
                    place(statement),
                    &after,
                    place(next).start,
                    &text,
                );
                is_released = true;
            }
            if is_released && guard.variable.mutability.is_none() {
                let at = guard.variable.ident.span().byte_range().start;

                self.edits.push(Edit::begin(at, 0, "mut ".into()));
            }
        }
    }

    /// A loop ends after its first turn, or before it; `always_turns` if it has one.
    pub(super) fn turns(&mut self, body: &Block, always_turns: bool) {
        let inside = inside(body.brace_token.span.open(), body.brace_token.span.close());
        let whole = place(body);

        if !always_turns {
            self.insert(
                Operator::Loop,
                whole.clone(),
                "not entered",
                inside.start,
                " if crate::fault::is({}) { break; }",
            );
        }
        self.insert(
            Operator::Loop,
            whole,
            "left after the first turn",
            inside.end,
            "; if crate::fault::is({}) { break; } ",
        );
    }

    /// The block that is for a pattern does nothing.
    pub(super) fn branch(&mut self, block: &Block) {
        let inside = inside(
            block.brace_token.span.open(),
            block.brace_token.span.close(),
        );

        self.add(Operator::Branch, place(block), "{}", |number, sequence| {
            vec![
                Edit::begin(
                    inside.start,
                    sequence,
                    super::numbered(" if !crate::fault::is({}) {", number),
                ),
                Edit::end(inside.end, sequence, "} ".into()),
            ]
        });
    }
}
