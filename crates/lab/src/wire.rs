//! What host and guest say to each other over one virtio-serial port.
//!
//! A frame is one kind byte, a little-endian `u32` length and the payload. One channel for
//! everything, so that a command's output always arrives before its exit code. Payloads of
//! [`Kind::Message`] are JSON; the others are raw bytes.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Longest payload accepted: more means that the two sides lost step.
const LONGEST_PAYLOAD: u32 = 1 << 20;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command's standard output (guest to host).
    Stdout,
    /// A command's standard error (guest to host).
    Stderr,
    /// A command's standard input (host to guest); empty: end of file.
    Stdin,
    /// A [`ToGuest`] or [`ToHost`].
    Message,
}

const KINDS: [Kind; 4] = [Kind::Stdout, Kind::Stderr, Kind::Stdin, Kind::Message];

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// From host to guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToGuest {
    /// Run this and answer with [`ToHost::Exited`].
    Exec {
        /// Program and arguments.
        argv: Vec<String>,
        /// Whole environment.
        env: Vec<(String, String)>,
        /// Working directory.
        cwd: String,
        /// That folder is shared: without it, the command is not started.
        #[serde(default)]
        shared: bool,
        /// On a terminal of its own, of this size.
        #[serde(default)]
        terminal: Option<TerminalSize>,
    },
    /// The terminal of the running command has another size now.
    Resize(TerminalSize),
    /// Charge memory and instructions from now on.
    Charge,
    /// Switch the machine off.
    Shutdown,
}

/// From guest to host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToHost {
    /// Booted, files in place.
    Ready {
        /// The kernel's release.
        release: String,
    },
    /// Charging is on (or cannot be).
    Charging,
    /// The command ended.
    Exited {
        /// Exit code, or 128 + the signal that ended it.
        code: i32,
    },
    /// The command could not be started.
    NotStarted {
        /// 127 not found, 126 not executable, as a shell has it.
        code: i32,
        /// Why.
        problem: String,
    },
    /// What was written to shares is being carried over, before the machine is switched off.
    Writing {
        /// How much is left.
        kib: u64,
    },
    /// All of it is.
    Written,
}

/// Writes one frame and flushes it.
///
/// # Errors
/// Those of the writer.
pub fn write_frame(to: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.push(KINDS.iter().position(|k| *k == kind).map_or(0, |i| i as u8));
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(payload);
    to.write_all(&frame)?;
    to.flush()
}

/// Writes one JSON message.
///
/// # Errors
/// Those of the writer.
pub fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    write_frame(to, Kind::Message, &serde_json::to_vec(message)?)
}

/// Reads one frame; `None` at the end of the stream.
///
/// # Errors
/// Those of the reader, and `InvalidData` where the bytes are no frame.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let kind = KINDS.get(usize::from(head[0])).filter(|_| length <= LONGEST_PAYLOAD);
    let kind = *kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a frame"))?;
    let mut payload = vec![0; length as usize];
    from.read_exact(&mut payload)?;
    Ok(Some((kind, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_order_and_whole() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, Kind::Stdout, b"out").unwrap();
        write_message(&mut pipe, &ToHost::Exited { code: 3 }).unwrap();
        let mut from = pipe.as_slice();
        assert_eq!(read_frame(&mut from).unwrap(), Some((Kind::Stdout, b"out".to_vec())));
        let (kind, payload) = read_frame(&mut from).unwrap().unwrap();
        assert_eq!(kind, Kind::Message);
        assert_eq!(serde_json::from_slice::<ToHost>(&payload).unwrap(), ToHost::Exited { code: 3 });
        assert_eq!(read_frame(&mut from).unwrap(), None);
    }

    #[test]
    fn noise_is_an_error_and_not_a_huge_allocation() {
        assert!(read_frame(&mut [9u8, 0, 0, 0, 0].as_slice()).is_err());
        assert!(read_frame(&mut [0u8, 255, 255, 255, 255].as_slice()).is_err());
    }
}
