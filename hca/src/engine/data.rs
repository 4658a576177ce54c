// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The data of messages: gathered from the sender's memory, scattered over the receiver's.

use crate::engine::completion::LocalError;
use crate::engine::hca::{Card, Hca, Qp};
use crate::engine::key::{Access, KeyError, Region, User};
use crate::engine::work::{total, Segment};

impl<C: Card> Hca<C> {
    /// Reads a gather list.
    pub fn gather(&self, qp: &Qp<C>, segments: &[Segment]) -> Result<Vec<u8>, LocalError> {
        let length = total(segments);
        let mut payload = Vec::new();
        usize::try_from(length)
            .ok()
            .and_then(|length| payload.try_reserve_exact(length).ok())
            .ok_or(LocalError::Length(length))?;
        for segment in segments {
            match segment {
                Segment::Inline(data) => payload.extend_from_slice(data),
                Segment::Memory {
                    length,
                    lkey,
                    address,
                } => {
                    let region = C::open(
                        self,
                        *lkey,
                        qp.user(),
                        *address,
                        u64::from(*length),
                        Access::LocalRead,
                    )?;
                    let start = payload.len();
                    payload.resize(start.saturating_add(*length as usize), 0);
                    if let Some(piece) = payload.get_mut(start..) {
                        region.read(&self.dma, piece)?;
                    }
                }
            }
        }
        Ok(payload)
    }

    /// Writes `data` over a scatter list of the queue `user`. False: it does not fit.
    pub fn scatter(&self, user: User, segments: &[Segment], data: &[u8]) -> Result<bool, KeyError> {
        let mut rest = data;
        for segment in segments {
            if rest.is_empty() {
                break;
            }
            let Segment::Memory {
                length,
                lkey,
                address,
            } = segment
            else {
                continue;
            };
            let (now, later) = rest.split_at((*length as usize).min(rest.len()));
            let region = C::open(
                self,
                *lkey,
                user,
                *address,
                now.len() as u64,
                Access::LocalWrite,
            )?;
            region.write(&self.dma, now)?;
            rest = later;
        }
        Ok(rest.is_empty())
    }
}
