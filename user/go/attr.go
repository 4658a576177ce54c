// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

package xrcrcv

// #include <infiniband/xrc_rcv.h>
import "C"

import "net/netip"

// Enums of C, and their values.
type (
	EventType uint32 // enum ibv_event_type, XRC_RCV_EVENT_QP_ADDED, _QP_GONE and _OVERRUN
	Lifetime  uint32 // the objects that keep a receive QP: enum xrc_rcv_lifetime
	QPState   uint32 // enum ibv_qp_state
	MTU       uint32 // the largest payload of a packet: enum ibv_mtu
	Access    uint32 // remote access that a QP permits: enum ibv_access_flags
	AttrMask  uint32 // attributes that are given: enum ibv_qp_attr_mask
)

const (
	EventQPFatal        EventType = C.IBV_EVENT_QP_FATAL
	EventQPReqErr       EventType = C.IBV_EVENT_QP_REQ_ERR
	EventQPAccessErr    EventType = C.IBV_EVENT_QP_ACCESS_ERR
	EventCommEst        EventType = C.IBV_EVENT_COMM_EST
	EventPathMig        EventType = C.IBV_EVENT_PATH_MIG
	EventPathMigErr     EventType = C.IBV_EVENT_PATH_MIG_ERR
	EventLastWQEReached EventType = C.IBV_EVENT_QP_LAST_WQE_REACHED
	EventQPAdded        EventType = C.XRC_RCV_EVENT_QP_ADDED
	EventQPGone         EventType = C.XRC_RCV_EVENT_QP_GONE
	EventOverrun        EventType = C.XRC_RCV_EVENT_OVERRUN

	LifetimeRegistrations Lifetime = C.XRC_RCV_LIFETIME_REGISTRATIONS
	LifetimeDomain        Lifetime = C.XRC_RCV_LIFETIME_DOMAIN

	QPReset QPState = C.IBV_QPS_RESET
	QPInit  QPState = C.IBV_QPS_INIT
	QPRTR   QPState = C.IBV_QPS_RTR
	QPRTS   QPState = C.IBV_QPS_RTS
	QPErr   QPState = C.IBV_QPS_ERR

	MTU256  MTU = C.IBV_MTU_256
	MTU512  MTU = C.IBV_MTU_512
	MTU1024 MTU = C.IBV_MTU_1024
	MTU2048 MTU = C.IBV_MTU_2048
	MTU4096 MTU = C.IBV_MTU_4096

	AccessRemoteWrite  Access = C.IBV_ACCESS_REMOTE_WRITE
	AccessRemoteRead   Access = C.IBV_ACCESS_REMOTE_READ
	AccessRemoteAtomic Access = C.IBV_ACCESS_REMOTE_ATOMIC

	AttrState           AttrMask = C.IBV_QP_STATE
	AttrAccess          AttrMask = C.IBV_QP_ACCESS_FLAGS
	AttrPkeyIndex       AttrMask = C.IBV_QP_PKEY_INDEX
	AttrPort            AttrMask = C.IBV_QP_PORT
	AttrAddress         AttrMask = C.IBV_QP_AV
	AttrPathMTU         AttrMask = C.IBV_QP_PATH_MTU
	AttrRQPSN           AttrMask = C.IBV_QP_RQ_PSN
	AttrMinRNRTimer     AttrMask = C.IBV_QP_MIN_RNR_TIMER
	AttrMaxDestRDAtomic AttrMask = C.IBV_QP_MAX_DEST_RD_ATOMIC
	AttrDestQPNum       AttrMask = C.IBV_QP_DEST_QPN

	AttrInit = AttrPkeyIndex | AttrPort | AttrAccess
	AttrRTR  = AttrInit | AttrAddress | AttrPathMTU | AttrDestQPNum | AttrRQPSN
)

// String describes the type.
func (t EventType) String() string { return C.GoString(C.xrc_rcv_event_type_str(C.uint32_t(t))) }

// An Address is the way to the peer, from a local port: by LID, by GID (a global route), or both
// (struct ibv_ah_attr). DGID is the zero Addr for no global route.
type Address struct {
	Port                              uint8
	DLID                              uint16
	DGID                              netip.Addr
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
	SL, SrcPathBits, StaticRate       uint8
}

// QPAttr has the attributes of a receiving end (struct ibv_qp_attr), of which Mask names those that
// are given.
type QPAttr struct {
	Mask                               AttrMask
	State                              QPState
	Access                             Access
	PkeyIndex                          uint16
	Address                            Address
	PathMTU                            MTU
	DestQPNum, RQPSN                   uint32
	Port, MinRNRTimer, MaxDestRDAtomic uint8
}

// QPInfo is a receive QP, as queries return it (struct xrc_rcv_qp_info).
type QPInfo struct {
	QPNum, DestQPNum, Registrations uint32
	State                           QPState
	Lifetime                        Lifetime
	Label                           uint64
}

const infoSize = C.sizeof_struct_xrc_rcv_qp_info

func infoOf(info *C.struct_xrc_rcv_qp_info) QPInfo {
	return QPInfo{uint32(info.qp_num), uint32(info.dest_qp_num), uint32(info.registrations),
		QPState(info.state), Lifetime(info.lifetime), uint64(info.label)}
}

// toC returns the struct, NULL of nil, and its mask.
func (a *QPAttr) toC() (*C.struct_ibv_qp_attr, C.int) {
	if a == nil {
		return nil, 0
	}
	to := &a.Address
	attr := C.struct_ibv_qp_attr{
		qp_state: uint32(a.State), qp_access_flags: C.uint(a.Access), port_num: C.uint8_t(a.Port),
		pkey_index: C.uint16_t(a.PkeyIndex), path_mtu: uint32(a.PathMTU),
		dest_qp_num: C.uint32_t(a.DestQPNum), rq_psn: C.uint32_t(a.RQPSN),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), max_dest_rd_atomic: C.uint8_t(a.MaxDestRDAtomic),
		ah_attr: C.struct_ibv_ah_attr{
			port_num: C.uint8_t(to.Port), dlid: C.uint16_t(to.DLID), sl: C.uint8_t(to.SL),
			src_path_bits: C.uint8_t(to.SrcPathBits), static_rate: C.uint8_t(to.StaticRate),
		},
	}
	if to.DGID.IsValid() {
		attr.ah_attr.is_global = 1
		attr.ah_attr.grh = C.struct_ibv_global_route{
			dgid: to.DGID.As16(), flow_label: C.uint32_t(to.FlowLabel),
			sgid_index: C.uint8_t(to.SGIDIndex), hop_limit: C.uint8_t(to.HopLimit),
			traffic_class: C.uint8_t(to.TrafficClass),
		}
	}
	return &attr, C.int(a.Mask)
}
