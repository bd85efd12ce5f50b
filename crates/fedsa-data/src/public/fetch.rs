//! Downloads the files of public data sets.
//!
//! Bytes go to `FILE.part`, which gets the name of the file only when it is complete and its checksum is right. An interrupted download
//! resumes where it ended, in the same call or a later one, if the server can send a part of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fedsa::error::{Error, ErrorCode, quoted, shown};

use super::curl::{self, Response, Trouble};
use super::registry::{PublicFile, PublicSet};
use super::verify::sha256;
use crate::machine::bytes_text;
use crate::{atomic, name_of};

/// The source of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSource {
    /// Their canonical addresses.
    Canonical,
    /// Below this address, by their paths.
    Mirror(String),
    /// A folder.
    Folder(PathBuf),
}

/// Receives the progress of a download.
pub trait Watch {
    /// The number of bytes so far.
    fn bytes(&mut self, there: u64);
    /// A message for the user, such as another try.
    fn note(&mut self, what: String);
}

/// Downloads files.
#[derive(Debug)]
pub struct Fetcher {
    source: FileSource,
    /// The longest silence of a server.
    timeout: Duration,
    /// The pause before the second try; it doubles before each further one.
    pause: Duration,
    /// Replace files that differ.
    overwrite: bool,
}

/// The number of consecutive tries that may fail without a byte.
const TRIES: u32 = 5;
/// The number of bytes copied at a time.
const STEP: usize = 64 << 10;

/// The reason why a try ended.
enum Cut {
    /// Another try may succeed.
    Retry(String),
    /// Another try will not succeed.
    Final(Error),
}

impl From<Error> for Cut {
    fn from(e: Error) -> Self {
        Self::Final(e)
    }
}

impl Fetcher {
    /// `timeout` is the longest silence of a server, rounded up to seconds; `pause` is the wait before the second try.
    pub fn new(source: FileSource, timeout: Duration, pause: Duration, overwrite: bool) -> Self {
        Self { source, timeout, pause, overwrite }
    }

    /// Downloads a file of a data set into the folder of data sets `into`, and returns its path.
    ///
    /// # Errors
    /// When the source has no such file or a different one, the network or the disk fails, or the name is taken.
    pub fn fetch(&self, set: &PublicSet, file: &PublicFile, into: &Path, watch: &mut dyn Watch) -> Result<PathBuf, Error> {
        let path = into.join(file.path);
        self.may_write(&path)?;
        let origin = self.origin(set, file)?;
        let folder = atomic::folder_of(&path);
        std::fs::create_dir_all(folder).map_err(|e| atomic::unwritable(folder, &e))?;
        let got = self.fill(&path, file, &origin, watch);
        if got.is_err() {
            // An empty folder would look like a data set without files. Folders with files stay.
            let _ = std::fs::remove_dir(folder);
        }
        got.map(|()| path)
    }

    fn fill(&self, path: &Path, file: &PublicFile, origin: &Origin, watch: &mut dyn Watch) -> Result<(), Error> {
        let mut part = Part::open(path)?;
        let got = match origin {
            Origin::File(from) => part.copy(from, file, watch),
            Origin::Url(url) => self.download(url, file, &mut part, watch),
        };
        if got.is_err() && part.length == 0 {
            part.remove();
        }
        got?;
        part.finish(path, file, origin)
    }

    fn may_write(&self, path: &Path) -> Result<(), Error> {
        match atomic::at(path) {
            Ok(None) => Ok(()),
            Ok(Some(found)) if found.is_file() && self.overwrite => Ok(()),
            Ok(Some(found)) => {
                let what = format!("there is {} with other contents already", atomic::kind_of(&found));
                Err(Error::data(shown(name_of(path)), what, "move it away").coded(ErrorCode::OutputExists))
            }
            Err(e) => Err(atomic::unwritable(path, &e)),
        }
    }

    /// The source of a file.
    fn origin(&self, set: &PublicSet, file: &PublicFile) -> Result<Origin, Error> {
        match (&self.source, file.url) {
            (FileSource::Canonical, Some(url)) => Ok(Origin::Url(url.into())),
            (FileSource::Canonical, None) => {
                let what = "it has no canonical public source";
                Err(Error::data(set.name, what, "a folder that has a copy, or a mirror").coded(ErrorCode::NoSource))
            }
            (FileSource::Mirror(base), _) => Ok(Origin::Url(format!("{}/{}", base.trim_end_matches('/'), file.path))),
            (FileSource::Folder(folder), _) => {
                let name = file.path.rsplit('/').next().unwrap_or(file.path);
                let other = set.also_in.map(|other| folder.join(other).join(name));
                let places = [Some(folder.join(file.path)), Some(folder.join(name)), other];
                let found = places.into_iter().flatten().find(|path| path.is_file());
                let missing = || {
                    let what = format!("there is neither {} nor {name} in {}", file.path, shown(name_of(folder)));
                    Error::data("source", what, "a folder with the files of the data set").coded(ErrorCode::NoFile)
                };
                found.map(Origin::File).ok_or_else(missing)
            }
        }
    }

    /// Downloads the missing part of a file, in several tries if needed.
    fn download(&self, url: &str, file: &PublicFile, part: &mut Part, watch: &mut dyn Watch) -> Result<(), Error> {
        let (mut failed, mut validator) = (0, None);
        loop {
            let before = part.length;
            match self.once(url, file, part, &mut validator, watch) {
                Ok(()) => return Ok(()),
                Err(Cut::Final(e)) => return Err(e),
                Err(Cut::Retry(why)) => {
                    failed = if part.length > before { 1 } else { failed + 1 };
                    let there = format!("{} of {}", bytes_text(part.length as f64), bytes_text(file.size as f64));
                    if failed >= TRIES {
                        let help = if part.length == 0 {
                            "check the network; or take a copy from elsewhere".to_string()
                        } else {
                            format!("{there} are there: the same command goes on from there")
                        };
                        return Err(Error::machine(format!("{}: {why}", shown(url)), help).coded(ErrorCode::Network));
                    }
                    watch.note(format!("{}: {why}; {there} are there: trying again", shown(url)));
                    std::thread::sleep(self.pause * 2u32.pow(failed - 1));
                }
            }
        }
    }

    /// One try. `validator` shows whether the file on the server is unchanged.
    fn once(
        &self,
        url: &str,
        file: &PublicFile,
        part: &mut Part,
        validator: &mut Option<String>,
        watch: &mut dyn Watch,
    ) -> Result<(), Cut> {
        if part.length > file.size {
            part.restart()?;
        }
        watch.bytes(part.length);
        if part.length == file.size {
            return Ok(());
        }
        let (range, mut headers) = (format!("bytes={}-", part.length), Vec::new());
        if part.length > 0 {
            headers.push(("Range", &range[..]));
            headers.extend(validator.as_deref().map(|validator| ("If-Range", validator)));
        }
        let mut response = curl::get(url, &headers, self.timeout).map_err(|e| failed(url, e))?;
        match response.status {
            // The server does not send parts, or its file has changed.
            200 => part.restart()?,
            206 if continues(&response, part.length, file.size) => (),
            206 | 416 if part.length > 0 => {
                part.restart()?;
                return Err(Cut::Retry("the server has another part than that which is missing".into()));
            }
            status => return Err(refused(url, status)),
        }
        *validator = validator_of(&response);
        let length: Option<u64> = response.header("content-length").and_then(|length| length.parse().ok());
        if let Some(length) = length.filter(|length| part.length + length != file.size) {
            let what = format!("the file at {} has {} bytes, and {} are expected", shown(url), part.length + length, file.size);
            part.remove();
            return Err(Cut::Final(another(file.path, what)));
        }
        match part.fill(&mut response, file, watch) {
            Err(Cut::Retry(_)) => Err(failed(url, response.trouble())),
            done => done,
        }
    }
}

/// The error for a file that differs from the expected one.
fn another(key: &str, what: String) -> Error {
    let help = "the file that the checksum was made of; it may have changed at its source";
    Error::data(key, what, help).coded(ErrorCode::NoSource)
}

/// The source of a file.
enum Origin {
    Url(String),
    File(PathBuf),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => f.write_str(&shown(url)),
            Self::File(path) => f.write_str(&shown(name_of(path))),
        }
    }
}

/// Whether the server's part begins where ours ends, and the file has the right size.
fn continues(response: &Response, from: u64, size: u64) -> bool {
    let range = response.header("content-range").and_then(|value| value.strip_prefix("bytes "));
    let Some((range, whole)) = range.and_then(|range| range.split_once('/')) else { return false };
    let start = range.split('-').next().and_then(|start| start.trim().parse().ok());
    start == Some(from) && (whole == "*" || whole.trim().parse() == Ok(size))
}

/// A header that identifies the version of a file on a server. Weak tags do not guarantee the same bytes.
fn validator_of(response: &Response) -> Option<String> {
    let tag = response.header("etag").filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| response.header("last-modified")).map(str::to_string)
}

/// The error for a response that is not a file.
fn refused(url: &str, status: u16) -> Cut {
    let reason = match status {
        401 => " Unauthorized",
        403 => " Forbidden",
        404 => " Not Found",
        408 => " Request Timeout",
        410 => " Gone",
        429 => " Too Many Requests",
        500 => " Internal Server Error",
        502 => " Bad Gateway",
        503 => " Service Unavailable",
        504 => " Gateway Timeout",
        _ => "",
    };
    let what = format!("the server answers {status}{reason}");
    if status >= 500 || matches!(status, 408 | 429) {
        return Cut::Retry(what);
    }
    Cut::Final(Error::data(shown(url), what, "an address that has the file: it may have moved").coded(ErrorCode::NoSource))
}

/// The error for a request without a complete response.
fn failed(url: &str, trouble: Trouble) -> Cut {
    match trouble {
        Trouble::NoAddress(why) => {
            let what = format!("not an address: {}", shown(why));
            Cut::Final(Error::new(quoted(url), what, "http:// or https://, a host, and a path"))
        }
        Trouble::NoProgram => {
            let what = "downloads need the program `curl`, which is not on this machine's path";
            Cut::Final(Error::machine(what, "curl, or a folder with a copy of the data set"))
        }
        Trouble::Network(why) => Cut::Retry(shown(why)),
    }
}

/// The downloaded bytes of a file.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Part {
    /// Opens the remains of an earlier call, or begins.
    fn open(path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_os_string();
        name.push(".part");
        let path = PathBuf::from(name);
        if let Some(found) = atomic::at(&path).map_err(|e| atomic::unwritable(&path, &e))?.filter(|found| !found.is_file()) {
            let what = format!("it is {}, not a file", atomic::kind_of(&found));
            return Err(Error::data(shown(name_of(&path)), what, "move it away"));
        }
        let unwritable = |e: io::Error| atomic::unwritable(&path, &e);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(unwritable)?;
        if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
            let what = "another process is getting this file";
            return Err(Error::data(shown(name_of(&path)), what, "wait until it has ended").coded(ErrorCode::OutputBusy));
        }
        let length = file.seek(SeekFrom::End(0)).map_err(unwritable)?;
        Ok(Self { path, file, length })
    }

    fn unwritable(&self, e: &io::Error) -> Error {
        atomic::unwritable(&self.path, e)
    }

    /// Starts again from nothing.
    fn restart(&mut self) -> Result<(), Error> {
        self.length = 0;
        self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0))).map_err(|e| self.unwritable(&e))?;
        Ok(())
    }

    /// Removes it. If that fails, a later call detects the wrong contents and starts again.
    fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Adds bytes from a server.
    fn fill(&mut self, mut from: impl Read, file: &PublicFile, watch: &mut dyn Watch) -> Result<(), Cut> {
        let mut buffer = vec![0; STEP];
        while self.length < file.size {
            let most = buffer.len().min((file.size - self.length) as usize);
            let read = match from.read(&mut buffer[..most]) {
                Ok(0) => return Err(Cut::Retry("the connection ended too early".into())),
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                    return Err(Cut::Retry("the server is silent".into()));
                }
                Err(e) => return Err(Cut::Retry(format!("the connection was lost: {}", shown(e)))),
            };
            self.add(&buffer[..read], watch)?;
        }
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], watch: &mut dyn Watch) -> Result<(), Error> {
        // After a failed write, the length goes back to the bytes written before.
        if let Err(e) = self.file.write_all(bytes) {
            let _ = self.file.set_len(self.length);
            return Err(self.unwritable(&e));
        }
        self.length += bytes.len() as u64;
        watch.bytes(self.length);
        Ok(())
    }

    /// Copies a file.
    fn copy(&mut self, from: &Path, file: &PublicFile, watch: &mut dyn Watch) -> Result<(), Error> {
        let unreadable = |e: io::Error| Error::data(shown(name_of(from)), format!("cannot be read: {e}"), "a file that you may read");
        let (mut source, metadata) = crate::regular::opened(from, u64::MAX).map_err(unreadable)?;
        if metadata.len() != file.size {
            self.remove();
            let what = format!("it has {} bytes, and {} are expected", metadata.len(), file.size);
            return Err(another(&shown(name_of(from)), what));
        }
        self.restart()?;
        let mut buffer = vec![0; STEP];
        loop {
            let read = source.read(&mut buffer).map_err(unreadable)?;
            if read == 0 {
                return Ok(());
            }
            self.add(&buffer[..read], watch)?;
        }
    }

    /// Renames the file if it is right, and removes it otherwise.
    fn finish(mut self, path: &Path, file: &PublicFile, origin: &Origin) -> Result<(), Error> {
        let again = |part: &mut Self| {
            part.file.sync_all()?;
            part.file.seek(SeekFrom::Start(0))?;
            sha256(part.file.try_clone()?)
        };
        let found = again(&mut self).map_err(|e| self.unwritable(&e))?;
        if found != file.sha256 {
            self.remove();
            let other = PublicSet::with_file(&found).map_or(String::new(), |(set, _)| format!(", that of {}", set.name));
            let what = format!("the SHA-256 of {origin} is {found}{other}; {} is expected", file.sha256);
            return Err(another(file.path, what));
        }
        std::fs::rename(&self.path, path).map_err(|e| atomic::unwritable(path, &e))?;
        atomic::sync_folder(atomic::folder_of(path)).map_err(|e| atomic::unwritable(path, &e))?;
        Ok(())
    }
}
