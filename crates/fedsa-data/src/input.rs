//! The bytes of a file as a stream, uncompressed from gzip or zstd, and the memory that its rows may take.

use std::io::{self, BufRead, BufReader, Read};

use fedsa::error::{Error, Result};
use flate2::bufread::GzDecoder;

use crate::machine::bytes_text;
use crate::store::{Store, StoreReader};
use crate::{shown, size_limit};

/// The number of bytes read at a time.
const BUFFER: usize = 64 << 10;
/// The longest line in bytes, because a line is in memory as a whole.
pub(super) const LONGEST_LINE: usize = 16 << 20;

/// The first two bytes of every member of a gzip file.
const MAGIC: &[u8] = &[0x1f, 0x8b];
/// The first four bytes of a zstd file (RFC 8878, section 3.1.1).
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A file read from its start.
pub(super) struct Input {
    reader: Box<dyn BufRead>,
    /// Whether the file is compressed.
    pub(super) packed: bool,
}

/// Opens a file. Its first bytes identify gzip and zstd; all members and frames are read.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn open(store: &Store) -> Result<Input> {
    let mut plain = BufReader::with_capacity(BUFFER, store.reader_at(0));
    let start = plain.fill_buf().map_err(|e| broken("its start", &e))?;
    let (is_gzip, is_zstd) = (start.starts_with(MAGIC), start.starts_with(ZSTD));
    let reader: Box<dyn BufRead> = match (is_gzip, is_zstd) {
        (true, _) => Box::new(BufReader::with_capacity(BUFFER, Members::new(plain))),
        (_, true) => Box::new(BufReader::with_capacity(BUFFER, frames(plain).map_err(|e| broken("its start", &e))?)),
        _ => Box::new(plain),
    };
    Ok(Input { reader, packed: is_gzip || is_zstd })
}

/// The uncompressed frames of a zstd file. A frame may require a window of 128 MiB.
fn frames(file: BufReader<StoreReader>) -> io::Result<Frames> {
    /// 2^27, the window of `zstd --ultra`.
    const WINDOW_LOG: u32 = 27;
    let mut inner = zstd::stream::read::Decoder::with_buffer(file)?;
    inner.window_log_max(WINDOW_LOG)?;
    Ok(Frames(inner))
}

struct Frames(zstd::stream::read::Decoder<'static, BufReader<StoreReader>>);

impl Read for Frames {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::Interrupted => e,
            _ => io::Error::new(io::ErrorKind::InvalidData, e),
        })
    }
}

impl Input {
    /// Reads the next line into `line`, without its end; false at the end of the file.
    ///
    /// # Errors
    /// When the line is longer than [`LONGEST_LINE`], or the file cannot be read.
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

    /// The next bytes, as many as are buffered; none at the end.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn peek(&mut self) -> Result<&[u8]> {
        self.reader.fill_buf().map_err(|e| broken("its start", &e))
    }

    /// Reads into `out` until it is full or the file ends, and returns the number of bytes.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.reader.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

/// The uncompressed members of a gzip file, one after the other (RFC 1952, section 2.2).
struct Members {
    /// The current member; `None` after the last.
    member: Option<GzDecoder<Packed>>,
}

/// The bytes of a file from the start of a member on: those already read to detect the member, then the others.
type Packed = io::Chain<&'static [u8], BufReader<StoreReader>>;

impl Members {
    fn new(file: BufReader<StoreReader>) -> Self {
        Self { member: Some(GzDecoder::new((&MAGIC[..0]).chain(file))) }
    }

    /// The member after one that has ended; `None` at the end of the file.
    fn following(mut file: BufReader<StoreReader>) -> io::Result<Option<GzDecoder<Packed>>> {
        let mut start = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut start)?;
        match &start[..] {
            [] => Ok(None),
            start if start == MAGIC => Ok(Some(GzDecoder::new(MAGIC.chain(file)))),
            // The first byte of a member, and nothing more.
            [first] if *first == MAGIC[0] => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::other(Trailing)),
        }
    }
}

impl Read for Members {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        // An interrupted read is repeated: the current member stays until it has ended.
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 {
                return Ok(read);
            }
            let Some(ended) = self.member.take() else { break };
            let (_, file) = ended.into_inner().into_inner();
            self.member = Self::following(file)?;
        }
        Ok(0)
    }
}

/// Bytes after the last member of a gzip file that are not another member.
#[derive(Debug, thiserror::Error)]
#[error("there are bytes after the end of the gzip stream")]
struct Trailing;

/// The bytes of a file, uncompressed if they are gzip or zstd.
///
/// # Errors
/// When they are damaged or truncated, or take more than half of the available memory.
pub(super) fn unpacked(file: Vec<u8>) -> Result<Vec<u8>> {
    if !file.starts_with(MAGIC) && !file.starts_with(ZSTD) {
        return Ok(file);
    }
    let length = file.len() as u64;
    let mut input = open(&Store::from(file))?;
    let limit = size_limit() as u64;
    let mut out = Vec::new();
    (&mut input).take(limit.saturating_add(1)).read_to_end(&mut out).map_err(|e| broken(&format!("byte {}", out.len()), &e))?;
    if out.len() as u64 > limit {
        let (limit, file) = (bytes_text(limit as f64), bytes_text(length as f64));
        let what = format!("it takes more than {limit} unpacked, for a file of {file}");
        return Err(Error::no_memory("", what, "a smaller file, or more memory: half of what is available is used for a file"));
    }
    Ok(out)
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("a line of more than {LONGEST_LINE} bytes"))
}

/// The input of a table's CSV reader: until [`Line::begin`] at most [`LONGEST_LINE`] bytes. Every line ends with a line feed, also the
/// last one and lines that end with `\r\n` or `\r` in the file. The CSV reader counts line feeds, and would count the line feed of a
/// `\r\n` only with the next line.
///
/// A file that ends within quotes is an error, because the CSV reader would take the whole rest as one field.
pub(super) struct Line {
    input: Input,
    left: usize,
    /// Whether the last byte was a `\r`, replaced by a line feed.
    after_return: bool,
    /// The last byte returned; a line feed before the first one.
    last: u8,
    quotes: Quotes,
    /// Whether an empty line comes first, instead of one already read.
    is_preceded: bool,
}

impl Line {
    /// The lines of a table with this field separator; if `is_preceded`, one line was already read.
    pub(super) fn new(input: Input, separator: u8, is_preceded: bool) -> Self {
        Self { input, left: LONGEST_LINE, after_return: false, last: b'\n', quotes: Quotes::new(separator), is_preceded }
    }

    /// Begins a line.
    pub(super) fn begin(&mut self) {
        self.left = LONGEST_LINE;
    }
}

impl Read for Line {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(self.quotes.open().map_or_else(too_long, io::Error::other));
        }
        let most = out.len().min(self.left);
        if self.is_preceded && most > 0 {
            self.is_preceded = false;
            out[0] = b'\n';
            return self.quotes.see(b"\n").map(|()| 1).map_err(io::Error::other);
        }
        let mut given = 0;
        while given == 0 {
            let read = self.input.read(&mut out[..most])?;
            if read == 0 {
                break;
            }
            self.left -= read;
            given = self.with_line_feeds(&mut out[..read]);
        }
        if given == 0 && most > 0 && self.last != b'\n' {
            (out[0], given) = (b'\n', 1);
        }
        if given > 0 {
            self.last = out[given - 1];
        }
        self.quotes.see(&out[..given]).map_err(io::Error::other)?;
        match self.quotes.open().filter(|_| given == 0 && most > 0) {
            Some(open) => Err(io::Error::other(open)),
            None => Ok(given),
        }
    }
}

impl Line {
    /// Turns `\r\n` and `\r` into line feeds, in place; returns the number of bytes left.
    fn with_line_feeds(&mut self, bytes: &mut [u8]) -> usize {
        if !self.after_return && memchr::memchr(b'\r', bytes).is_none() {
            return bytes.len();
        }
        let mut kept = 0;
        for i in 0..bytes.len() {
            let byte = bytes[i];
            let is_second = self.after_return && byte == b'\n';
            self.after_return = byte == b'\r';
            if !is_second {
                bytes[kept] = if byte == b'\r' { b'\n' } else { byte };
                kept += 1;
            }
        }
        kept
    }
}

/// The state of quoted text, by the rules of the CSV reader: a quote opens only at the start of a field, and two quotes within quotes
/// are one.
struct Quotes {
    separator: u8,
    place: Place,
    /// The line, from 1.
    line: u64,
    /// The line on which the last quote was opened.
    opened: u64,
    /// The number of bytes of a byte-order mark seen so far; they are not part of the first field.
    mark: usize,
}

/// The position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the start of a field.
    Start,
    /// In a field without quotes, or after its closing quote.
    Plain,
    /// Within quotes.
    Quoted,
    /// After a quote within quotes: a second one follows, or the quotes end.
    AfterQuote,
}

/// The rules for quotes, in words.
pub(super) const QUOTES: &str = "quotes in pairs, with a text between them that ends on its line; \"\" is a quote in such a text";

/// A quote without its end, or with its end in the middle of a field.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadQuote {
    /// The file ends, or a line becomes too long. The line of the quote.
    #[error("line {0}: a quote that is opened there is not closed")]
    Open(u64),
    /// The quotes span several lines, and text follows: the quote was not meant to enclose a field.
    #[error("line {opened}: a quote that is opened there is closed in line {closed}, in the middle of a field")]
    Inside {
        /// The line of the first quote.
        opened: u64,
        /// The line of the second one.
        closed: u64,
    },
}

impl Quotes {
    const MARK: &[u8] = b"\xef\xbb\xbf";

    fn new(separator: u8) -> Self {
        Self { separator, place: Place::Start, line: 1, opened: 1, mark: 0 }
    }

    /// The error for open quotes.
    fn open(&self) -> Option<BadQuote> {
        (self.place == Place::Quoted).then_some(BadQuote::Open(self.opened))
    }

    /// Processes bytes.
    fn see(&mut self, mut bytes: &[u8]) -> Result<(), BadQuote> {
        while self.mark < Self::MARK.len() && !bytes.is_empty() {
            if bytes[0] != Self::MARK[self.mark] {
                self.mark = Self::MARK.len();
                break;
            }
            (self.mark, bytes) = (self.mark + 1, &bytes[1..]);
        }
        // Most files have no quotes at all; for them counting lines is enough, and fast.
        if matches!(self.place, Place::Start | Place::Plain) && memchr::memchr(b'"', bytes).is_none() {
            self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
            if let Some(last) = bytes.last() {
                self.place = self.outside(*last);
            }
            return Ok(());
        }
        for &byte in bytes {
            self.place = match (self.place, byte) {
                (Place::Start, b'"') => {
                    self.opened = self.line;
                    Place::Quoted
                }
                (Place::Quoted, b'"') => Place::AfterQuote,
                (Place::AfterQuote, b'"') | (Place::Quoted, _) => Place::Quoted,
                (Place::AfterQuote, byte) if self.outside(byte) == Place::Plain && self.opened < self.line => {
                    return Err(BadQuote::Inside { opened: self.opened, closed: self.line });
                }
                (_, byte) => self.outside(byte),
            };
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    /// The position after a byte outside quotes.
    fn outside(&self, byte: u8) -> Place {
        if byte == self.separator || byte == b'\n' { Place::Start } else { Place::Plain }
    }
}

/// The error for a file that was opened but could not be read to its end. `place` is the position reached.
pub(super) fn broken(place: &str, e: &io::Error) -> Error {
    if e.get_ref().is_some_and(|inner| inner.is::<Trailing>()) {
        return Error::data("", shown(e), "a file that ends with its gzip stream, of one member or several: get it again");
    }
    if let Some(quote) = e.get_ref().and_then(|inner| inner.downcast_ref::<BadQuote>()) {
        return Error::data("", shown(quote), QUOTES);
    }
    let (what, help) = match e.kind() {
        io::ErrorKind::UnexpectedEof => ("the file ends too early: it is truncated".into(), "the complete file: get it again"),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            (format!("the packed data are damaged: {}", shown(e)), "an intact file: get it again")
        }
        io::ErrorKind::FileTooLarge => (shown(e), "a file of text lines, or one with a known extension: .parquet, .csv, .csv.gz, .csv.zst"),
        _ => (format!("cannot be read: {}", shown(e)), "a file that can be read"),
    };
    Error::data("", format!("{place}: {what}"), help)
}

/// The memory still available for the rows of a file.
pub(super) struct Room {
    left: usize,
    limit: usize,
    file: u64,
}

impl Room {
    /// For a file of this many bytes.
    pub(super) fn of(file: u64) -> Self {
        let limit = size_limit();
        Self { left: limit, limit, file }
    }

    /// Reserves `bytes` more. Growing vectors take up to twice their contents, so callers count them twice.
    ///
    /// # Errors
    /// When there is not enough memory; `for_what` names the use.
    pub(super) fn take(&mut self, bytes: usize, for_what: impl FnOnce() -> String) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let (limit, file) = (bytes_text(self.limit as f64), bytes_text(self.file as f64));
                let what = format!("{}: its data take more than {limit} in memory, for a file of {file}", for_what());
                return Err(Error::no_memory("", what, "a smaller file, or more memory: half of what is available is used for a file"));
            }
        }
        Ok(())
    }
}
