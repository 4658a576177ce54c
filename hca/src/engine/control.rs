// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The control protocol: one JSON object per line, one answer per line, over a UNIX socket on the
//! host or, through QEMU, a virtio-serial port in the guest.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::engine::event::EventType;
use crate::engine::fabric::Fabric;
use crate::engine::fault::Wire;
use crate::engine::server::SharedFabric;

/// The name of the virtio-serial port that leads here.
pub const PORT_NAME: &str = "org.ib_xrc_rcv.vmlx";
/// Longest request.
const MAX_LINE: u64 = 1 << 16;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Returned with the answer, so that an old answer is not taken for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Which adapter, from 0.
    #[serde(default)]
    pub hca: usize,
    /// The operation.
    #[serde(flatten)]
    pub operation: Operation,
}

/// The operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Counters, objects by kind, QPs by state.
    Status,
    /// Every QP.
    Qps,
    /// Counters start from zero again.
    ResetCounters,
    /// Commands fail.
    FailCommand {
        /// The driver's name or a number; without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opcode: Option<String>,
        /// The status with which they fail.
        status: String,
        /// The number that pass before.
        #[serde(default)]
        skip: u64,
        /// The number that fail; without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
    /// Commands take time.
    Latency {
        /// The driver's name or a number; without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opcode: Option<String>,
        /// The time that they take.
        micros: u64,
        /// The number of commands that the firmware works on at once; without it, all it accepts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parallel: Option<usize>,
    },
    /// An event that nothing caused.
    Event {
        /// Which.
        kind: EventType,
        /// About which QP, SRQ or CQ; a port for a port change, which then is an active one.
        number: u32,
        /// The number of times.
        #[serde(default = "once")]
        repeat: u32,
    },
    /// The device fails until the driver resets it.
    Catastrophe {
        /// First dword of the error buffer; not 0.
        #[serde(default = "some_code")]
        code: u32,
    },
    /// The counter by which firmware shows that it is alive stops, or counts again. The ConnectX-3
    /// has none.
    Health {
        /// It counts.
        counts: bool,
    },
    /// A cable is pulled or plugged.
    Port {
        /// From 1.
        port: u8,
        /// Plugged.
        up: bool,
    },
    /// A port whose cable is out gets other LIDs.
    Lids {
        /// From 1.
        port: u8,
        /// The first LID.
        lid: u16,
        /// The number of low bits in which they differ.
        lmc: u8,
    },
    /// Messages that leave the adapter are lost, repeated or late.
    Wire(Wire),
    /// The device is pulled from its slot: all ones on every read.
    Remove,
    /// And put back, reset.
    Restore,
    /// The packets that the wire does not lose, of all adapters, are captured.
    Capture {
        /// The file in the directory of captures, without its extension; without it, captures end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Ends failures, latencies and faults of the wire.
    Clear,
}

fn once() -> u32 {
    1
}

fn some_code() -> u32 {
    0xbad0_0001
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Response {
    /// The request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The result of the operation, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The reason why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Operation {
    /// Does it, to adapter `index` where it is about one.
    fn perform(self, fabric: &mut Fabric, index: usize) -> Result<Value, String> {
        let hca = fabric.hca(index);
        let hca = hca.ok_or_else(|| format!("no HCA {index}"))?;
        match self {
            Self::Status => return Ok(hca.status()),
            Self::Qps => return hca.qps(),
            Self::ResetCounters => hca.reset_counters(),
            Self::FailCommand {
                opcode,
                status,
                skip,
                count,
            } => hca.fail_command(opcode.as_deref(), &status, skip, count)?,
            Self::Latency {
                opcode,
                micros,
                parallel,
            } => {
                let latency = Duration::from_micros(micros);
                hca.set_latency(opcode.as_deref(), latency, parallel)?;
            }
            Self::Event {
                kind,
                number,
                repeat,
            } => {
                for _ in 0..repeat {
                    hca.inject_event(kind, number)?;
                }
            }
            Self::Catastrophe { code: 0 } => return Err("code 0 means all is well".into()),
            Self::Catastrophe { code } => hca.faults().set_catastrophe(code),
            Self::Health { counts } => hca.faults().stop_health(!counts),
            Self::Port { port, up } => {
                if !hca.set_cable(port, up) {
                    return Err(format!("no port {port}"));
                }
            }
            Self::Lids { port, lid, lmc } => fabric.set_lids(index, port, lid, lmc)?,
            Self::Wire(wire) => hca.faults().set_wire(wire),
            Self::Remove => hca.faults().set_removed(true),
            Self::Restore => {
                hca.faults().set_removed(false);
                hca.reset();
            }
            Self::Clear => hca.faults().clear(),
            Self::Capture { name } => fabric.set_capture(name.as_deref())?,
        }
        Ok(json!({}))
    }
}

/// Answers one line.
pub fn answer(shared: &SharedFabric, line: &str) -> Response {
    let request: Request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => {
            return Response {
                id: None,
                result: None,
                error: Some(error.to_string()),
            }
        }
    };
    log::info!("control: {line}");
    let id = request.id;
    let result = shared.with(|fabric| request.operation.perform(fabric, request.hca));
    let (result, error) = match result {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error)),
    };
    Response { id, result, error }
}

/// Serves clients that connect to `path`.
pub fn listen(path: &Path, shared: &Arc<SharedFabric>) -> std::io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                let served = stream.and_then(|stream| {
                    std::thread::Builder::new()
                        .name("client".into())
                        .spawn(move || match serve(&stream, &shared) {
                            Ok(()) => {}
                            Err(error) => log::warn!("control client: {error}"),
                        })
                });
                if let Err(error) = served {
                    log::warn!("control socket: {error}");
                }
            }
        })?;
    Ok(())
}

fn serve(mut stream: &UnixStream, shared: &SharedFabric) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(MAX_LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut answer = serde_json::to_string(&answer(shared, line.trim()))?;
        answer.push('\n');
        stream.write_all(answer.as_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::card::Hca;

    fn shared() -> Arc<SharedFabric> {
        SharedFabric::new(vec![Box::new(Hca::new(0))])
    }

    #[test]
    fn a_line_asks_and_a_line_answers() {
        let shared = shared();
        let answer = answer(&shared, r#"{"id":7,"op":"status"}"#);
        assert_eq!(answer.id, Some(7));
        let result = answer.result.unwrap();
        assert_eq!(result["objects"]["qps"], 0);
        assert_eq!(result["ports"][1]["cable"], true);
    }

    #[test]
    fn mistakes_are_explained() {
        let shared = shared();
        for line in [
            "nonsense",
            r#"{"op":"coffee"}"#,
            r#"{"op":"status","hca":1}"#,
            r#"{"op":"port","port":3,"up":true}"#,
            r#"{"op":"fail_command","opcode":"COFFEE","status":"bad_op"}"#,
            r#"{"op":"fail_command","status":"coffee"}"#,
            r#"{"op":"catastrophe","code":0}"#,
            r#"{"op":"event","kind":"comp","number":1}"#,
            r#"{"op":"capture","name":"nowhere"}"#,
        ] {
            assert!(answer(&shared, line).error.is_some(), "{line}");
        }
    }

    #[test]
    fn a_port_gets_lids_that_no_other_has() {
        let shared = shared();
        let refused = |line: &str| answer(&shared, line).error.is_some();
        let lids = r#"{"op":"lids","port":2,"lid":16,"lmc":1}"#;
        assert!(refused(lids));
        assert!(!refused(r#"{"op":"port","port":2,"up":false}"#));
        for line in [
            r#"{"op":"lids","port":3,"lid":16,"lmc":1}"#,
            r#"{"op":"lids","port":2,"lid":17,"lmc":1}"#,
            r#"{"op":"lids","port":2,"lid":1,"lmc":0}"#,
            r#"{"op":"lids","port":2,"lid":49150,"lmc":1}"#,
        ] {
            assert!(refused(line), "{line}");
        }
        assert!(!refused(lids));
        let status = answer(&shared, r#"{"op":"status"}"#).result.unwrap();
        let ports = &status["ports"];
        assert_eq!(
            (&ports[1]["lid"], &ports[1]["lmc"]),
            (&json!(16), &json!(1))
        );
        assert_eq!((&ports[0]["lid"], &ports[0]["lmc"]), (&json!(1), &json!(0)));
    }

    #[test]
    fn a_capture_stays_in_its_directory() {
        let directory = std::env::temp_dir().join(format!("vmlx-{}", std::process::id()));
        let shared = shared();
        shared.with(|fabric| fabric.captures = Some(directory.join("captures")));
        let capture = |name: &str| {
            let line = serde_json::to_string(&json!({ "op": "capture", "name": name })).unwrap();
            answer(&shared, &line).error
        };
        for name in ["", "../outside", "/tmp/outside", ".hidden", "a\0b"] {
            assert!(capture(name).is_some(), "{name:?}");
        }
        assert_eq!(capture("inside"), None);
        assert!(answer(&shared, r#"{"op":"capture"}"#).error.is_none());
        let file = std::fs::read(directory.join("captures/inside.pcap")).unwrap();
        assert_eq!(file.len(), 24);
        assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn requests_survive_the_wire() {
        let request = Request {
            id: None,
            hca: 0,
            operation: Operation::FailCommand {
                opcode: Some("2RST_QP".into()),
                status: "bad_qp_state".into(),
                skip: 2,
                count: Some(1),
            },
        };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        assert!(answer(&shared(), &line).error.is_none());
    }
}
