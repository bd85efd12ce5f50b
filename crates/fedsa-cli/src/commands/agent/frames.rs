//! Requests of a client to a resident agent: frames over a stream.
//!
//! A request is `FA1`, the length of the message (four bytes, little-endian), and the message. A reply begins with one byte: `0` if the
//! message needs no answer, `1` before an answer, `2` before the reason of a refusal, `3` before the reason of a failure. A length and the
//! bytes follow `1`, `2` and `3`.

use std::io::{self, ErrorKind, Read, Write};

use fedsa::error::Error;

/// The first bytes of a request.
const MAGIC: [u8; 3] = *b"FA1";
/// The longest message, in bytes: Flower carries 2 GiB at most.
const LONGEST: usize = 1 << 31;

/// A reply to a message.
pub enum Reply {
    /// The message needs no answer.
    Nothing,
    /// The answer.
    Answer(Vec<u8>),
    /// The message is refused, and the agent is unchanged.
    Refused(String),
    /// The machine failed.
    Failed(String),
}

impl Reply {
    /// The reply with the reason of a refusal.
    pub fn refused(e: &Error) -> Self {
        Self::Refused(e.for_others())
    }

    /// The reply with the reason of a failure.
    pub fn failed(e: &Error) -> Self {
        Self::Failed(e.for_others())
    }
}

/// Reads a message; `None` if the client has disconnected.
///
/// # Errors
/// When the stream fails, or contains no frame.
pub fn read_request(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 7];
    // A client that has disconnected sends nothing more.
    if stream.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..])?;
    let len = u32::from_le_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if head[..3] != MAGIC || len > LONGEST {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a request to an agent"));
    }
    // Memory grows with the bytes that arrive; a client's stated length alone reserves none.
    let mut message = Vec::new();
    stream.take(len as u64).read_to_end(&mut message)?;
    if message.len() < len { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Some(message)) }
}

/// Writes a reply.
///
/// # Errors
/// When the stream fails.
pub fn write_reply(stream: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let (tag, bytes): (u8, &[u8]) = match reply {
        Reply::Nothing => (0, &[]),
        Reply::Answer(answer) => (1, answer),
        Reply::Refused(why) => (2, why.as_bytes()),
        Reply::Failed(why) => (3, why.as_bytes()),
    };
    let mut frame = Vec::with_capacity(5 + bytes.len());
    frame.push(tag);
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(bytes);
    stream.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    }

    #[test]
    fn messages_come_whole_or_not_at_all() {
        let two = [request(b"one"), request(b"")].concat();
        let mut stream = &two[..];
        assert_eq!(read_request(&mut stream).unwrap(), Some(b"one".to_vec()));
        assert_eq!(read_request(&mut stream).unwrap(), Some(Vec::new()));
        assert_eq!(read_request(&mut stream).unwrap(), None);
        let one = request(b"one");
        for len in 1..one.len() {
            assert_eq!(read_request(&mut &one[..len]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{len}");
        }
        for bad in [&b"GET / HTTP/1.1\r\n"[..], b"FA2\0\0\0\0", b"FA1\xff\xff\xff\xff"] {
            assert_eq!(read_request(&mut &bad[..]).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn replies_say_what_they_are() {
        let written = |reply: &Reply| {
            let mut out = Vec::new();
            write_reply(&mut out, reply).unwrap();
            out
        };
        assert_eq!(written(&Reply::Nothing), [0, 0, 0, 0, 0]);
        assert_eq!(written(&Reply::Answer(vec![7])), [1, 1, 0, 0, 0, 7]);
        assert_eq!(written(&Reply::Refused("no".into())), [2, 2, 0, 0, 0, b'n', b'o']);
        assert_eq!(written(&Reply::Failed(String::new()))[0], 3);
    }
}
