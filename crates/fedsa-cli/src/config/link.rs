//! The `uplink` and `downlink` of a method: a codec and media, by their kinds.

use fedsa::error::Result;
use fedsa::uplink::codec::{self, Codec, Exact};
use fedsa::uplink::{Uplink, medium};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::{find_kind, read_kind};

/// What agents send passes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkSpec {
    /// `{ kind = "quantised", bits = 4 }`; exact when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<Table>,
    /// Whether an agent adds what its codec left out to its next message.
    #[serde(default)]
    pub error_feedback: bool,
    /// `[{ kind = "erasure", success = 0.6 }, ..]`, in the order in which messages pass them.
    #[serde(default)]
    pub media: Vec<Table>,
}

/// What agents are told passes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownlinkSpec {
    /// `{ kind = "float32" }`; exact when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<Table>,
}

fn codec(spec: Option<&Table>) -> Result<Box<dyn Codec>> {
    let Some(table) = spec else { return Ok(Box::new(Exact)) };
    let mut table = table.clone();
    let build = || {
        let kind = find_kind(codec::KINDS, &mut table, "codec")?;
        let settings = read_kind(kind, table)?;
        settings.check()?;
        Ok(settings.build())
    };
    build().map_err(|e: fedsa::error::BadInput| e.inside("codec"))
}

/// The link that a method's tables come to.
///
/// # Errors
/// When a codec or medium is unknown, has a bad setting, or does not go with the others.
pub fn build(up: &UplinkSpec, down: &DownlinkSpec) -> Result<Uplink> {
    let downlink = codec(down.codec.as_ref()).map_err(|e| e.inside("downlink"))?;
    let agents_end = codec(up.codec.as_ref()).map_err(|e| e.inside("uplink"))?;
    let mut link = Uplink { codec: agents_end, error_feedback: up.error_feedback, downlink, ..Uplink::default() };
    for (i, table) in up.media.iter().enumerate() {
        let mut table = table.clone();
        let mut install = || {
            let kind = find_kind(medium::KINDS, &mut table, "medium")?;
            read_kind(kind, table.clone())?.install(&mut link)
        };
        install().map_err(|e: fedsa::error::BadInput| e.inside(&format!("uplink.media[{i}]")))?;
    }
    Ok(link)
}
