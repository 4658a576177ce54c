// SPDX-License-Identifier: Apache-2.0 OR MIT

//! MAD_IFC, and the packets of QP0 and QP1, whose headers the driver builds.

use crate::engine::bytes::Fields;
use crate::engine::completion::LocalError;
use crate::engine::headers::{RawDatagram, VL_MANAGEMENT};
use crate::engine::management::MAD_SIZE;
use crate::engine::packet::{Body, DatagramHeader, Extra, Packet};
use crate::engine::qp::{Context, Queues};
use crate::engine::transport::Service;
use crate::engine::violation::Violation;
use crate::engine::work::SendWqe;
use crate::mlx4::card::{Hca, Qp};
use crate::mlx4::command::{Command, Outcome, Output, Status};

impl Hca {
    /// MAD_IFC: answers one management datagram, received on port `in_modifier`.
    pub fn mad_ifc(&mut self, command: &Command) -> Outcome {
        let port = command.in_modifier as u8;
        if self.port(port).is_none() {
            return Err(Status::BadIndex);
        }
        let mut mad: [u8; MAD_SIZE] = self.mailbox(command)?;
        self.manage(port, &mut mad);
        Ok(Output::Mailbox(mad.to_vec()))
    }

    /// The packet of a WQE of QP0 or QP1, whose headers are in its gather list. The device fills in
    /// the source LID and the CRC.
    pub fn raw_packet(&self, qp: &Qp, wqe: &SendWqe) -> Result<Packet, LocalError> {
        let raw = RawDatagram::parse(&self.gather(qp, &wqe.segments)?);
        let agreed = raw.filter(|raw| {
            let subnet = raw.virtual_lane == VL_MANAGEMENT;
            wqe.control.immediate.get_be16(0) == raw.dlid
                && subnet == self.card.specials.is_subnet_management(qp.qpn)
                && subnet == (raw.sqpn == 0)
        });
        let Some(raw) = agreed else {
            self.dma.violations.note(
                Violation::ManagementHeaders,
                format_args!("QP {:#x}, WQE {:#x}", qp.qpn, qp.queues.index()),
            );
            return Err(LocalError::Operation);
        };
        let port = self.port(qp.context.path().port);
        Ok(Packet {
            slid: port.ok_or(LocalError::Operation)?.lid,
            dlid: raw.dlid,
            service_level: raw.service_level,
            service: Service::Ud,
            pkey: raw.pkey,
            grh: raw.grh,
            dqpn: raw.dqpn,
            psn: raw.psn,
            mtu: qp.context.path_mtu().ok_or(LocalError::Operation)?,
            srqn: 0,
            migration_request: false,
            solicited: raw.solicited,
            body: Body::Send {
                payload: raw.payload,
                extra: Extra::Nothing,
            },
            datagram: Some(DatagramHeader {
                sqpn: raw.sqpn,
                qkey: raw.qkey,
            }),
        })
    }
}
