//! The bytes of a file as a stream, unpacked if they are gzip; and the memory that its rows may take.

use std::io::{self, BufRead, BufReader, Read};

use fedsa::error::{BadInput, Result};
use flate2::bufread::MultiGzDecoder;

use crate::machine::bytes_text;
use crate::store::Store;
use crate::{expansion_limit, shown};

/// What is read of a file at a time, in bytes.
const BUFFER: usize = 64 << 10;
/// The longest line, in bytes: a line is in memory as a whole.
pub(super) const LONGEST_LINE: usize = 16 << 20;

/// A file that is read from its start.
pub(super) struct Input {
    reader: Box<dyn BufRead>,
    /// Whether it is packed with gzip.
    pub(super) packed: bool,
}

/// Opens a file. It is gzip if it starts with its two bytes; all members are read.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn open(store: &Store) -> Result<Input> {
    let mut plain = BufReader::with_capacity(BUFFER, store.reader_at(0));
    let packed = plain.fill_buf().map_err(|e| broken("its start", &e))?.starts_with(&[0x1f, 0x8b]);
    let reader: Box<dyn BufRead> =
        if packed { Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(plain))) } else { Box::new(plain) };
    Ok(Input { reader, packed })
}

impl Input {
    /// Reads the next line into `line`, without its end; false at the end of the file.
    ///
    /// # Errors
    /// When it is longer than [`LONGEST_LINE`], or the file cannot be read.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let read = (&mut self.reader).take(LONGEST_LINE as u64 + 1).read_until(b'\n', line)?;
        if read > LONGEST_LINE {
            return Err(too_long());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(read > 0)
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("a line of more than {LONGEST_LINE} bytes"))
}

/// What is read of a table until [`Line::begin`]: at most [`LONGEST_LINE`] bytes.
pub(super) struct Line<'a> {
    input: &'a mut Input,
    left: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(input: &'a mut Input) -> Self {
        Self { input, left: LONGEST_LINE }
    }

    /// A line begins.
    pub(super) fn begin(&mut self) {
        self.left = LONGEST_LINE;
    }
}

impl Read for Line<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(too_long());
        }
        let most = out.len().min(self.left);
        let read = self.input.read(&mut out[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// The error about a file that could be opened but not read to its end. `place` is where reading was.
pub(super) fn broken(place: &str, e: &io::Error) -> BadInput {
    let (what, help) = match e.kind() {
        io::ErrorKind::UnexpectedEof => ("the file ends too early: it is truncated".into(), "the complete file: get it again"),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            (format!("the packed data (gzip) are damaged: {}", shown(e)), "an intact file: get it again")
        }
        io::ErrorKind::FileTooLarge => (shown(e), "a file of text lines, or one with a known extension: .parquet, .csv, .csv.gz"),
        _ => (format!("cannot be read: {}", shown(e)), "a file that can be read"),
    };
    BadInput::new("", format!("{place}: {what}"), help)
}

/// The memory that the rows of a file may still take.
pub(super) struct Room {
    left: usize,
    limit: usize,
    file: u64,
}

impl Room {
    /// For a file of so many bytes.
    pub(super) fn of(file: u64) -> Self {
        let limit = expansion_limit(file);
        Self { left: limit, limit, file }
    }

    /// Accounts for `bytes` more. Vectors that grow take up to twice what is in them: count them twice.
    ///
    /// # Errors
    /// When there is no more room; `for_what` says for what.
    pub(super) fn take(&mut self, bytes: usize, for_what: impl FnOnce() -> String) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let (limit, file) = (bytes_text(self.limit as f64), bytes_text(self.file as f64));
                let what = format!("{}: its data take more than {limit} in memory, for a file of {file}", for_what());
                return Err(BadInput::new("", what, "a smaller file, or more memory: half of what is available is used for a file"));
            }
        }
        Ok(())
    }
}
