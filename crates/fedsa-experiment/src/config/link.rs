//! The `uplink` and `downlink` of a method: a codec and media, by their kinds.

use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa::uplink::codec::{Codec, Exact};
use fedsa::uplink::stage::delay::Row;
use fedsa::uplink::{Aggregation, Uplink};
use fedsa_data::DiskFiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{find_kind, read_kind, schema_parts, short};
use crate::kinds::Kinds;

/// The link from agents to the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct UplinkSpec {
    /// The codec, such as `{ kind = "quantised", bits = 4 }`; exact by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema_parts::codec")]
    pub codec: Option<Table>,
    /// Error feedback: agents add their codec's error to the next message.
    #[serde(default)]
    pub error_feedback: bool,
    /// The media in the order of passage, such as `[{ kind = "erasure", success = 0.6 }, ..]`.
    #[serde(default)]
    #[schemars(schema_with = "schema_parts::media")]
    pub media: Vec<Table>,
    /// The server's mean of the answers, such as `"median"` or `{ trimmed_mean = 0.1 }`; by default the weighted mean.
    #[serde(default, skip_serializing_if = "Aggregation::is_mean")]
    pub aggregation: Aggregation,
}

/// The link from the server to agents.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DownlinkSpec {
    /// The codec, such as `{ kind = "float32" }`; exact by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema_parts::codec")]
    pub codec: Option<Table>,
}

fn codec(kinds: &Kinds, spec: Option<&Table>) -> Result<Arc<dyn Codec>> {
    let Some(table) = spec else { return Ok(Arc::new(Exact)) };
    let mut table = table.clone();
    let mut build = || {
        let kind = find_kind(kinds.codecs(), &mut table, "codec")?;
        let settings = read_kind(kind, &table)?;
        settings.check()?;
        Ok(settings.build())
    };
    build().map_err(|e: Error| e.inside("codec"))
}

/// Replaces the `path` of a trace by the delays of the file; without access to files, by a delay of 0.
fn fill_trace(table: &mut Table, files: Option<&DiskFiles>) -> Result<()> {
    const ACCEPTED: &str = "either delays, a list, or path, a text file with a line per round";
    if table.get("law").and_then(Value::as_str) != Some("trace") {
        return Ok(());
    }
    let rows = match (table.remove("path"), table.contains_key("delays")) {
        (None, true) => return check_list(&table["delays"]),
        (None, false) => return Err(Error::new("", "a trace has neither delays nor path", ACCEPTED)),
        (Some(_), true) => return Err(Error::new("path", "both delays and path are given", ACCEPTED)),
        (Some(Value::String(path)), false) => files.map_or(Ok(vec![Row::All(0)]), |files| files.delays(&path))?,
        (Some(other), false) => {
            return Err(Error::new("path", format!("{} is not a text", short(&other)), "the path of a file, in quotes"));
        }
    };
    table.insert("delays".into(), Value::try_from(rows).expect("whole numbers below MAX_DELAY"));
    Ok(())
}

/// Names the invalid entry of a list of delays.
fn check_list(delays: &Value) -> Result<()> {
    let is_delay = |value: &Value| value.as_integer().is_some_and(|tau| tau >= 0);
    let rows = delays.as_array().map_or(&[][..], Vec::as_slice);
    let bad = rows.iter().enumerate().find_map(|(t, row)| match row {
        Value::Array(each) => each.iter().position(|tau| !is_delay(tau)).map(|c| (format!("delays[{t}][{c}]"), &each[c])),
        one => (!is_delay(one)).then(|| (format!("delays[{t}]"), one)),
    });
    bad.map_or(Ok(()), |(key, value)| {
        let accepted = "whole numbers of rounds, at least 0: one per round for all agents, or a list of one per agent";
        Err(Error::new(key, format!("{} is not accepted", short(value)), accepted))
    })
}

/// An error of [`Uplink::check`] or of a delay, with its medium's place in the list.
pub fn located(up: &UplinkSpec, e: Error) -> Error {
    let Some(key) = e.key.strip_prefix("uplink.media.") else { return e };
    let kinds: &[&str] = if ["bits", "fading_snr"].contains(&key) { &["bit-budget"] } else { &["delay", "late"] };
    let is = |table: &Table| table.get("kind").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind));
    let Some((i, table)) = up.media.iter().enumerate().find(|(_, table)| is(table)) else { return e };
    let key = if table.contains_key("path") { "path" } else { key };
    let key = format!("uplink.media[{i}].{key}");
    e.about(key)
}

/// The link of a method from its tables, with these kinds. Without `files`, it reads no files that the tables name.
///
/// # Errors
/// When a codec or medium is unknown, has a bad setting, or does not fit the others, or a file cannot be used.
pub fn build(kinds: &Kinds, up: &UplinkSpec, down: &DownlinkSpec, files: Option<&DiskFiles>) -> Result<Uplink> {
    let downlink = codec(kinds, down.codec.as_ref()).map_err(|e| e.inside("downlink"))?;
    let agents_end = codec(kinds, up.codec.as_ref()).map_err(|e| e.inside("uplink"))?;
    up.aggregation.check().map_err(|e| e.inside("uplink"))?;
    let mut link = Uplink::default().with_codec(agents_end).with_error_feedback(up.error_feedback).with_downlink(downlink);
    link = link.with_aggregation(up.aggregation);
    for (i, table) in up.media.iter().enumerate() {
        let mut table = table.clone();
        let mut install = || {
            let kind = find_kind(kinds.media(), &mut table, "medium")?;
            fill_trace(&mut table, files)?;
            let settings = read_kind(kind, &table).map_err(|mut e| {
                // The error knows only the law's own keys.
                if table.contains_key("law") && e.code() == ErrorCode::UnknownKey {
                    e.help += if kind.name == "delay" { ", law, before" } else { ", law" };
                }
                e
            })?;
            link.push(settings.into())?;
            if link.media[i].act().channel().is_some_and(|channel| channel.gain_law().share_arriving == 0.0) {
                return Err(Error::new("", "no message arrives", "a medium that lets some messages through"));
            }
            Ok(())
        };
        install().map_err(|e: Error| e.inside(&format!("uplink.media[{i}]")))?;
    }
    Ok(link)
}
