//! An HTTP server on loopback that misbehaves as it is told. It answers one request for each connection.

#![allow(dead_code, reason = "every test uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Answer {
    /// As a good server does: a part, if one is asked for and the file is still the same.
    Good(&'static str),
    /// With the whole file, whatever is asked for.
    Whole,
    /// As [`Answer::Good`], but the connection ends after so many bytes of the body.
    Cut(&'static str, usize),
    /// As [`Answer::Good`], but nothing comes after so many bytes of the body.
    Stall(usize),
    /// As [`Answer::Good`], a few bytes at a time, so that it takes this long.
    Slow(Duration),
    /// With a part that begins at the wrong byte.
    WrongPart,
    /// With this status and no file.
    Status(u16),
    /// With another file.
    Other(Vec<u8>),
}

/// A running server. Its thread ends with the process.
pub struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves a file, at whatever path. The answers are used one after the other, the last one for all further requests.
    pub fn new(file: Vec<u8>, answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/data", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter().peekable();
            let mut answer = Answer::Whole;
            for stream in listener.incoming() {
                if let Some(next) = answers.next() {
                    answer = next;
                }
                let Ok(stream) = stream else { continue };
                let request = read_request(&stream);
                seen.lock().unwrap().push(request.clone());
                // Who has gone away needs no answer.
                let _ = respond(stream, &request, &file, &answer);
            }
        });
        Self { url, requests }
    }

    /// The requests so far, with their headers in lower case.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    lines.fold(first, |all, line| all + "\n" + &line.to_ascii_lowercase())
}

/// The value of a header.
pub fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn respond(mut stream: TcpStream, request: &str, file: &[u8], answer: &Answer) -> std::io::Result<()> {
    let from = header(request, "range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let is_same = |tag: &str| header(request, "if-range").is_none_or(|other| other == tag);
    let (tag, wants_part) = match answer {
        Answer::Good(tag) | Answer::Cut(tag, _) => (*tag, is_same(tag)),
        Answer::Stall(_) | Answer::Slow(_) | Answer::WrongPart => ("\"one\"", true),
        _ => ("", false),
    };
    let mut head = match (answer, from.filter(|_| wants_part)) {
        (Answer::Status(status), _) => return write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"),
        (Answer::Other(_), _) | (_, None) => "HTTP/1.1 200 OK".to_string(),
        (_, Some(from)) if from >= file.len() => {
            return write!(stream, "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        (_, Some(from)) => {
            let said = if matches!(answer, Answer::WrongPart) { from + 1 } else { from };
            format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {said}-{}/{}", file.len() - 1, file.len())
        }
    };
    let body = match answer {
        Answer::Other(other) => other,
        _ => &file[from.filter(|_| wants_part).unwrap_or(0)..],
    };
    if !tag.is_empty() {
        head += &format!("\r\nETag: {tag}");
    }
    write!(stream, "{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    match answer {
        Answer::Cut(_, most) => stream.write_all(&body[..body.len().min(*most)]),
        Answer::Stall(most) => {
            stream.write_all(&body[..body.len().min(*most)])?;
            stream.flush()?;
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(20));
                drop(stream);
            });
            Ok(())
        }
        Answer::Slow(time) => body.chunks(body.len().div_ceil(20)).try_for_each(|chunk| {
            std::thread::sleep(*time / 20);
            stream.write_all(chunk)
        }),
        _ => stream.write_all(body),
    }
}
