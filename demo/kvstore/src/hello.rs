// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The messages by which client and server connect their QPs over TCP: a line of words each.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::str::FromStr;

use xrc_rcv::verbs::{Address, Remote};
use xrc_rcv::{Access, Mtu, QpAttr};

use crate::table::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) client: u64,
    /// The sender's address.
    pub(crate) address: Address,
    /// 0: the client leaves, or has left.
    pub(crate) qp_num: u32,
    /// The server's SRQ and table; from a client that has waited, those of the server before.
    pub(crate) target: Target,
}

impl Hello {
    /// The message of a client that leaves.
    pub(crate) fn goodbye(client: u64) -> Hello {
        Hello {
            client,
            address: Address::default(),
            qp_num: 0,
            target: Target::default(),
        }
    }

    /// Says this to the server, and returns its answer.
    pub(crate) fn ask(&self, server: &str) -> crate::Result<Hello> {
        let stream = TcpStream::connect(server)?;
        self.write(&stream)?;
        Hello::read(&stream)
    }

    pub(crate) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(format!("{self}\n").as_bytes())
    }

    pub(crate) fn read(stream: &TcpStream) -> crate::Result<Hello> {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        // A server that is killed has accepted, and does not answer.
        if !line.ends_with('\n') {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        line.parse()
    }

    /// The attributes that connect a QP to the sender's.
    pub(crate) fn attr(&self, gid_index: u8) -> QpAttr {
        QpAttr::new()
            .with_pkey_index(0)
            .with_port(1)
            .with_access(Access::REMOTE_READ)
            .with_path(self.address.path_from(1, gid_index))
            .with_path_mtu(Mtu::Mtu1024)
            .with_dest_qp_num(self.qp_num)
            .with_rq_psn(0)
            .with_max_dest_rd_atomic(1)
            .with_min_rnr_timer(12)
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hello {
            client,
            address: Address { lid, gid },
            qp_num,
            target,
        } = self;
        let (gid, Remote { address, key }) = (Ipv6Addr::from(*gid), target.table);
        let (generation, srq_num) = (target.generation, target.srq_num);
        let table_srq = target.table_srq;
        write!(
            f,
            "{client} {lid} {gid} {qp_num} {generation} {srq_num} {address} {key} {table_srq}"
        )
    }
}

impl FromStr for Hello {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(line: &str) -> Result<Hello, Self::Err> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            client,
            lid,
            gid,
            qp_num,
            generation,
            srq_num,
            address,
            key,
            table_srq,
        ] = words[..]
        else {
            return Err(format!("not a hello: {line:?}").into());
        };
        Ok(Hello {
            client: client.parse()?,
            address: Address {
                lid: lid.parse()?,
                gid: gid.parse::<Ipv6Addr>()?.octets(),
            },
            qp_num: qp_num.parse()?,
            target: Target {
                generation: generation.parse()?,
                srq_num: srq_num.parse()?,
                table: Remote {
                    address: address.parse()?,
                    key: key.parse()?,
                },
                table_srq: table_srq.parse()?,
            },
        })
    }
}
