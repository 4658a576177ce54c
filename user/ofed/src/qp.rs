// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! QPs of type `IBV_QPT_XRC`, which send and receive; rdma-core has one type for each.
//!
//! Such a QP is a pair: an initiator, which is the `ibv_qp` that the program holds, and a target
//! beside it. They have two numbers where the program exchanges one with its peer, so that one
//! carries both: see `Number`. Where the peer turns out to be a receive QP, which never sends, the
//! target is destroyed again. A QP that has nothing to receive has no target from the start, and a
//! plain number: where the process uses receive QPs, or where the domain is its own and has no SRQ.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use xrc_rcv::QpAttrMask;
use xrc_rcv::ffi::{ibv_qp_attr, ibv_qp_cap};
use xrc_rcv::verbs_sys::{ibv_pd, ibv_qp, ibv_qp_init_attr_ex, verbs_context_xrc_ops};

use crate::ffi::*;
use crate::pair::{Number, Pair};
use crate::{real, set_errno, state};

/// How many pairs there are, so that other QPs do not wait for the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with_pair<T>(qp: *const ibv_qp, read: impl FnOnce(&Pair) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    state::lock().pairs.get(&qp.addr()).map(read)
}

fn with_pairs_mut<T>(change: impl FnOnce(&mut BTreeMap<usize, Pair>) -> T) -> T {
    let pairs = &mut state::lock().pairs;
    let result = change(pairs);
    COUNT.store(pairs.len(), Ordering::Relaxed);
    result
}

/// Whether this process has a QP in `domain`.
pub(crate) fn any_in(domain: *const ibv_xrc_domain) -> bool {
    let pairs = &state::lock().pairs;
    pairs.values().any(|pair| ptr::eq(pair.domain, domain))
}

/// Gives the QPs of `domain` plain numbers. Their targets stay until they are connected, as a peer
/// may have been given the other number.
pub(crate) fn hide_targets(domain: *const ibv_xrc_domain) {
    with_pairs_mut(|pairs| {
        for (qp, pair) in pairs {
            if ptr::eq(pair.domain, domain) {
                let qp = ptr::with_exposed_provenance_mut::<ibv_qp>(*qp);
                // SAFETY: Pairs are forgotten before their QPs are destroyed.
                unsafe { pair.make_plain(qp) };
            }
        }
    });
}

/// Calls `function` while `qp` has the number that its provider gave it.
///
/// # Safety
///
/// `qp` is a live initiator.
unsafe fn with_own_number<T>(qp: *mut ibv_qp, number: Number, function: impl FnOnce() -> T) -> T {
    // SAFETY: By the caller's word. Providers read the number when they modify or destroy.
    unsafe { (*qp).qp_num = number.initiator() };
    function()
}

/// Creates a QP; of type `IBV_QPT_XRC`, a pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init_attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: The caller's attribute is valid, and `qp_type` is where it was in OFED.
    if unsafe { (*init_attr).qp_type } != IBV_QPT_XRC {
        // SAFETY: The caller's arguments are those of the function behind this one.
        return unsafe { real::create_qp(pd, init_attr) };
    }
    // SAFETY: The caller's attribute, which has OFED's length if it names OFED's type.
    let init = unsafe { &mut *init_attr };
    if init.xrc_domain.is_null() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let mut attr = ibv_qp_init_attr {
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_recv_wr: 0,
            max_recv_sge: 0,
            ..init.cap
        },
        qp_type: IBV_QPT_XRC_SEND,
        xrc_domain: ptr::null_mut(),
        ..*init
    };
    // SAFETY: The caller's arguments, with another type.
    let qp = unsafe { real::create_qp(pd, &mut attr) };
    if qp.is_null() {
        return qp;
    }
    // SAFETY: `qp` was just created, and the domain is the caller's.
    let target = unsafe {
        if (*init.xrc_domain).needs_targets() {
            create_target(qp, init.xrc_domain)
        } else {
            Ok((ptr::null_mut(), Number::from_public((*qp).qp_num)))
        }
    };
    match target {
        Ok((target, number)) => {
            init.cap = attr.cap;
            let pair = Pair {
                number,
                target,
                domain: init.xrc_domain,
                unacknowledged: 0,
            };
            // SAFETY: `qp` was just created, and no other thread has it.
            unsafe { (*qp).qp_num = number.public() };
            with_pairs_mut(|pairs| pairs.insert(qp.expose_provenance(), pair));
            qp
        }
        Err(errno) => {
            // SAFETY: `qp` was just created, and it was not published.
            unsafe { real::destroy_qp(qp) };
            set_errno(errno);
            ptr::null_mut()
        }
    }
}

/// Creates a target whose number is near that of `initiator`.
///
/// Providers number QPs in sequence, so the first will do unless others create QPs meanwhile.
///
/// # Safety
///
/// Both are live.
unsafe fn create_target(
    initiator: *mut ibv_qp,
    domain: *mut ibv_xrc_domain,
) -> Result<(*mut ibv_qp, Number), c_int> {
    const ATTEMPTS: usize = 16;

    // SAFETY: By the caller's word.
    let (context, xrcd, initiator) = unsafe { ((*initiator).context, (*domain).xrcd, &*initiator) };
    let mut attr = ibv_qp_init_attr_ex::xrc_target(xrcd, initiator.qp_context);
    // SAFETY: The context is open.
    let create_qp_ex = unsafe { verbs_context_xrc_ops::of(context) }
        .and_then(|ops| ops.create_qp_ex)
        .ok_or(libc::ENOSYS)?;
    let mut far = Vec::new();
    let mut result = Err(libc::EAGAIN);
    for _ in 0..ATTEMPTS {
        // SAFETY: The provider's function is given its own context, and an attribute with all that
        // its mask names.
        let target = unsafe { create_qp_ex(context, &mut attr) };
        if target.is_null() {
            result = Err(crate::errno());
            break;
        }
        // SAFETY: The target was just created, and is live.
        if let Some(number) = Number::of_pair(initiator.qp_num, unsafe { (*target).qp_num }) {
            result = Ok((target, number));
            break;
        }
        far.push(target);
    }
    for target in far {
        // SAFETY: Just created, and not published.
        unsafe { real::destroy_qp(target) };
    }
    result
}

/// The attributes that an initiator has no use for and refuses.
const NOT_INITIATOR: QpAttrMask = QpAttrMask::MAX_DEST_RD_ATOMIC.union(QpAttrMask::MIN_RNR_TIMER);

/// `IBV_QP_MAX_QP_RD_ATOMIC` and `IBV_QP_EN_SQD_ASYNC_NOTIFY`.
const SENDING: u32 = (1 << 13) | (1 << 2);

/// The attributes that a target has no use for and refuses.
const NOT_TARGET: u32 = QpAttrMask::RETRY_CNT.bits() | QpAttrMask::RNR_RETRY.bits() | SENDING;

/// States that only the sending half passes through.
const QPS_SQD: c_uint = 4;
const QPS_SQE: c_uint = 5;

/// The attributes with the port of an alternate path in its address vector, too. OFED's kernels
/// took it from `alt_port_num` alone, which is all that Open MPI sets; today's refuse another in
/// the vector.
pub(crate) fn with_alternate_port(mut attr: ibv_qp_attr, mask: c_int) -> ibv_qp_attr {
    if mask as u32 & QpAttrMask::ALT_PATH.bits() != 0 {
        attr.alt_ah_attr.port_num = attr.alt_port_num;
    }
    attr
}

/// Modifies a QP; of a pair, both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let Some((number, target, domain)) =
        with_pair(qp, |pair| (pair.number, pair.target, pair.domain))
    else {
        if mask as u32 & QpAttrMask::ALT_PATH.bits() == 0 {
            // SAFETY: The caller's arguments are those of the function behind this one.
            return unsafe { real::modify_qp(qp, attr, mask) };
        }
        // SAFETY: The caller's attribute. `rate_limit`, which is not copied, is for raw packet QPs.
        let given = with_alternate_port(unsafe { *attr }, mask);
        let mut own = [given, Default::default()];
        // SAFETY: The caller's QP; `own` has all that rdma-core reads.
        return unsafe { real::modify_qp(qp, own.as_mut_ptr(), mask) };
    };
    // SAFETY: The caller's attribute. `rate_limit`, which is not copied, is for raw packet QPs.
    let given = with_alternate_port(unsafe { *attr }, mask);
    let peer = Number::from_public(given.dest_qp_num);
    let has = |bits: QpAttrMask| mask as u32 & bits.bits() != 0;

    // rdma-core's struct is longer by `rate_limit`, so this is followed by zeroes.
    let to_initiator = ibv_qp_attr {
        dest_qp_num: peer.target(),
        ..given
    };
    let mut own = [to_initiator, Default::default()];
    let initiator_mask = mask & !(NOT_INITIATOR.bits() as c_int);
    // SAFETY: The caller's QP, which has a pair; `own` has all that rdma-core reads.
    let result = unsafe {
        let modify = || real::modify_qp(qp, own.as_mut_ptr(), initiator_mask);
        let result = with_own_number(qp, number, modify);
        with_pair(qp, |pair| (*qp).qp_num = pair.number.public());
        result
    };
    if result != 0 || target.is_null() {
        return result;
    }

    // The peer is a receive QP, or an initiator without a target.
    // SAFETY: A domain stays open while it has a pair.
    if has(QpAttrMask::DEST_QPN) && !peer.is_pair() && !unsafe { (*domain).needs_every_target() } {
        // SAFETY: The target lives as long as its pair, and only the pair knows it.
        let result = unsafe { real::destroy_qp(target) };
        if result != 0 {
            return result;
        }
        with_pairs_mut(|pairs| {
            if let Some(pair) = pairs.get_mut(&qp.addr()) {
                pair.target = ptr::null_mut();
                // SAFETY: `qp` is this pair's.
                unsafe { pair.make_plain(qp) };
            }
        });
        return 0;
    }
    if has(QpAttrMask::STATE) && matches!(given.qp_state, QPS_SQD | QPS_SQE) {
        return 0;
    }
    own[0].dest_qp_num = peer.initiator();
    let mask = mask as u32 & !NOT_TARGET;
    if mask == 0 {
        return 0;
    }
    // SAFETY: The target lives as long as its pair; `own` has all that rdma-core reads.
    unsafe { real::modify_qp(target, own.as_mut_ptr(), mask as c_int) }
}

/// Queries a QP; of a pair, the initiator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: The caller's arguments are those of the function behind this one.
    let result = unsafe { real::query_qp(qp, attr, mask, init_attr) };
    if let (0, Some(domain)) = (result, with_pair(qp, |pair| pair.domain)) {
        // SAFETY: A program that creates an XRC QP as with OFED passes OFED's attribute.
        unsafe {
            (*init_attr).qp_type = IBV_QPT_XRC;
            (*init_attr).xrc_domain = domain;
        }
    }
    result
}

/// Destroys a QP; of a pair, both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let Some(target) = with_pair(qp, |pair| pair.target) else {
        // SAFETY: The caller's QP is live, and is destroyed once.
        return unsafe { real::destroy_qp(qp) };
    };
    if !target.is_null() {
        // The program's events of the target are acknowledged after this, so the pair is still
        // known.
        // SAFETY: The target lives as long as its pair.
        let result = unsafe { real::destroy_qp(target) };
        if result != 0 {
            return result;
        }
    }
    // Before the QP is destroyed: its address may be another's right after.
    let Some(mut pair) = with_pairs_mut(|pairs| pairs.remove(&qp.addr())) else {
        return libc::EINVAL;
    };
    // SAFETY: The caller's QP, which is still one if it was not destroyed.
    unsafe {
        let result = with_own_number(qp, pair.number, || real::destroy_qp(qp));
        if result != 0 {
            (*qp).qp_num = pair.number.public();
            pair.target = ptr::null_mut();
            with_pairs_mut(|pairs| pairs.insert(qp.addr(), pair));
        }
        result
    }
}

/// If `qp` is the target of a pair, the initiator that the program knows, with one more event to be
/// acknowledged.
pub(crate) fn adopt_event(qp: *mut ibv_qp) -> Option<*mut ibv_qp> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    with_pairs_mut(|pairs| {
        let (initiator, pair) = pairs
            .iter_mut()
            .find(|(_, pair)| ptr::eq(pair.target, qp))?;
        pair.unacknowledged += 1;
        Some(ptr::with_exposed_provenance_mut(*initiator))
    })
}

/// The QP of libibverbs that counts an event of `qp` which the program acknowledges: the target, if
/// [`adopt_event`] gave one of its events to `qp`. Of a pair that has events of both, either comes
/// first: a pair is destroyed after all are acknowledged.
pub(crate) fn counting(qp: *mut ibv_qp) -> *mut ibv_qp {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return qp;
    }
    with_pairs_mut(|pairs| match pairs.get_mut(&qp.addr()) {
        Some(pair) if pair.unacknowledged != 0 => {
            pair.unacknowledged -= 1;
            pair.target
        }
        _ => qp,
    })
}
