// SPDX-License-Identifier: GPL-2.0

//! Attributes of the kernel crate.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// A module of KUnit tests: on the host, tests of cargo, each of which is one execution of
/// `kernel::runtime`.
#[proc_macro_attribute]
pub fn kunit_tests(_suite: TokenStream, module: TokenStream) -> TokenStream {
    let mut out: TokenStream = "#[cfg(test)]".parse().unwrap();

    out.extend(module.into_iter().map(|token| match token {
        TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
            TokenTree::Group(Group::new(Delimiter::Brace, tests(body.stream())))
        }
        token => token,
    }));
    out
}

/// Replaces the body of each function after `#[test]` by `kernel::runtime::test(|| body)`.
fn tests(body: TokenStream) -> TokenStream {
    let mut is_test = false;

    body.into_iter()
        .flat_map(|token| -> TokenStream {
            match token {
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Bracket
                        && group.stream().to_string() == "test" =>
                {
                    is_test = true;
                    TokenTree::Group(group).into()
                }
                TokenTree::Group(group) if is_test && group.delimiter() == Delimiter::Brace => {
                    is_test = false;

                    let mut call: TokenStream = "::kernel::runtime::test".parse().unwrap();
                    let mut closure: TokenStream = "||".parse().unwrap();

                    closure.extend([TokenTree::Group(group)]);
                    call.extend([TokenTree::Group(Group::new(
                        Delimiter::Parenthesis,
                        closure,
                    ))]);
                    TokenTree::Group(Group::new(Delimiter::Brace, call)).into()
                }
                token => token.into(),
            }
        })
        .collect()
}
