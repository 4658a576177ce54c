// SPDX-License-Identifier: GPL-2.0

//! `kernel::bindings`, with functions of the kernel in Rust.

#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)]

use core::ptr::null_mut;

pub const EOPNOTSUPP: u32 = 95;
pub const EDQUOT: u32 = 122;

pub const POLLIN: u32 = 0x0001;
pub const POLLHUP: u32 = 0x0010;
pub const POLLRDNORM: u32 = 0x0040;

/// A node of a tree that is not balanced: its colours are the kernel's own affair.
#[repr(C)]
pub struct rb_node {
    parent: *mut rb_node,
    pub rb_right: *mut rb_node,
    pub rb_left: *mut rb_node,
}

#[repr(C)]
pub struct rb_root {
    pub rb_node: *mut rb_node,
}

pub unsafe fn rb_link_node(node: *mut rb_node, parent: *mut rb_node, link: *mut *mut rb_node) {
    // SAFETY: By the requirements of `<linux/rbtree.h>`, both pointers are valid for writes.
    unsafe {
        node.write(rb_node {
            parent,
            rb_right: null_mut(),
            rb_left: null_mut(),
        });
        *link = node;
    }
}

pub unsafe fn rb_insert_color(_node: *mut rb_node, _root: *mut rb_root) {}

pub unsafe fn rb_first(root: *const rb_root) -> *mut rb_node {
    // SAFETY: By the requirements of `<linux/rbtree.h>`, the root and its nodes are valid.
    unsafe {
        let mut node = (*root).rb_node;

        while !node.is_null() && !(*node).rb_left.is_null() {
            node = (*node).rb_left;
        }
        node
    }
}

pub unsafe fn rb_next(node: *const rb_node) -> *mut rb_node {
    // SAFETY: By the requirements of `<linux/rbtree.h>`, the node is in a tree, whose nodes are
    // valid.
    unsafe {
        let right = (*node).rb_right;

        if !right.is_null() {
            return rb_first(&rb_root { rb_node: right });
        }

        let (mut node, mut parent) = (node, (*node).parent);

        while !parent.is_null() && node == (*parent).rb_right {
            node = parent;
            parent = (*parent).parent;
        }
        parent
    }
}

pub unsafe fn rb_erase(node: *mut rb_node, root: *mut rb_root) {
    // SAFETY: By the requirements of `<linux/rbtree.h>`, the node is in the tree, whose root and
    // nodes are valid.
    unsafe {
        let (left, right) = ((*node).rb_left, (*node).rb_right);

        if left.is_null() {
            replace(node, right, root);
        } else if right.is_null() {
            replace(node, left, root);
        } else {
            let next = rb_first(&rb_root { rb_node: right });

            if next != right {
                replace(next, (*next).rb_right, root);
                (*next).rb_right = right;
                (*right).parent = next;
            }
            replace(node, next, root);
            (*next).rb_left = left;
            (*left).parent = next;
        }
    }
}

/// Puts `new`, which may be null, into the place of `old`.
unsafe fn replace(old: *mut rb_node, new: *mut rb_node, root: *mut rb_root) {
    // SAFETY: By the caller's word, `old` is in the tree of `root`, whose nodes are valid.
    unsafe {
        let parent = (*old).parent;

        if parent.is_null() {
            (*root).rb_node = new;
        } else if (*parent).rb_left == old {
            (*parent).rb_left = new;
        } else {
            (*parent).rb_right = new;
        }
        if !new.is_null() {
            (*new).parent = parent;
        }
    }
}
