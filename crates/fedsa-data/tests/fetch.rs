//! Downloads of public data sets, against a server on loopback: whatever it does, the file is the right one or not there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::server::{Answer, Server, header};
use fedsa::error::{Error, ErrorCode, ErrorKind};
use fedsa_data::find::Places;
use fedsa_data::public::fetch::{Fetcher, FileSource, Watch};
use fedsa_data::public::verify::{FileState, sha256, state};
use fedsa_data::public::{PublicFile, PublicSet};

/// Bytes that do not repeat.
fn contents() -> Vec<u8> {
    (0..300_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn hash(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    sha256(std::fs::File::open(path).unwrap()).unwrap()
}

/// A data set of one file with these contents.
fn set_of(bytes: &[u8], url: Option<String>) -> PublicSet {
    let leak = |text: String| -> &'static str { text.leak() };
    let file = PublicFile { path: "family/set", url: url.map(leak), size: bytes.len() as u64, sha256: leak(hash(bytes)) };
    let files = Vec::leak(vec![file]);
    PublicSet { name: "family/set", what: "", origin: "", checksums: "", files, also_in: Some("other") }
}

#[derive(Default)]
struct Seen {
    most: u64,
    notes: Vec<String>,
}

impl Watch for Seen {
    fn bytes(&mut self, there: u64) {
        self.most = self.most.max(there);
    }
    fn note(&mut self, what: String) {
        self.notes.push(what);
    }
}

struct Got {
    result: Result<PathBuf, Error>,
    seen: Seen,
}

/// Gets the file from a source into a folder.
fn get(source: FileSource, set: &PublicSet, into: &Path, overwrite: bool) -> Got {
    let fetcher = Fetcher::new(source, Duration::from_millis(400), Duration::from_millis(5), overwrite);
    let mut seen = Seen::default();
    let result = fetcher.fetch(set, &set.files[0], into, &mut seen);
    Got { result, seen }
}

/// Gets the file from a server that answers so.
fn served(answers: Vec<Answer>, into: &Path) -> (Got, Server) {
    let server = Server::new(contents(), answers);
    let got = get(FileSource::Mirror(server.url.clone()), &set_of(&contents(), None), into, false);
    (got, server)
}

fn part(into: &Path) -> PathBuf {
    into.join("family/set.part")
}

/// The words of a refusal that is about the source's data.
fn source_error(got: Got) -> String {
    words(&refusal(got, ErrorKind::Data))
}

/// The words of a failure of the network or the disk.
fn machine_error(got: Got) -> String {
    words(&refusal(got, ErrorKind::Machine))
}

fn refusal(got: Got, kind: ErrorKind) -> Error {
    let e = got.result.expect_err("a refusal");
    assert_eq!(e.kind(), kind, "{e}");
    e
}

fn words(e: &Error) -> String {
    format!("{e}. {}", e.help)
}

#[test]
fn a_file_arrives_whole_and_under_its_name_only() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server) = served(vec![Answer::Good("\"one\"")], dir.path());
    assert_eq!(got.result.unwrap(), dir.path().join("family/set"));
    assert_eq!(std::fs::read(dir.path().join("family/set")).unwrap(), contents());
    assert!(!part(dir.path()).exists() && got.seen.most == 300_000 && got.seen.notes.is_empty());
    assert!(server.requests()[0].starts_with("GET /data/family/set HTTP/1.1"), "{:?}", server.requests());
    let set = set_of(&contents(), Some(format!("{}/elsewhere", server.url)));
    let other = tempfile::tempdir().unwrap();
    get(FileSource::Canonical, &set, other.path(), false).result.unwrap();
    assert!(server.requests()[1].starts_with("GET /data/elsewhere HTTP/1.1"));
    let places = Places { base: PathBuf::new(), data: vec![dir.path().into()] };
    assert_eq!(state(&set, &set.files[0], &places), FileState::Good(dir.path().join("family/set")));
}

#[test]
fn a_connection_that_is_lost_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let one = "\"one\"";
    let (got, server) =
        served(vec![Answer::Cut(one, 100_000), Answer::Cut(one, 50_000), Answer::Status(503), Answer::Good(one)], dir.path());
    got.result.unwrap();
    let requests = server.requests();
    let ranges: Vec<_> = requests.iter().map(|request| header(request, "range")).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-"), Some("bytes=150000-"), Some("bytes=150000-")]);
    assert_eq!(header(&requests[1], "if-range"), Some(one));
    assert_eq!(got.seen.notes.len(), 3);
    assert!(got.seen.notes[0].contains("100 kB of 300 kB are there: trying again"), "{:?}", got.seen.notes);
    assert_eq!(std::fs::read(dir.path().join("family/set")).unwrap(), contents());
}

#[test]
fn a_later_call_goes_on_with_what_an_earlier_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let cut = |most| vec![Answer::Cut("\"one\"", most), Answer::Cut("\"one\"", 0)];
    let (got, _server) = served(cut(120_000), dir.path());
    let message = machine_error(got);
    assert!(message.contains("120 kB of 300 kB are there: the same command goes on from there"), "{message}");
    assert_eq!(std::fs::read(part(dir.path())).unwrap(), contents()[..120_000]);
    assert!(!dir.path().join("family/set").exists());
    let (got, server) = served(vec![Answer::Good("\"one\"")], dir.path());
    got.result.unwrap();
    assert_eq!(header(&server.requests()[0], "range"), Some("bytes=120000-"));
    // What is complete but for its name needs no server.
    std::fs::rename(dir.path().join("family/set"), part(dir.path())).unwrap();
    let (got, server) = served(vec![Answer::Status(500)], dir.path());
    got.result.unwrap();
    assert_eq!(server.requests().len(), 0);
    // What is too long is not what we left.
    std::fs::rename(dir.path().join("family/set"), part(dir.path())).unwrap();
    std::fs::write(part(dir.path()), vec![0; 300_001]).unwrap();
    served(vec![Answer::Good("\"one\"")], dir.path()).0.result.unwrap();
}

#[test]
fn servers_that_send_no_parts_start_again() {
    let dir = tempfile::tempdir().unwrap();
    let (got, _) = served(vec![Answer::Cut("\"one\"", 100_000), Answer::Whole], dir.path());
    got.result.unwrap();
    // The file has changed on the server in between: its tag differs, and the whole file comes.
    let dir = tempfile::tempdir().unwrap();
    let (got, server) = served(vec![Answer::Cut("\"one\"", 100_000), Answer::Good("\"two\"")], dir.path());
    got.result.unwrap();
    assert_eq!(header(&server.requests()[1], "if-range"), Some("\"one\""));
    let dir = tempfile::tempdir().unwrap();
    let (got, server) = served(vec![Answer::Cut("\"one\"", 100_000), Answer::WrongPart, Answer::Good("\"one\"")], dir.path());
    got.result.unwrap();
    assert_eq!(header(&server.requests()[2], "range"), None, "the part was given up");
}

#[test]
fn another_file_is_removed() {
    let other = |change: usize| {
        let mut bytes = contents();
        bytes[change] ^= 1;
        bytes
    };
    let dir = tempfile::tempdir().unwrap();
    let message = source_error(served(vec![Answer::Other(other(7))], dir.path()).0);
    assert!(message.contains(&hash(&other(7))) && message.contains(&hash(&contents())) && message.contains("is expected"), "{message}");
    assert!(!part(dir.path()).exists() && !dir.path().join("family/set").exists());
    let message = source_error(served(vec![Answer::Other(vec![1; 17])], dir.path()).0);
    assert!(message.contains("has 17 bytes, and 300000 are expected"), "{message}");
    // An earlier part of another file: the whole is wrong, is removed, and the next call succeeds.
    std::fs::create_dir_all(dir.path().join("family")).unwrap();
    std::fs::write(part(dir.path()), &other(9)[..1000]).unwrap();
    let message = source_error(served(vec![Answer::Good("\"one\"")], dir.path()).0);
    assert!(message.contains("SHA-256") && !part(dir.path()).exists(), "{message}");
    served(vec![Answer::Good("\"one\"")], dir.path()).0.result.unwrap();
}

#[test]
fn answers_that_are_no_file_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    for (status, says) in [(404, "the server answers 404 Not Found"), (403, "403 Forbidden"), (410, "410 Gone")] {
        let (got, server) = served(vec![Answer::Status(status)], dir.path());
        let e = refusal(got, ErrorKind::Data);
        assert!(e.code() == ErrorCode::NoSource && e.what.contains(says) && server.requests().len() == 1, "{e:?}");
    }
    let (got, server) = served(vec![Answer::Status(503)], dir.path());
    assert_eq!(got.seen.notes.len(), 4);
    let message = machine_error(got);
    assert!(message.contains("503 Service Unavailable") && server.requests().len() == 5, "{message}");
    let set = set_of(&contents(), None);
    // Nobody listens at a port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let message = machine_error(get(FileSource::Mirror(format!("http://127.0.0.1:{port}")), &set, dir.path(), false));
    assert!(message.contains("no connection") && message.contains("take a copy from elsewhere"), "{message}");
    let message = words(&refusal(get(FileSource::Mirror("not an address".into()), &set, dir.path(), false), ErrorKind::Setting));
    assert!(message.contains("http://"), "{message}");
    let message = source_error(get(FileSource::Canonical, &set, dir.path(), false));
    assert!(message.contains("no canonical public source"), "{message}");
}

#[test]
fn silent_servers_are_left_and_slow_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server) = served(vec![Answer::Stall(100_000), Answer::Slow(Duration::from_secs(2))], dir.path());
    got.result.unwrap();
    assert_eq!(header(&server.requests()[1], "range"), Some("bytes=100000-"));
    assert_eq!(got.seen.notes.len(), 1, "{:?}", got.seen.notes);
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let message = machine_error(served(vec![Answer::Stall(0)], dir.path()).0);
    assert!(began.elapsed() < Duration::from_secs(15), "{message}");
}

#[test]
fn copies_from_folders_are_checked() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let set = set_of(&contents(), None);
    let copy = |overwrite| get(FileSource::Folder(from.path().into()), &set, into.path(), overwrite);
    let e = refusal(copy(false), ErrorKind::Data);
    assert!(e.code() == ErrorCode::NoFile && e.key == "source" && e.what.contains("neither family/set nor set"), "{e:?}");
    for place in ["set", "family/set", "other/set"] {
        let path = from.path().join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &contents()[1..]).unwrap();
        assert!(source_error(copy(false)).contains("it has 299999 bytes, and 300000 are expected"));
        std::fs::write(&path, [&contents()[1..], &[0]].concat()).unwrap();
        assert!(source_error(copy(false)).contains("SHA-256"));
        assert!(!into.path().join("family").exists(), "nothing is left, and no empty folder");
        std::fs::write(&path, contents()).unwrap();
        copy(false).result.unwrap();
        assert_eq!(std::fs::read(into.path().join("family/set")).unwrap(), contents());
        std::fs::remove_file(into.path().join("family/set")).unwrap();
        std::fs::remove_file(path).unwrap();
        let _ = std::fs::remove_dir(from.path().join("family"));
    }
    // A file that is there is replaced only if it may be.
    std::fs::write(from.path().join("set"), contents()).unwrap();
    std::fs::write(into.path().join("family/set"), b"mine").unwrap();
    let e = refusal(copy(false), ErrorKind::Setting);
    assert!(e.code() == ErrorCode::OutputExists && e.what.contains("there is a file with other contents already"), "{e:?}");
    assert_eq!(std::fs::read(into.path().join("family/set")).unwrap(), b"mine");
    copy(true).result.unwrap();
    assert_eq!(std::fs::read(into.path().join("family/set")).unwrap(), contents());
}

#[test]
fn one_process_at_a_time_gets_a_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("family")).unwrap();
    let file = std::fs::File::create(part(dir.path())).unwrap();
    file.lock().unwrap();
    let e = refusal(served(vec![Answer::Whole], dir.path()).0, ErrorKind::Setting);
    assert_eq!((e.code(), e.what.as_str()), (ErrorCode::OutputBusy, "another process is getting this file"));
    drop(file);
    served(vec![Answer::Whole], dir.path()).0.result.unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_of_the_machine() {
    // Writing to /dev/full fails as on a full disk; a part that is no file is refused.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("family")).unwrap();
    std::os::unix::fs::symlink("/dev/full", part(dir.path())).unwrap();
    let message = source_error(served(vec![Answer::Whole], dir.path()).0);
    assert!(message.contains("it is a symbolic link, not a file"), "{message}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("family"), b"a file").unwrap();
    let message = machine_error(served(vec![Answer::Whole], dir.path()).0);
    assert!(message.contains("cannot be written"), "{message}");
}
