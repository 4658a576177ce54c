// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

// Written by user/bindings/generate.

#[repr(C)]
#[derive(Default)]
pub struct __IncompleteArrayField<T>(::core::marker::PhantomData<T>, [T; 0]);
impl<T> __IncompleteArrayField<T> {
    #[inline]
    pub const fn new() -> Self {
        __IncompleteArrayField(::core::marker::PhantomData, [])
    }
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        self as *const _ as *const T
    }
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self as *mut _ as *mut T
    }
    #[inline]
    pub unsafe fn as_slice(&self, len: usize) -> &[T] {
        ::core::slice::from_raw_parts(self.as_ptr(), len)
    }
    #[inline]
    pub unsafe fn as_mut_slice(&mut self, len: usize) -> &mut [T] {
        ::core::slice::from_raw_parts_mut(self.as_mut_ptr(), len)
    }
}
impl<T> ::core::fmt::Debug for __IncompleteArrayField<T> {
    fn fmt(&self, fmt: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        fmt.write_str("__IncompleteArrayField")
    }
}
pub const XRC_RCV_VERSION: u32 = 2;
pub const XRC_RCV_EVENT_QP_GONE: u32 = 63;
pub const XRC_RCV_EVENT_QP_ADDED: u32 = 61;
pub const XRC_RCV_EVENT_OVERRUN: u32 = 62;
pub type __u8 = ::core::ffi::c_uchar;
pub type __u16 = ::core::ffi::c_ushort;
pub type __u32 = ::core::ffi::c_uint;
pub type __s64 = ::core::ffi::c_longlong;
pub type __u64 = ::core::ffi::c_ulonglong;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ib_uverbs_attr {
    pub attr_id: __u16,
    pub len: __u16,
    pub flags: __u16,
    pub attr_data: ib_uverbs_attr__bindgen_ty_1,
    pub __bindgen_anon_1: ib_uverbs_attr__bindgen_ty_2,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ib_uverbs_attr__bindgen_ty_1 {
    pub enum_data: ib_uverbs_attr__bindgen_ty_1__bindgen_ty_1,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct ib_uverbs_attr__bindgen_ty_1__bindgen_ty_1 {
    pub elem_id: __u8,
    pub reserved: __u8,
}
impl Default for ib_uverbs_attr__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ib_uverbs_attr__bindgen_ty_2 {
    pub data: __u64,
    pub data_s64: __s64,
}
impl Default for ib_uverbs_attr__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for ib_uverbs_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
pub struct ib_uverbs_ioctl_hdr {
    pub length: __u16,
    pub object_id: __u16,
    pub method_id: __u16,
    pub num_attrs: __u16,
    pub reserved1: __u64,
    pub driver_id: __u32,
    pub reserved2: __u32,
    pub attrs: __IncompleteArrayField<ib_uverbs_attr>,
}
impl Default for ib_uverbs_ioctl_hdr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct ib_uverbs_global_route {
    pub dgid: [__u8; 16usize],
    pub flow_label: __u32,
    pub sgid_index: __u8,
    pub hop_limit: __u8,
    pub traffic_class: __u8,
    pub reserved: __u8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct ib_uverbs_ah_attr {
    pub grh: ib_uverbs_global_route,
    pub dlid: __u16,
    pub sl: __u8,
    pub src_path_bits: __u8,
    pub static_rate: __u8,
    pub is_global: __u8,
    pub port_num: __u8,
    pub reserved: __u8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct ib_uverbs_qp_attr {
    pub qp_attr_mask: __u32,
    pub qp_state: __u32,
    pub cur_qp_state: __u32,
    pub path_mtu: __u32,
    pub path_mig_state: __u32,
    pub qkey: __u32,
    pub rq_psn: __u32,
    pub sq_psn: __u32,
    pub dest_qp_num: __u32,
    pub qp_access_flags: __u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub alt_ah_attr: ib_uverbs_ah_attr,
    pub max_send_wr: __u32,
    pub max_recv_wr: __u32,
    pub max_send_sge: __u32,
    pub max_recv_sge: __u32,
    pub max_inline_data: __u32,
    pub pkey_index: __u16,
    pub alt_pkey_index: __u16,
    pub en_sqd_async_notify: __u8,
    pub sq_draining: __u8,
    pub max_rd_atomic: __u8,
    pub max_dest_rd_atomic: __u8,
    pub min_rnr_timer: __u8,
    pub port_num: __u8,
    pub timeout: __u8,
    pub retry_cnt: __u8,
    pub rnr_retry: __u8,
    pub alt_port_num: __u8,
    pub alt_timeout: __u8,
    pub reserved: [__u8; 5usize],
}
pub const XRC_RCV_QP_INFO_SIZE_VER1: xrc_rcv_record_sizes = 16;
pub const XRC_RCV_REG_INFO_SIZE_VER1: xrc_rcv_record_sizes = 144;
pub const XRC_RCV_RECORD_SIZE_VER1: xrc_rcv_record_sizes = 32;
pub const XRC_RCV_QPNS_SIZE_VER1: xrc_rcv_record_sizes = 32;
pub const XRC_RCV_RECORD_SIZE_MAX: xrc_rcv_record_sizes = 256;
pub type xrc_rcv_record_sizes = ::core::ffi::c_uint;
pub const XRC_RCV_OBJECT_QP: xrc_rcv_objects = 4106;
pub const XRC_RCV_OBJECT_EVENT_CHANNEL: xrc_rcv_objects = 4107;
pub type xrc_rcv_objects = ::core::ffi::c_uint;
pub const XRC_RCV_METHOD_QP_ALLOC: xrc_rcv_qp_methods = 4096;
pub const XRC_RCV_METHOD_QP_MODIFY: xrc_rcv_qp_methods = 4097;
pub const XRC_RCV_METHOD_QP_QUERY: xrc_rcv_qp_methods = 4098;
pub const XRC_RCV_METHOD_QP_DESTROY: xrc_rcv_qp_methods = 4099;
pub const XRC_RCV_METHOD_QUERY_CAPS: xrc_rcv_qp_methods = 4100;
pub type xrc_rcv_qp_methods = ::core::ffi::c_uint;
pub const XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC: xrc_rcv_event_channel_methods = 4096;
pub const XRC_RCV_METHOD_QP_REG: xrc_rcv_event_channel_methods = 4097;
pub const XRC_RCV_METHOD_QP_UNREG: xrc_rcv_event_channel_methods = 4098;
pub const XRC_RCV_METHOD_QUERY_DOMAIN: xrc_rcv_event_channel_methods = 4099;
pub type xrc_rcv_event_channel_methods = ::core::ffi::c_uint;
pub const XRC_RCV_LIFETIME_REGISTRATIONS: xrc_rcv_lifetime = 0;
pub const XRC_RCV_LIFETIME_DOMAIN: xrc_rcv_lifetime = 1;
pub type xrc_rcv_lifetime = ::core::ffi::c_uint;
pub const XRC_RCV_ALLOC_LIFETIME_DOMAIN: xrc_rcv_alloc_flags = 1;
pub type xrc_rcv_alloc_flags = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE: xrc_rcv_qp_alloc_attrs = 4096;
pub const XRC_RCV_ATTR_QP_ALLOC_FLAGS: xrc_rcv_qp_alloc_attrs = 4097;
pub const XRC_RCV_ATTR_QP_ALLOC_ATTR: xrc_rcv_qp_alloc_attrs = 4098;
pub const XRC_RCV_ATTR_QP_ALLOC_CHANNEL: xrc_rcv_qp_alloc_attrs = 4099;
pub const XRC_RCV_ATTR_QP_ALLOC_RESP_QPN: xrc_rcv_qp_alloc_attrs = 4100;
pub const XRC_RCV_ATTR_QP_ALLOC_LABEL: xrc_rcv_qp_alloc_attrs = 4101;
pub const XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL: xrc_rcv_qp_alloc_attrs = 4102;
pub type xrc_rcv_qp_alloc_attrs = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE: xrc_rcv_qp_modify_attrs = 4096;
pub const XRC_RCV_ATTR_QP_MODIFY_QPN: xrc_rcv_qp_modify_attrs = 4097;
pub const XRC_RCV_ATTR_QP_MODIFY_ATTR: xrc_rcv_qp_modify_attrs = 4098;
pub type xrc_rcv_qp_modify_attrs = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct xrc_rcv_qp_info {
    pub qp_num: __u32,
    pub state: __u32,
    pub lifetime: __u32,
    pub registrations: __u32,
    pub label: __u64,
    pub dest_qp_num: __u32,
    pub reserved: __u32,
}
pub const XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE: xrc_rcv_qp_query_attrs = 4096;
pub const XRC_RCV_ATTR_QP_QUERY_QPN: xrc_rcv_qp_query_attrs = 4097;
pub const XRC_RCV_ATTR_QP_QUERY_RESP_ATTR: xrc_rcv_qp_query_attrs = 4098;
pub const XRC_RCV_ATTR_QP_QUERY_RESP_INFO: xrc_rcv_qp_query_attrs = 4099;
pub type xrc_rcv_qp_query_attrs = ::core::ffi::c_uint;
pub const XRC_RCV_DESTROY_FORCE: xrc_rcv_destroy_flags = 1;
pub type xrc_rcv_destroy_flags = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE: xrc_rcv_qp_destroy_attrs = 4096;
pub const XRC_RCV_ATTR_QP_DESTROY_QPN: xrc_rcv_qp_destroy_attrs = 4097;
pub const XRC_RCV_ATTR_QP_DESTROY_FLAGS: xrc_rcv_qp_destroy_attrs = 4098;
pub type xrc_rcv_qp_destroy_attrs = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE: xrc_rcv_query_domain_attrs = 4096;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN: xrc_rcv_query_domain_attrs = 4097;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO: xrc_rcv_query_domain_attrs = 4098;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT: xrc_rcv_query_domain_attrs = 4099;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL: xrc_rcv_query_domain_attrs = 4100;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE: xrc_rcv_query_domain_attrs = 4101;
pub type xrc_rcv_query_domain_attrs = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct xrc_rcv_caps {
    pub version: __u32,
    pub alloc_flags: __u32,
    pub event_types: __u64,
    pub max_qps_per_domain: __u32,
    pub max_qps_per_user: __u32,
    pub record_size: __u32,
    pub max_registrations_per_qp: __u32,
}
pub const XRC_RCV_ATTR_QUERY_CAPS_RESP: xrc_rcv_query_caps_attrs = 4096;
pub type xrc_rcv_query_caps_attrs = ::core::ffi::c_uint;
pub const XRC_RCV_EVENT_CHANNEL_ALL: xrc_rcv_event_channel_flags = 1;
pub const XRC_RCV_EVENT_CHANNEL_OBSERVE: xrc_rcv_event_channel_flags = 2;
pub type xrc_rcv_event_channel_flags = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD: xrc_rcv_event_channel_alloc_attrs = 4096;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE: xrc_rcv_event_channel_alloc_attrs = 4097;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE: xrc_rcv_event_channel_alloc_attrs = 4098;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS: xrc_rcv_event_channel_alloc_attrs = 4099;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS: xrc_rcv_event_channel_alloc_attrs = 4100;
pub type xrc_rcv_event_channel_alloc_attrs = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct xrc_rcv_reg_info {
    pub serial: __u64,
    pub counts: [__u64; 17usize],
}
pub const XRC_RCV_ATTR_QP_REG_CHANNEL: xrc_rcv_qp_reg_attrs = 4096;
pub const XRC_RCV_ATTR_QP_REG_QPNS: xrc_rcv_qp_reg_attrs = 4097;
pub const XRC_RCV_ATTR_QP_REG_RESP_DONE: xrc_rcv_qp_reg_attrs = 4098;
pub const XRC_RCV_ATTR_QP_REG_RESP_INFO: xrc_rcv_qp_reg_attrs = 4099;
pub const XRC_RCV_ATTR_QP_REG_INFO_SIZE: xrc_rcv_qp_reg_attrs = 4100;
pub type xrc_rcv_qp_reg_attrs = ::core::ffi::c_uint;
pub const XRC_RCV_ATTR_QP_UNREG_CHANNEL: xrc_rcv_qp_unreg_attrs = 4096;
pub const XRC_RCV_ATTR_QP_UNREG_QPNS: xrc_rcv_qp_unreg_attrs = 4097;
pub const XRC_RCV_ATTR_QP_UNREG_RESP_DONE: xrc_rcv_qp_unreg_attrs = 4098;
pub type xrc_rcv_qp_unreg_attrs = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct xrc_rcv_qpns {
    pub qpns: __u64,
    pub infos: __u64,
    pub count: __u32,
    pub info_size: __u32,
    pub flags: __u32,
    pub done: __u32,
}
pub const XRC_RCV_IOCTL_NR_REG: xrc_rcv_ioctls = 128;
pub const XRC_RCV_IOCTL_NR_UNREG: xrc_rcv_ioctls = 129;
pub type xrc_rcv_ioctls = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct xrc_rcv_record {
    pub last_ns: __u64,
    pub serial: __u64,
    pub count: __u64,
    pub qp_num: __u32,
    pub type_: __u32,
    pub label: __u64,
}
pub const VERBS_IOCTL: uverbs_constants = 3222805249;
pub const CHANNEL_IOCTL_REG: uverbs_constants = 3223329664;
pub const CHANNEL_IOCTL_UNREG: uverbs_constants = 3223329665;
pub const ATTR_F_MANDATORY: uverbs_constants = 1;
pub type uverbs_constants = ::core::ffi::c_uint;
