//! The metadata of a picture's file: the program's version, the experiment, and the configuration that ran.

use super::text::forbidden;

/// The source of a picture, written into its file as metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provenance<'a> {
    /// The experiment's id.
    pub id: &'a str,
    /// The text of `config.toml`.
    pub config: &'a str,
}

/// The longest configuration that is written in full, in bytes.
const LONGEST: usize = 64 * 1024;

impl Provenance<'_> {
    /// The program and its version.
    pub(super) fn software() -> String {
        format!("fedsa {}", env!("CARGO_PKG_VERSION"))
    }

    /// The configuration without characters that XML forbids. A configuration of more than 64 KiB is cut, with a note of
    /// its length and CRC-32.
    pub(super) fn source(&self) -> String {
        let kept = match self.config.len() > LONGEST {
            true => &self.config[..self.config.floor_char_boundary(LONGEST)],
            false => self.config,
        };
        let mut source: String = kept.chars().map(|c| if forbidden(c) { ' ' } else { c }).collect();
        if kept.len() < self.config.len() {
            let (length, sum) = (self.config.len(), crc32fast::hash(self.config.as_bytes()));
            source.push_str(&format!("\n# Cut here: the whole has {length} bytes and the CRC-32 {sum:08x}.\n"));
        }
        source
    }
}
