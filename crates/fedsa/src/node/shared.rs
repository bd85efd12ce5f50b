//! Serialises messages, many of which are equal: each distinct message once.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<S: Serializer>(all: &[Arc<[u8]>], to: S) -> Result<S::Ok, S::Error> {
    let mut distinct: Vec<&[u8]> = Vec::new();
    let mut known: HashMap<*const u8, u32> = HashMap::new();
    let index = |bytes: &Arc<[u8]>| {
        let next = known.len() as u32;
        known.entry(bytes.as_ptr()).or_insert(next).to_owned()
    };
    let which: Vec<u32> = all.iter().map(index).collect();
    for (bytes, i) in all.iter().zip(&which) {
        if *i as usize == distinct.len() {
            distinct.push(bytes);
        }
    }
    (distinct, which).serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Arc<[u8]>>, D::Error> {
    let (distinct, which) = <(Vec<Vec<u8>>, Vec<u32>)>::deserialize(from)?;
    let distinct: Vec<Arc<[u8]>> = distinct.into_iter().map(Into::into).collect();
    which.iter().map(|i| distinct.get(*i as usize).cloned().ok_or_else(|| D::Error::custom("no such message"))).collect()
}
