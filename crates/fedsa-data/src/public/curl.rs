//! Requests to servers through the installed program `curl`.
//!
//! Every supported system has or offers it, with the machine's certificates and proxies. A library with its cryptography would add 30
//! crates for one rarely used command.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The time limit for a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// The longest head of a response, in bytes.
const MAX_HEAD: u64 = 1 << 20;

/// The reason why there is no response, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// `curl` is not installed.
    NoProgram,
    /// The address is invalid.
    NoAddress(String),
    /// A network failure; another try may succeed.
    Network(String),
}

/// A response; the request is abandoned when it is dropped.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<ChildStdout>,
    errors: ChildStderr,
    child: Child,
}

impl Drop for Response {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests a file. `timeout` is the longest silence of a server, in whole seconds.
///
/// # Errors
/// When there is no response.
pub fn get(url: &str, headers: &[(&str, &str)], timeout: Duration) -> Result<Response, Trouble> {
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(Trouble::NoAddress("it has no http:// or https://".into()));
    }
    let seconds = timeout.as_secs_f64().ceil().max(1.0);
    let mut curl = Command::new("curl");
    // The user's own settings would come first: skip that file.
    curl.args(["--disable", "--silent", "--show-error", "--include", "--suppress-connect-headers", "--no-buffer", "--globoff"]);
    curl.args(["--location", "--max-redirs", "10", "--proto", "=http,https"]);
    curl.args(["--connect-timeout", &CONNECT.as_secs_f64().min(seconds).to_string()]);
    curl.args(["--speed-limit", "1", "--speed-time", &seconds.to_string()]);
    curl.args(["--user-agent", concat!("fedsa/", env!("CARGO_PKG_VERSION"))]);
    // Compressed files stay compressed.
    for (name, value) in [("Accept-Encoding", "identity")].iter().chain(headers) {
        curl.args(["--header", &format!("{name}: {value}")]);
    }
    curl.args(["--url", url]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = curl.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Trouble::NoProgram,
        _ => Trouble::Network(format!("curl does not start: {e}")),
    })?;
    let (body, errors) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let mut response = Response { status: 0, headers: Vec::new(), body: BufReader::new(body), errors, child };
    response.read_head().map_or_else(|| Err(response.trouble()), Ok)?;
    Ok(response)
}

impl Response {
    /// Reads the head of the response, after the heads of redirections and interim responses. `None` if there is none.
    fn read_head(&mut self) -> Option<()> {
        loop {
            let mut head = (&mut self.body).take(MAX_HEAD);
            let mut line = String::new();
            let mut next = || {
                line.clear();
                let read = head.read_line(&mut line).ok()?;
                (read > 0 && line.ends_with('\n')).then(|| line.trim_end().to_string())
            };
            let first = next()?;
            self.status = first.strip_prefix("HTTP/")?.split_whitespace().nth(1)?.parse().ok()?;
            self.headers.clear();
            loop {
                let line = next()?;
                if line.is_empty() {
                    break;
                }
                if let Some((name, value)) = line.split_once(':') {
                    self.headers.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
                }
            }
            let is_redirected = matches!(self.status, 301 | 302 | 303 | 307 | 308) && self.header("location").is_some();
            if self.status >= 200 && !is_redirected {
                return Some(());
            }
        }
    }

    /// The value of a header; the name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| &value[..])
    }

    /// The reason why the response ended early.
    pub fn trouble(&mut self) -> Trouble {
        let mut said = String::new();
        let _ = (&mut self.errors).take(1000).read_to_string(&mut said);
        let code = self.child.wait().ok().and_then(|status| status.code());
        // Messages of curl begin like `curl: (6) `.
        let said = said.trim().split_once(") ").map_or(said.trim(), |(_, said)| said).to_string();
        match code {
            Some(1 | 3) => Trouble::NoAddress(said),
            Some(5 | 6) => Trouble::Network("the host is not found: there may be no network".into()),
            Some(28) => Trouble::Network("the server is silent".into()),
            Some(0 | 18) => Trouble::Network("the connection ended too early".into()),
            _ => Trouble::Network(format!("no connection: {said}")),
        }
    }
}

impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}
