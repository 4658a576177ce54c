// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The subnet management agent inside the adapter, which the driver asks about its own node and
//! ports. LIDs are fixed and ports with a cable are active: there is nothing that a subnet manager
//! would have to set, except P_Keys.

use crate::engine::administration::SM_LID;
use crate::engine::bytes::Fields;
use crate::engine::hca::{Card, Hca};

/// Size of a management datagram.
pub const MAD_SIZE: usize = 256;

/// The vendor of the cards.
pub const OUI_MELLANOX: u32 = 0x0002c9;

// struct ib_smp.
const MAD_CLASS: usize = 0x01;
const MAD_METHOD: usize = 0x03;
const MAD_STATUS: usize = 0x04;
const MAD_ATTR_ID: usize = 0x10;
const MAD_ATTR_MOD: usize = 0x14;
const MAD_DATA: usize = 0x40;
const DATA_SIZE: usize = MAD_SIZE - MAD_DATA;
const CLASS_LID_ROUTED: u8 = 0x01;
const CLASS_DIRECTED_ROUTE: u8 = 0x81;
const METHOD_GET: u8 = 0x01;
const METHOD_SET: u8 = 0x02;
const METHOD_GET_RESP: u8 = 0x81;
/// Method and attribute combination not supported.
const STATUS_UNSUPPORTED: u16 = 0x000c;

/// Attributes (IB_SMP_ATTR_*).
mod attribute {
    pub const NODE_DESC: u16 = 0x10;
    pub const NODE_INFO: u16 = 0x11;
    pub const GUID_INFO: u16 = 0x14;
    pub const PORT_INFO: u16 = 0x15;
    pub const PKEY_TABLE: u16 = 0x16;
    pub const SL_TO_VL_TABLE: u16 = 0x17;
}

const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;
const PORT_STATE_DOWN: u8 = 1;
const PORT_STATE_ACTIVE: u8 = 4;
const PORT_PHYS_STATE_POLLING: u8 = 2;
const PORT_PHYS_STATE_LINK_UP: u8 = 5;

impl<C: Card> Hca<C> {
    /// Turns a management datagram, received on `port`, into its answer.
    pub fn manage(&mut self, port: u8, mad: &mut [u8; MAD_SIZE]) {
        let modifier = mad.get_be32(MAD_ATTR_MOD);
        let method = mad.get_u8(MAD_METHOD);
        mad.set_u8(MAD_METHOD, METHOD_GET_RESP);
        let attribute = mad.get_be16(MAD_ATTR_ID);
        let class = mad.get_u8(MAD_CLASS);
        if !matches!(class, CLASS_LID_ROUTED | CLASS_DIRECTED_ROUTE) {
            // Performance management, for one.
            mad.set_be16(MAD_STATUS, STATUS_UNSUPPORTED);
            return;
        }
        if method == METHOD_SET && attribute == attribute::PKEY_TABLE {
            self.set_pkeys(port, modifier, mad);
        }
        let data = match attribute {
            attribute::PKEY_TABLE if method == METHOD_SET => Some(self.pkey_table(port, modifier)),
            _ if method != METHOD_GET => None,
            attribute::NODE_DESC => Some(self.node_desc()),
            attribute::NODE_INFO => Some(self.node_info(port)),
            attribute::GUID_INFO => Some(self.guid_info(port, modifier)),
            attribute::PORT_INFO => self.port_info(port, modifier as u8),
            attribute::PKEY_TABLE => Some(self.pkey_table(port, modifier)),
            attribute::SL_TO_VL_TABLE => Some([0; DATA_SIZE]),
            _ => None,
        };
        match data {
            Some(data) => mad.set_field(MAD_DATA, &data),
            None => mad.set_be16(MAD_STATUS, STATUS_UNSUPPORTED),
        }
    }

    /// Set(P_KeyTable) by the subnet manager. P_Keys that the table has no room for are ignored.
    fn set_pkeys(&mut self, port: u8, block: u32, mad: &[u8; MAD_SIZE]) {
        if let (0, Some(port)) = (block & 0xffff, self.port_mut(port)) {
            for (pkey, at) in port.pkeys.iter_mut().zip((MAD_DATA..).step_by(2)) {
                *pkey = mad.get_be16(at);
            }
        }
    }

    fn pkey_table(&self, port: u8, block: u32) -> [u8; DATA_SIZE] {
        let mut data = [0; DATA_SIZE];
        if block & 0xffff == 0 {
            for (index, at) in (0..).zip((0..DATA_SIZE).step_by(2)) {
                data.set_be16(at, self.pkey(port, index).unwrap_or(0));
            }
        }
        data
    }

    fn node_desc(&self) -> [u8; DATA_SIZE] {
        let mut data = [0; DATA_SIZE];
        match self.card.node_description() {
            Some(description) => data.set_field(0, &description),
            None => data.set_field(0, C::DESCRIPTION.as_bytes()),
        }
        data
    }

    fn node_info(&self, port: u8) -> [u8; DATA_SIZE] {
        const CHANNEL_ADAPTER: u8 = 1;
        let mut data = [0; DATA_SIZE];
        data.set_u8(0, 1);
        data.set_u8(1, 1);
        data.set_u8(2, CHANNEL_ADAPTER);
        data.set_u8(3, C::PORTS);
        // The system image is a GUID of its own.
        data.set_be64(4, self.image_guid());
        data.set_be64(12, self.node_guid());
        data.set_be64(20, self.port_guid(port));
        data.set_be16(28, 128);
        data.set_be16(30, C::IDENTITY.device);
        data.set_be32(36, u32::from(port) << 24 | OUI_MELLANOX);
        data
    }

    fn guid_info(&self, port: u8, block: u32) -> [u8; DATA_SIZE] {
        let mut data = [0; DATA_SIZE];
        if block == 0 {
            data.set_be64(0, self.port_guid(port));
        }
        data
    }

    /// PortInfo of `wanted`, or of `port` itself.
    fn port_info(&self, port: u8, wanted: u8) -> Option<[u8; DATA_SIZE]> {
        let number = if wanted == 0 { port } else { wanted };
        let state = self.port(number)?;
        let (logical, physical) = if state.is_up() {
            (PORT_STATE_ACTIVE, PORT_PHYS_STATE_LINK_UP)
        } else {
            (PORT_STATE_DOWN, PORT_PHYS_STATE_POLLING)
        };
        let mut data = [0; DATA_SIZE];
        data.set_be64(8, SUBNET_PREFIX);
        data.set_be16(16, state.lid);
        data.set_be16(18, SM_LID);
        data.set_be32(20, state.capability_mask);
        for (at, value) in [
            (28, port),
            // Link width enabled and supported 1x and 4x, active 4x.
            (29, 3),
            (30, 3),
            (31, 2),
            // Speed supported SDR, DDR and QDR; state.
            (32, 7 << 4 | logical),
            (33, physical << 4 | 2),
            (34, state.lmc),
            // Speed active QDR, enabled all.
            (35, 4 << 4 | 7),
            // MTU 4096 to the neighbour, 8 VLs, MTU 4096 at most.
            (36, 5 << 4),
            (37, 4 << 4),
            (41, 5),
            (43, 4 << 4),
            // GUIDs; how long a subnet manager may take.
            (50, 8),
            (51, 18),
        ] {
            data.set_u8(at, value);
        }
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::command::Status;
    use crate::mlx4::testing::Bench;

    #[test]
    fn pkeys_can_be_set_until_a_reset() {
        let mut bench = Bench::new();
        let mut mad = [0; MAD_SIZE];
        mad.set_u8(MAD_CLASS, CLASS_DIRECTED_ROUTE);
        mad.set_u8(MAD_METHOD, METHOD_SET);
        mad.set_be16(MAD_ATTR_ID, attribute::PKEY_TABLE);
        mad.set_be64(MAD_DATA, 0xffff_8003_8002_8001);
        bench.run(0x24, 1, 0, &mad).unwrap();
        assert_eq!(
            bench.output(MAD_SIZE).get_be64(MAD_DATA),
            0xffff_8003_8002_0000
        );
        let keys =
            |bench: &mut Bench, port| ask(bench, attribute::PKEY_TABLE, 0, port).get_be64(MAD_DATA);
        assert_eq!(keys(&mut bench, 1), 0xffff_8003_8002_0000);
        assert_eq!(keys(&mut bench, 2), 0xffff_8002_8001_0000);
        // Another block of the table.
        mad.set_be32(MAD_ATTR_MOD, 1);
        mad.set_be64(MAD_DATA, 0);
        bench.run(0x24, 1, 0, &mad).unwrap();
        assert_eq!(bench.hca.pkey(1, 1), Some(0x8003));
        bench.hca.reset();
        assert_eq!(bench.hca.pkey(1, 1), Some(0x8001));
    }

    fn ask(bench: &mut Bench, attribute: u16, modifier: u32, port: u32) -> Vec<u8> {
        ask_class(bench, CLASS_LID_ROUTED, attribute, modifier, port)
    }

    fn ask_class(
        bench: &mut Bench,
        class: u8,
        attribute: u16,
        modifier: u32,
        port: u32,
    ) -> Vec<u8> {
        let mut mad = [0; MAD_SIZE];
        mad.set_u8(MAD_CLASS, class);
        mad.set_u8(MAD_METHOD, METHOD_GET);
        mad.set_be16(MAD_ATTR_ID, attribute);
        mad.set_be32(MAD_ATTR_MOD, modifier);
        bench.run(0x24, port, 0, &mad).unwrap();
        bench.output(MAD_SIZE)
    }

    #[test]
    fn ports_are_active_with_a_lid_each() {
        let mut bench = Bench::new();
        for port in [1, 2] {
            let answer = ask(&mut bench, attribute::PORT_INFO, port, port);
            assert_eq!(answer.get_u8(MAD_METHOD), METHOD_GET_RESP);
            let info = &answer[MAD_DATA..];
            assert_eq!(info.get_be16(16), port as u16);
            assert_eq!(info.get_u8(32) & 0xf, PORT_STATE_ACTIVE);
        }
        bench.hca.set_cable(1, false);
        let answer = ask(&mut bench, attribute::PORT_INFO, 0, 1);
        assert_eq!(answer[MAD_DATA + 32] & 0xf, PORT_STATE_DOWN);
    }

    #[test]
    fn guids_of_node_and_ports_differ() {
        let mut bench = Bench::new();
        let info = ask(&mut bench, attribute::NODE_INFO, 0, 2);
        let info = &info[MAD_DATA..];
        assert_eq!(info.get_u8(3), 2);
        assert_ne!(info.get_be64(12), info.get_be64(20));
        let guids = ask(&mut bench, attribute::GUID_INFO, 0, 2);
        assert_eq!(guids.get_be64(MAD_DATA), info.get_be64(20));
        let keys = ask(&mut bench, attribute::PKEY_TABLE, 0, 2);
        assert_eq!(keys.get_be64(MAD_DATA), 0xffff_8002_8001_0000);
        assert_eq!(
            ask(&mut bench, attribute::PKEY_TABLE, 0, 1).get_be64(MAD_DATA),
            0xffff_8001_8002_0000
        );
    }

    #[test]
    fn other_attributes_are_not_supported() {
        let mut bench = Bench::new();
        let answer = ask(&mut bench, 0x01, 0, 1);
        assert_eq!(answer.get_be16(MAD_STATUS), STATUS_UNSUPPORTED);
        assert_eq!(bench.run(0x24, 3, 0, &[0; MAD_SIZE]), Err(Status::BadIndex));
        // PortInfo's number means something else in performance management.
        let answer = ask_class(&mut bench, 0x04, attribute::PORT_INFO, 0, 1);
        assert_eq!(answer.get_be16(MAD_STATUS), STATUS_UNSUPPORTED);
        assert_eq!(answer[MAD_DATA..], [0; DATA_SIZE]);
    }
}
