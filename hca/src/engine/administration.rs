// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Subnet administration: answers queries for paths and joins ports to multicast groups, as far as
//! `ib_sa` asks for them.
//!
//! All active ports reach each other over one path. A multicast packet reaches every port, whether
//! it has joined or not: adapters choose by GID. Answers have one packet, so GetTable is not
//! supported.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::bytes::Fields;
use crate::engine::packet::{Body, DatagramHeader, Extra, Packet, LID_MULTICAST, LID_PERMISSIVE};
use crate::engine::port::Port;
use crate::engine::transport::Service;

/// The LID of the subnet manager and its administration: the last one that is not multicast.
pub const SM_LID: u16 = LID_MULTICAST - 1;
/// QP1, and its well-known Q_Key.
const QP1: u32 = 1;
const QP1_QKEY: u32 = 0x8001_0000;

// struct ib_sa_mad.
const MAD_SIZE: usize = 256;
const MAD_CLASS: usize = 0x01;
const MAD_CLASS_VERSION: usize = 0x02;
const MAD_METHOD: usize = 0x03;
const MAD_STATUS: usize = 0x04;
const MAD_ATTR_ID: usize = 0x10;
const MAD_COMPONENTS: usize = 0x30;
const MAD_DATA: usize = 0x38;

const CLASS_ADMINISTRATION: u8 = 0x03;
const CLASS_VERSION: u8 = 2;

const METHOD_GET: u8 = 0x01;
const METHOD_SET: u8 = 0x02;
const METHOD_TRAP: u8 = 0x05;
const METHOD_REPORT: u8 = 0x06;
const METHOD_TRAP_REPRESS: u8 = 0x07;
const METHOD_DELETE: u8 = 0x15;
const METHOD_RESPONSE: u8 = 0x80;

const CLASS_PORT_INFO: u16 = 0x01;
const PATH_RECORD: u16 = 0x35;
const MC_MEMBER_RECORD: u16 = 0x38;

/// log2 of how long an answer may take, in units of 4.096 us.
const RESPONSE_TIME: u32 = 18;

/// The attributes of every path: MTU 4096, 40 Gb/s, packet lifetime 67 ms.
const PATH_MTU: u8 = 5;
const PATH_RATE: u8 = 7;
const PATH_LIFETIME: u8 = 14;

/// The status of an answer without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Status {
    Unsupported = 0x000c,
    NoResources = 0x0100,
    Invalid = 0x0200,
    NoRecords = 0x0300,
    InvalidGid = 0x0500,
    InsufficientComponents = 0x0600,
}

/// Components of a PathRecord, and where they are.
mod path {
    pub const HAS_DGID: u64 = 1 << 2;
    pub const HAS_SGID: u64 = 1 << 3;
    pub const HAS_DLID: u64 = 1 << 4;
    pub const HAS_SLID: u64 = 1 << 5;
    pub const HAS_PKEY: u64 = 1 << 13;
    pub const HAS_MTU: u64 = 3 << 16;
    pub const HAS_RATE: u64 = 3 << 18;
    pub const HAS_LIFETIME: u64 = 3 << 20;

    pub const DGID: usize = 8;
    pub const SGID: usize = 24;
    pub const DLID: usize = 40;
    pub const SLID: usize = 42;
    pub const REVERSIBLE_NUMBER: usize = 49;
    pub const PKEY: usize = 50;
    pub const MTU: usize = 54;
    pub const RATE: usize = 55;
    pub const LIFETIME: usize = 56;

    pub const REVERSIBLE: u8 = 1 << 7;
}

/// Components of a MCMemberRecord, and where they are.
mod member {
    pub const HAS_MGID: u64 = 1 << 0;
    pub const HAS_PORT_GID: u64 = 1 << 1;
    pub const HAS_QKEY: u64 = 1 << 2;
    pub const HAS_MTU: u64 = 3 << 4;
    pub const HAS_TRAFFIC_CLASS: u64 = 1 << 6;
    pub const HAS_PKEY: u64 = 1 << 7;
    pub const HAS_RATE: u64 = 3 << 8;
    pub const HAS_SL: u64 = 1 << 12;
    pub const HAS_FLOW_LABEL: u64 = 1 << 13;
    pub const HAS_JOIN_STATE: u64 = 1 << 16;
    /// Needed to create a group.
    pub const HAS_ALL: u64 = HAS_QKEY | HAS_TRAFFIC_CLASS | HAS_PKEY | HAS_SL | HAS_FLOW_LABEL;

    pub const SIZE: usize = 52;
    pub const MGID: usize = 0;
    pub const PORT_GID: usize = 16;
    pub const QKEY: usize = 32;
    pub const MLID: usize = 36;
    pub const MTU: usize = 38;
    pub const TRAFFIC_CLASS: usize = 39;
    pub const PKEY: usize = 40;
    pub const RATE: usize = 42;
    pub const LIFETIME: usize = 43;
    pub const SL_FLOW_HOP: usize = 44;
    pub const SCOPE_JOIN_STATE: usize = 48;

    pub const SL_MASK: u32 = 0xf << 28;
    pub const FLOW_LABEL_MASK: u32 = 0xf_ffff << 8;
    pub const JOIN_STATE_MASK: u8 = 0xf;
    pub const FULL_MEMBER: u8 = 1 << 0;
}

/// In the byte of an MTU, a rate or a lifetime: how it is meant; in an answer always exactly.
const EXACTLY: u8 = 2 << 6;

/// Whether `value` satisfies the selector and bound of `wanted`; `order` makes values comparable.
fn fits(wanted: u8, value: u8, order: fn(u8) -> u32) -> bool {
    let (bound, value) = (order(wanted & 0x3f), order(value));
    match wanted >> 6 {
        0 => value > bound,
        1 => value < bound,
        2 => value == bound,
        _ => true,
    }
}

/// In units of 100 Mb/s (enum ib_rate).
fn speed(rate: u8) -> u32 {
    match rate {
        2 => 25,
        3 => 100,
        4 => 300,
        5 => 50,
        6 => 200,
        7 => 400,
        8 => 600,
        9 => 800,
        10 => 1200,
        11 => 140,
        12 => 560,
        13 => 1120,
        14 => 1680,
        15 => 250,
        16 => 1000,
        17 => 2000,
        18 => 3000,
        _ => 0,
    }
}

/// An active port.
pub struct Endport {
    /// Its LID.
    pub lid: u16,
    /// Its GID.
    pub gid: [u8; 16],
    /// Its P_Keys.
    pub pkeys: Vec<u16>,
}

impl Endport {
    /// `port`, whose GID this is.
    pub fn new(port: &Port, gid: [u8; 16]) -> Self {
        Self {
            lid: port.lid,
            gid,
            pkeys: port.pkeys.to_vec(),
        }
    }

    fn has(&self, pkey: u16) -> bool {
        const FULL: u16 = 1 << 15;
        self.pkeys.iter().any(|ours| ours & !FULL == pkey & !FULL)
    }
}

/// A multicast group.
struct Group {
    /// Its record, without port and join state.
    record: [u8; member::SIZE],
    /// The ports that joined it, and their join states.
    members: BTreeMap<[u8; 16], u8>,
    /// It exists without members.
    permanent: bool,
}

/// The records that it keeps.
pub struct Administration {
    groups: BTreeMap<[u8; 16], Group>,
}

impl Default for Administration {
    /// The broadcast group of IP over InfiniBand is there from the start.
    fn default() -> Self {
        const BROADCAST: [u8; 16] = [
            0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ];
        let mut record = [0; member::SIZE];
        record.set_be32(member::QKEY, 0x0b1b);
        record.set_be16(member::PKEY, 0xffff);
        let mut administration = Self {
            groups: BTreeMap::new(),
        };
        administration
            .create(BROADCAST, LID_MULTICAST, record)
            .permanent = true;
        administration
    }
}

impl Administration {
    /// The answer to a packet that came to the LID of the subnet manager, if there is one.
    pub fn answer(&mut self, packet: &Packet, ports: &[Endport]) -> Option<Packet> {
        let (Body::Send { payload, .. }, Some(header)) = (&packet.body, &packet.datagram) else {
            return None;
        };
        if packet.dqpn != QP1 || header.qkey != QP1_QKEY {
            return None;
        }
        let mut mad: [u8; MAD_SIZE] = payload.as_slice().try_into().ok()?;
        self.execute(&mut mad, ports)?;
        Some(Packet {
            slid: SM_LID,
            dlid: packet.slid,
            service_level: packet.service_level,
            service: Service::Ud,
            pkey: packet.pkey,
            grh: None,
            dqpn: header.sqpn,
            psn: 0,
            mtu: packet.mtu,
            srqn: 0,
            migration_request: false,
            solicited: false,
            body: Body::Send {
                payload: mad.to_vec(),
                extra: Extra::Nothing,
            },
            datagram: Some(DatagramHeader {
                sqpn: QP1,
                qkey: QP1_QKEY,
            }),
        })
    }

    /// Turns a request into its answer. None: it is no request.
    fn execute(&mut self, mad: &mut [u8; MAD_SIZE], ports: &[Endport]) -> Option<()> {
        let method = mad.get_u8(MAD_METHOD);
        let ours = mad.get_u8(MAD_CLASS) == CLASS_ADMINISTRATION
            && mad.get_u8(MAD_CLASS_VERSION) == CLASS_VERSION;
        let one_way = matches!(method, METHOD_TRAP | METHOD_REPORT | METHOD_TRAP_REPRESS);
        if !ours || one_way || method & METHOD_RESPONSE != 0 {
            return None;
        }
        // A port that went down has left its groups.
        for group in self.groups.values_mut() {
            let active = |gid: &[u8; 16]| ports.iter().any(|port| port.gid == *gid);
            group.members.retain(|gid, _| active(gid));
        }
        self.remove_empty();

        let components = mad.get_be64(MAD_COMPONENTS);
        let query = mad.split_at(MAD_DATA).1;
        let record = match (mad.get_be16(MAD_ATTR_ID), method) {
            (CLASS_PORT_INFO, METHOD_GET) => Ok(class_port_info()),
            (PATH_RECORD, METHOD_GET) => path_record(components, query, ports),
            (MC_MEMBER_RECORD, METHOD_GET) => self.find(components, query),
            (MC_MEMBER_RECORD, METHOD_SET) => self.join(components, query, ports),
            (MC_MEMBER_RECORD, METHOD_DELETE) => self.leave(components, query),
            _ => Err(Status::Unsupported),
        };
        let response = match method {
            METHOD_SET => METHOD_GET,
            method => method,
        };
        mad.set_u8(MAD_METHOD, response | METHOD_RESPONSE);
        match record {
            Ok(record) => {
                mad.set_be16(MAD_STATUS, 0);
                mad.set_field(MAD_DATA, &record);
            }
            Err(status) => mad.set_be16(MAD_STATUS, status as u16),
        }
        Some(())
    }

    fn remove_empty(&mut self) {
        self.groups.retain(|_, group| {
            let mut states = group.members.values();
            group.permanent || states.any(|state| state & member::FULL_MEMBER != 0)
        });
    }

    /// The first LID that no group has.
    fn free_lid(&self) -> Option<u16> {
        let groups = self.groups.values();
        let used: BTreeSet<u16> = groups
            .map(|group| group.record.get_be16(member::MLID))
            .collect();
        (LID_MULTICAST..LID_PERMISSIVE).find(|lid| !used.contains(lid))
    }

    /// A new group.
    fn create(&mut self, mgid: [u8; 16], mlid: u16, mut record: [u8; member::SIZE]) -> &mut Group {
        const SCOPE_LOCAL: u8 = 2 << 4;
        record.set_field(member::MGID, &mgid);
        record.set_be16(member::MLID, mlid);
        record.set_u8(member::MTU, EXACTLY | PATH_MTU);
        record.set_u8(member::RATE, EXACTLY | PATH_RATE);
        record.set_u8(member::LIFETIME, EXACTLY | PATH_LIFETIME);
        record.set_u8(member::SCOPE_JOIN_STATE, SCOPE_LOCAL);
        self.groups.entry(mgid).or_insert(Group {
            record,
            members: BTreeMap::new(),
            permanent: false,
        })
    }

    /// Get(MCMemberRecord) of a group.
    fn find(&self, components: u64, query: &[u8]) -> Result<Vec<u8>, Status> {
        if components & member::HAS_MGID == 0 {
            return Err(Status::InsufficientComponents);
        }
        let group = self.groups.get(&query.field::<16>(member::MGID));
        let group = group.ok_or(Status::NoRecords)?;
        let gid = query.field(member::PORT_GID);
        Ok(group.answer(gid, group.members.get(&gid).copied().unwrap_or(0)))
    }

    /// Set(MCMemberRecord): a port joins a group. A full member creates it if it is not there.
    fn join(
        &mut self,
        components: u64,
        query: &[u8],
        ports: &[Endport],
    ) -> Result<Vec<u8>, Status> {
        const NEEDED: u64 = member::HAS_PORT_GID | member::HAS_JOIN_STATE;
        const MULTICAST: u8 = 0xff;
        if components & NEEDED != NEEDED {
            return Err(Status::InsufficientComponents);
        }
        let gid: [u8; 16] = query.field(member::PORT_GID);
        let state = query.get_u8(member::SCOPE_JOIN_STATE) & member::JOIN_STATE_MASK;
        let port = ports.iter().find(|port| port.gid == gid);
        let port = port.ok_or(Status::InvalidGid)?;
        let mut mgid = [0; 16];
        if components & member::HAS_MGID != 0 {
            mgid = query.field(member::MGID);
        }
        if !self.groups.contains_key(&mgid) {
            if components & member::HAS_ALL != member::HAS_ALL || state & member::FULL_MEMBER == 0 {
                return Err(Status::InsufficientComponents);
            }
            let mlid = self.free_lid().ok_or(Status::NoResources)?;
            if mgid == [0; 16] {
                mgid = fresh_mgid(mlid);
            }
            if mgid.get_u8(0) != MULTICAST {
                return Err(Status::InvalidGid);
            }
            let mut record = [0; member::SIZE];
            record.set_be32(member::QKEY, query.get_be32(member::QKEY));
            record.set_u8(member::TRAFFIC_CLASS, query.get_u8(member::TRAFFIC_CLASS));
            record.set_be16(member::PKEY, query.get_be16(member::PKEY));
            record.set_be32(member::SL_FLOW_HOP, query.get_be32(member::SL_FLOW_HOP));
            self.create(mgid, mlid, record);
        }
        let group = self.groups.get_mut(&mgid).ok_or(Status::NoRecords)?;
        if !group.is(components, query) || !port.has(group.record.get_be16(member::PKEY)) {
            self.remove_empty();
            return Err(Status::Invalid);
        }
        let joined = group.members.entry(gid).or_default();
        *joined |= state;
        let joined = *joined;
        Ok(group.answer(gid, joined))
    }

    /// Delete(MCMemberRecord): a port leaves a group. The last full member takes it away.
    fn leave(&mut self, components: u64, query: &[u8]) -> Result<Vec<u8>, Status> {
        const NEEDED: u64 = member::HAS_MGID | member::HAS_PORT_GID | member::HAS_JOIN_STATE;
        if components & NEEDED != NEEDED {
            return Err(Status::InsufficientComponents);
        }
        let gid: [u8; 16] = query.field(member::PORT_GID);
        let state = query.get_u8(member::SCOPE_JOIN_STATE) & member::JOIN_STATE_MASK;
        let group = self.groups.get_mut(&query.field::<16>(member::MGID));
        let group = group.ok_or(Status::Invalid)?;
        let joined = group.members.get_mut(&gid).ok_or(Status::Invalid)?;
        if *joined & state == 0 {
            return Err(Status::Invalid);
        }
        *joined &= !state;
        if *joined == 0 {
            group.members.remove(&gid);
        }
        let answer = group.answer(gid, state);
        self.remove_empty();
        Ok(answer)
    }
}

/// The GID of a group whose creator leaves the choice to us.
fn fresh_mgid(mlid: u16) -> [u8; 16] {
    const PREFIX: u64 = 0xff12_a01b_0000_0000;
    let mut mgid = [0; 16];
    mgid.set_be64(0, PREFIX);
    mgid.set_be64(8, u64::from(mlid));
    mgid
}

impl Group {
    /// Whether the group is as a query wants it to be.
    fn is(&self, components: u64, query: &[u8]) -> bool {
        use member::*;
        let has = |component| components & component == component;
        let same = |mask: u32| {
            (query.get_be32(SL_FLOW_HOP) ^ self.record.get_be32(SL_FLOW_HOP)) & mask == 0
        };
        let value = |at| self.record.get_u8(at) & !EXACTLY;
        (!has(HAS_QKEY) || query.get_be32(QKEY) == self.record.get_be32(QKEY))
            && (!has(HAS_PKEY) || query.get_be16(PKEY) == self.record.get_be16(PKEY))
            && (!has(HAS_TRAFFIC_CLASS)
                || query.get_u8(TRAFFIC_CLASS) == self.record.get_u8(TRAFFIC_CLASS))
            && (!has(HAS_SL) || same(SL_MASK))
            && (!has(HAS_FLOW_LABEL) || same(FLOW_LABEL_MASK))
            && (!has(HAS_MTU) || fits(query.get_u8(MTU), value(MTU), u32::from))
            && (!has(HAS_RATE) || fits(query.get_u8(RATE), value(RATE), speed))
    }

    fn answer(&self, gid: [u8; 16], state: u8) -> Vec<u8> {
        let mut record = self.record;
        record.set_field(member::PORT_GID, &gid);
        let scope = record.get_u8(member::SCOPE_JOIN_STATE);
        record.set_u8(member::SCOPE_JOIN_STATE, scope | state);
        record.to_vec()
    }
}

fn class_port_info() -> Vec<u8> {
    let mut info = vec![0; 72];
    info.set_u8(0, 1);
    info.set_u8(1, CLASS_VERSION);
    info.set_be32(4, RESPONSE_TIME);
    info
}

/// Get(PathRecord): the path between two ports.
fn path_record(components: u64, query: &[u8], ports: &[Endport]) -> Result<Vec<u8>, Status> {
    use path::*;
    let has = |component| components & component == component;
    let port = |has_gid, gid, has_lid, lid| {
        if !has(has_gid) && !has(has_lid) {
            return Err(Status::InsufficientComponents);
        }
        let mut found = ports.iter().filter(|port| {
            (!has(has_gid) || port.gid == query.field(gid))
                && (!has(has_lid) || port.lid == query.get_be16(lid))
        });
        found.next().ok_or(Status::NoRecords)
    };
    let source = port(HAS_SGID, SGID, HAS_SLID, SLID)?;
    let destination = port(HAS_DGID, DGID, HAS_DLID, DLID)?;
    let wanted = has(HAS_PKEY).then(|| query.get_be16(PKEY));
    let shared = source.pkeys.iter().copied().find(|pkey| {
        *pkey != 0 && destination.has(*pkey) && wanted.is_none_or(|wanted| wanted == *pkey)
    });
    let pkey = shared.ok_or(Status::NoRecords)?;
    let is_such = (!has(HAS_MTU) || fits(query.get_u8(MTU), PATH_MTU, u32::from))
        && (!has(HAS_RATE) || fits(query.get_u8(RATE), PATH_RATE, speed))
        && (!has(HAS_LIFETIME) || fits(query.get_u8(LIFETIME), PATH_LIFETIME, u32::from));
    if !is_such {
        return Err(Status::NoRecords);
    }
    // Service, flow label and classes are as in the query: the path is good for all.
    let mut record = query.to_vec();
    record.set_field(DGID, &destination.gid);
    record.set_field(SGID, &source.gid);
    record.set_be16(DLID, destination.lid);
    record.set_be16(SLID, source.lid);
    record.set_u8(REVERSIBLE_NUMBER, REVERSIBLE | 1);
    record.set_be16(PKEY, pkey);
    record.set_u8(MTU, EXACTLY | PATH_MTU);
    record.set_u8(RATE, EXACTLY | PATH_RATE);
    record.set_u8(LIFETIME, EXACTLY | PATH_LIFETIME);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 16] = [1; 16];
    const TWO: [u8; 16] = [2; 16];
    const JOIN: u64 = member::HAS_MGID | member::HAS_PORT_GID | member::HAS_JOIN_STATE;

    fn ports() -> Vec<Endport> {
        [(1, ONE, [0xffff, 0x8001]), (2, TWO, [0xffff, 0x8002])]
            .into_iter()
            .map(|(lid, gid, pkeys)| Endport {
                lid,
                gid,
                pkeys: pkeys.to_vec(),
            })
            .collect()
    }

    /// Its status, or its record.
    fn ask(
        administration: &mut Administration,
        attribute: u16,
        method: u8,
        components: u64,
        data: &[(usize, &[u8])],
    ) -> Result<Vec<u8>, u16> {
        let mut mad = [0; MAD_SIZE];
        mad.set_u8(MAD_CLASS, CLASS_ADMINISTRATION);
        mad.set_u8(MAD_CLASS_VERSION, CLASS_VERSION);
        mad.set_u8(MAD_METHOD, method);
        mad.set_be16(MAD_ATTR_ID, attribute);
        mad.set_be64(MAD_COMPONENTS, components);
        for (at, bytes) in data {
            mad.set_field(MAD_DATA + at, bytes);
        }
        administration.execute(&mut mad, &ports()).unwrap();
        let response = if method == METHOD_SET {
            0x81
        } else {
            method | 0x80
        };
        assert_eq!(mad.get_u8(MAD_METHOD), response);
        match mad.get_be16(MAD_STATUS) {
            0 => Ok(mad[MAD_DATA..].to_vec()),
            status => Err(status),
        }
    }

    fn path(components: u64, data: &[(usize, &[u8])]) -> Result<Vec<u8>, u16> {
        let mut administration = Administration::default();
        ask(
            &mut administration,
            PATH_RECORD,
            METHOD_GET,
            components,
            data,
        )
    }

    fn mgid(last: u8) -> [u8; 16] {
        let mut mgid = [0; 16];
        (mgid[0], mgid[1], mgid[15]) = (0xff, 0x12, last);
        mgid
    }

    fn membership(
        administration: &mut Administration,
        method: u8,
        components: u64,
        (mgid, port, state): ([u8; 16], [u8; 16], u8),
    ) -> Result<Vec<u8>, u16> {
        let data: [(usize, &[u8]); 5] = [
            (member::MGID, &mgid),
            (member::PORT_GID, &port),
            (member::QKEY, &[0, 0, 0, 7]),
            (member::PKEY, &[0xff, 0xff]),
            (member::SCOPE_JOIN_STATE, &[state]),
        ];
        ask(administration, MC_MEMBER_RECORD, method, components, &data)
    }

    #[test]
    fn a_path_leads_from_port_to_port() {
        use super::path::*;
        let by_gid = path(HAS_SGID | HAS_DGID, &[(SGID, &ONE), (DGID, &TWO)]).unwrap();
        assert_eq!((by_gid.get_be16(SLID), by_gid.get_be16(DLID)), (1, 2));
        assert_eq!(by_gid.get_be16(PKEY), 0xffff);
        assert_eq!(by_gid.get_u8(REVERSIBLE_NUMBER), 0x81);
        let by_lid = path(HAS_SLID | HAS_DLID, &[(SLID, &[0, 1]), (DLID, &[0, 2])]).unwrap();
        assert_eq!(by_lid.field::<16>(DGID), TWO);
        let mtu = |wanted: u8| {
            let data: [(usize, &[u8]); 3] = [(SGID, &ONE), (DGID, &TWO), (MTU, &[wanted])];
            path(HAS_SGID | HAS_DGID | HAS_MTU, &data)
        };
        // More than 2048, less than 4096, exactly 4096.
        assert!(mtu(4).is_ok());
        assert_eq!(mtu(1 << 6 | 5), Err(Status::NoRecords as u16));
        assert!(mtu(2 << 6 | 5).is_ok());
    }

    #[test]
    fn there_is_no_path_to_a_stranger_or_into_a_partition_of_one_end() {
        use super::path::*;
        let stranger = path(HAS_SGID | HAS_DGID, &[(SGID, &ONE), (DGID, &[3; 16])]);
        assert_eq!(stranger, Err(Status::NoRecords as u16));
        let data: [(usize, &[u8]); 3] = [(SGID, &ONE), (DGID, &TWO), (PKEY, &[0x80, 1])];
        let partition = path(HAS_SGID | HAS_DGID | HAS_PKEY, &data);
        assert_eq!(partition, Err(Status::NoRecords as u16));
        let without = path(HAS_DGID, &[(DGID, &TWO)]);
        assert_eq!(without, Err(Status::InsufficientComponents as u16));
    }

    #[test]
    fn a_port_joins_the_broadcast_group_that_is_there() {
        let broadcast = Administration::default();
        let mgid = *broadcast.groups.first_key_value().unwrap().0;
        let mut administration = broadcast;
        let full = (mgid, ONE, member::FULL_MEMBER);
        let record = membership(&mut administration, METHOD_SET, JOIN, full).unwrap();
        assert_eq!(record.get_be16(member::MLID), LID_MULTICAST);
        assert_eq!(record.get_be32(member::QKEY), 0x0b1b);
        assert_eq!(record.get_u8(member::SCOPE_JOIN_STATE), 0x21);
        // Another key than the group's.
        let with_key = JOIN | member::HAS_QKEY;
        let refused = membership(&mut administration, METHOD_SET, with_key, full);
        assert_eq!(refused, Err(Status::Invalid as u16));
        membership(&mut administration, METHOD_DELETE, JOIN, full).unwrap();
        assert!(administration.groups.contains_key(&mgid));
    }

    #[test]
    fn a_group_lives_as_long_as_its_full_members() {
        let mut administration = Administration::default();
        let mut change = |method, components, member| {
            membership(&mut administration, method, components, member)
        };
        let create = JOIN | member::HAS_ALL;
        let (one, two) = ((mgid(1), ONE, 1), (mgid(1), TWO, 1));
        let missing = Err(Status::InsufficientComponents as u16);
        assert_eq!(change(METHOD_SET, JOIN, one), missing);
        let first = change(METHOD_SET, create, one).unwrap();
        assert_eq!(first.get_be16(member::MLID), LID_MULTICAST + 1);
        assert_eq!(
            change(METHOD_SET, JOIN, two)
                .unwrap()
                .get_be32(member::QKEY),
            7
        );
        assert!(change(METHOD_GET, member::HAS_MGID, one).is_ok());
        change(METHOD_DELETE, JOIN, one).unwrap();
        let again = change(METHOD_DELETE, JOIN, one);
        assert_eq!(again, Err(Status::Invalid as u16));
        assert!(change(METHOD_GET, member::HAS_MGID, one).is_ok());
        change(METHOD_DELETE, JOIN, two).unwrap();
        let gone = change(METHOD_GET, member::HAS_MGID, one);
        assert_eq!(gone, Err(Status::NoRecords as u16));
        // A port of another subnet, a GID that is not multicast, and one that we choose.
        let stranger = change(METHOD_SET, create, (mgid(1), [3; 16], 1));
        assert_eq!(stranger, Err(Status::InvalidGid as u16));
        let unicast = change(METHOD_SET, create, (ONE, ONE, 1));
        assert_eq!(unicast, Err(Status::InvalidGid as u16));
        let chosen = change(METHOD_SET, create, ([0; 16], ONE, 1)).unwrap();
        assert_eq!(chosen.get_be32(member::MGID), 0xff12_a01b);
    }

    #[test]
    fn lids_of_groups_come_back() {
        let mut administration = Administration::default();
        let create = JOIN | member::HAS_ALL;
        for round in 0..3 {
            let one = (mgid(round), ONE, 1);
            let record = membership(&mut administration, METHOD_SET, create, one).unwrap();
            assert_eq!(record.get_be16(member::MLID), LID_MULTICAST + 1);
            membership(&mut administration, METHOD_DELETE, JOIN, one).unwrap();
        }
        for mlid in LID_MULTICAST + 1..LID_PERMISSIVE {
            let record = [0; member::SIZE];
            let group = administration.create(fresh_mgid(mlid), mlid, record);
            group.permanent = true;
        }
        let refused = membership(&mut administration, METHOD_SET, create, (mgid(1), ONE, 1));
        assert_eq!(refused, Err(Status::NoResources as u16));
    }

    #[test]
    fn a_port_that_goes_down_leaves_its_groups() {
        let mut administration = Administration::default();
        let create = JOIN | member::HAS_ALL;
        membership(&mut administration, METHOD_SET, create, (mgid(1), ONE, 1)).unwrap();
        assert_eq!(administration.groups.len(), 2);
        let mut mad = [0; MAD_SIZE];
        mad.set_u8(MAD_CLASS, CLASS_ADMINISTRATION);
        mad.set_u8(MAD_CLASS_VERSION, CLASS_VERSION);
        mad.set_u8(MAD_METHOD, METHOD_GET);
        administration.execute(&mut mad, &ports()[1..]).unwrap();
        assert_eq!(administration.groups.len(), 1);
    }

    #[test]
    fn other_requests_are_refused_and_responses_ignored() {
        let mut administration = Administration::default();
        let info = ask(&mut administration, CLASS_PORT_INFO, METHOD_GET, 0, &[]).unwrap();
        assert_eq!((info[0], info[1]), (1, CLASS_VERSION));
        let unsupported = Err(Status::Unsupported as u16);
        let table = 0x12;
        assert_eq!(
            ask(&mut administration, PATH_RECORD, table, 0, &[]),
            unsupported
        );
        let service = 0x31;
        assert_eq!(
            ask(&mut administration, service, METHOD_GET, 0, &[]),
            unsupported
        );
        for (class, version, method) in [(3, 2, 0x81), (3, 2, METHOD_TRAP), (3, 1, 1), (4, 2, 1)] {
            let mut mad = [0; MAD_SIZE];
            mad.set_u8(MAD_CLASS, class);
            mad.set_u8(MAD_CLASS_VERSION, version);
            mad.set_u8(MAD_METHOD, method);
            assert!(administration.execute(&mut mad, &ports()).is_none());
        }
    }
}
