// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about the port.

use crate::engine::administration::SM_LID;
use crate::engine::bytes::Fields;
use crate::engine::management::MAD_SIZE;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::ifc::{
    access_register_in, hca_vport_context, mad_ifc_in, modify_hca_vport_context_in, pmtu_reg,
    ptys_reg, pvlc_reg, query_hca_vport_context_out, query_hca_vport_gid_in,
    query_hca_vport_gid_out, query_hca_vport_pkey_in, query_hca_vport_pkey_out, Bits, Field,
};

/// MLX5_REG_PMTU, MLX5_REG_PTYS, MLX5_REG_NODE_DESC, MLX5_REG_PVLC.
const REG_PMTU: u64 = 0x5003;
const REG_PTYS: u64 = 0x5004;
const REG_NODE_DESC: u64 = 0x6001;
const REG_PVLC: u64 = 0x500f;
/// Where the data of a register are, after a header of the same size in both directions.
const REGISTER: usize = access_register_in::SIZE;
/// All entries of a table are asked for.
const ALL: u64 = 0xffff;
/// Entries of the tables of GIDs and P_Keys.
pub const GIDS: u64 = 8;
pub const PKEYS: u64 = 128;
/// Capabilities that a driver announces while a port has such agents (enum
/// ib_port_capability_mask_bits): subnet manager, connection management, SNMP tunnelling, device
/// management, a vendor's class.
const ANNOUNCED: u32 = 1 << 1 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 21;
/// Where the datagram is in MAD_IFC, in both directions.
const MAD: usize = mad_ifc_in::MAD.byte();

fn range(index: u64, size: u64) -> Result<std::ops::Range<u64>, Status> {
    match index {
        ALL => Ok(0..size),
        index if index < size => Ok(index..index.saturating_add(1)),
        _ => Err(Status::Ix),
    }
}

impl Hca {
    /// ACCESS_REG: registers of the port; those that are not modelled read as they were written.
    pub fn access_reg(&mut self, input: &[u8]) -> Outcome {
        let mut out = input.to_vec();
        out.get_mut(..REGISTER).ok_or(Status::BadInpLen)?.fill(0);
        let id = input.bits(access_register_in::REGISTER_ID);
        if let (REG_NODE_DESC, 0, Some(description)) = (
            id,
            input.bits(access_register_in::OP_MOD),
            input.get(REGISTER..).and_then(|data| data.first_chunk()),
        ) {
            self.card.node_description = Some(*description);
        }
        let fields: &[(Field, u64)] = match id {
            // 1x to 4x, SDR to EDR; 4x EDR now.
            REG_PTYS => &[
                (ptys_reg::IB_LINK_WIDTH_CAPABILITY, 7),
                (ptys_reg::IB_PROTO_CAPABILITY, 0x3f),
                (ptys_reg::IB_LINK_WIDTH_ADMIN, 7),
                (ptys_reg::IB_PROTO_ADMIN, 0x3f),
                (ptys_reg::IB_LINK_WIDTH_OPER, 2),
                (ptys_reg::IB_PROTO_OPER, 0x20),
            ],
            REG_PMTU => &[
                (pmtu_reg::MAX_MTU, 4096),
                (pmtu_reg::ADMIN_MTU, 4096),
                (pmtu_reg::OPER_MTU, 4096),
            ],
            REG_PVLC => &[
                (pvlc_reg::VL_HW_CAP, 4),
                (pvlc_reg::VL_ADMIN, 4),
                (pvlc_reg::VL_OPERATIONAL, 4),
            ],
            _ => &[],
        };
        let data = out.get_mut(REGISTER..).unwrap_or_default();
        for (field, value) in fields {
            data.set_bits(*field, *value);
        }
        Ok(out)
    }

    /// MAD_IFC: answers one management datagram.
    pub fn mad_ifc(&mut self, input: &[u8]) -> Outcome {
        let port = input.bits(mad_ifc_in::PORT) as u8;
        self.port(port).ok_or(Status::Ix)?;
        let mad = input.get(MAD..).and_then(|rest| rest.first_chunk());
        let mut mad: [u8; MAD_SIZE] = *mad.ok_or(Status::BadInpLen)?;
        self.manage(port, &mut mad);
        let mut out = vec![0; MAD];
        out.extend_from_slice(&mad);
        Ok(out)
    }

    /// QUERY_HCA_VPORT_CONTEXT.
    pub fn query_hca_vport_context(&self) -> Outcome {
        let port = self.port(1).ok_or(Status::BadSysState)?;
        let mut out = vec![0; query_hca_vport_context_out::SIZE];
        // Down and polling, or active with a link.
        let (state, physical) = match port.is_up() {
            true => (4, 5),
            false => (1, 2),
        };
        for (field, value) in [
            (hca_vport_context::HAS_SMI, 1),
            (hca_vport_context::PORT_PHYSICAL_STATE, physical),
            (hca_vport_context::PORT_STATE, state),
            (hca_vport_context::VPORT_STATE, state),
            (hca_vport_context::SYSTEM_IMAGE_GUID, self.image_guid()),
            (hca_vport_context::PORT_GUID, self.port_guid(1)),
            (hca_vport_context::NODE_GUID, self.node_guid()),
            (
                hca_vport_context::CAP_MASK1,
                u64::from(port.capability_mask),
            ),
            (
                hca_vport_context::CAP_MASK1_FIELD_SELECT,
                u64::from(ANNOUNCED),
            ),
            (hca_vport_context::LID, u64::from(port.lid)),
            (hca_vport_context::LMC, u64::from(port.lmc)),
            (hca_vport_context::SM_LID, u64::from(SM_LID)),
            (hca_vport_context::SUBNET_TIMEOUT, 18),
        ] {
            let context = query_hca_vport_context_out::HCA_VPORT_CONTEXT;
            out.set_bits(context.part(field), value);
        }
        Ok(out)
    }

    /// MODIFY_HCA_VPORT_CONTEXT: capabilities of the port.
    pub fn modify_hca_vport_context(&mut self, input: &[u8]) -> Outcome {
        let context = modify_hca_vport_context_in::HCA_VPORT_CONTEXT;
        let mask = input.bits32(context.part(hca_vport_context::CAP_MASK1_FIELD_SELECT));
        let new = input.bits32(context.part(hca_vport_context::CAP_MASK1));
        if mask & !ANNOUNCED != 0 {
            return Err(Status::BadParam);
        }
        let port = self.port_mut(1).ok_or(Status::BadSysState)?;
        port.capability_mask = port.capability_mask & !mask | new & mask;
        Ok(Vec::new())
    }

    /// QUERY_HCA_VPORT_GID.
    pub fn query_hca_vport_gid(&self, input: &[u8]) -> Outcome {
        let wanted = range(input.bits(query_hca_vport_gid_in::GID_INDEX), GIDS)?;
        let mut out = vec![0; query_hca_vport_gid_out::SIZE];
        let count = wanted.end.saturating_sub(wanted.start);
        out.set_bits(query_hca_vport_gid_out::GIDS_NUM, count);
        for index in wanted {
            out.extend_from_slice(&self.gid(1, index as u8).unwrap_or_default());
        }
        Ok(out)
    }

    /// QUERY_HCA_VPORT_PKEY.
    pub fn query_hca_vport_pkey(&self, input: &[u8]) -> Outcome {
        let wanted = range(input.bits(query_hca_vport_pkey_in::PKEY_INDEX), PKEYS)?;
        let mut out = vec![0; query_hca_vport_pkey_out::SIZE];
        for index in wanted {
            let mut entry = [0; 4];
            entry.set_be16(2, self.pkey(1, index as u8).unwrap_or(0));
            out.extend_from_slice(&entry);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_announces_its_agents() {
        const CM: u32 = 1 << 16;
        let mut hca = Hca::new(0);
        let capabilities = |hca: &Hca| {
            let out = hca.query_hca_vport_context().unwrap();
            let context = query_hca_vport_context_out::HCA_VPORT_CONTEXT;
            out.bits32(context.part(hca_vport_context::CAP_MASK1))
        };
        let modify = |hca: &mut Hca, mask: u32, value: u32| {
            let mut input = vec![0; modify_hca_vport_context_in::SIZE];
            let context = modify_hca_vport_context_in::HCA_VPORT_CONTEXT;
            let select = context.part(hca_vport_context::CAP_MASK1_FIELD_SELECT);
            input.set_bits(select, u64::from(mask));
            let field = context.part(hca_vport_context::CAP_MASK1);
            input.set_bits(field, u64::from(value));
            hca.modify_hca_vport_context(&input)
        };
        let before = capabilities(&hca);
        modify(&mut hca, CM, u32::MAX).unwrap();
        assert_eq!(capabilities(&hca), before | CM);
        modify(&mut hca, CM, 0).unwrap();
        assert_eq!(capabilities(&hca), before & !CM);
        // The link is the hardware's.
        assert_eq!(modify(&mut hca, 1 << 25, 0), Err(Status::BadParam));
    }
}
