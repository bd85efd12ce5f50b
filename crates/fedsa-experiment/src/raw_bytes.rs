//! Bytes in a checkpoint, as they are: a list of numbers would be written one by one, which takes seconds for states of 100 MB. The format is
//! the same.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

struct Owned(Vec<u8>);

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = list.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes)
            }
        }
        from.deserialize_byte_buf(Bytes).map(Owned)
    }
}

pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    bytes.as_deref().map(Raw).serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    Ok(Option::<Owned>::deserialize(from)?.map(|owned| owned.0))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct WithBytes(#[serde(with = "super")] Option<Vec<u8>>);

    #[test]
    fn bytes_are_those_of_a_list() {
        for bytes in [None, Some(Vec::new()), Some(vec![0, 255, 128]), Some(vec![7; 1000])] {
            let written = postcard::to_stdvec(&WithBytes(bytes.clone())).unwrap();
            assert_eq!(written, postcard::to_stdvec(&bytes).unwrap());
            assert_eq!(postcard::from_bytes::<WithBytes>(&written).unwrap().0, bytes);
        }
        assert!(postcard::from_bytes::<WithBytes>(&[1, 9, 0]).is_err());
    }
}
