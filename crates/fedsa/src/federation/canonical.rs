//! A canonical form of settings as bytes, for hashes: the same on every machine and in every build.
//!
//! Every value is a letter for its type, its length if it has one, and its content. Names of structs, fields and variants are serde's.
//! Numbers have 64 bits (integers 128), so the width of a field does not matter. The form cannot be decoded; unlike `postcard` and JSON, it
//! distinguishes two kinds with the same settings.

use serde::ser::{self, Serialize};
use sha2::{Digest, Sha256};

/// Writes the canonical form.
pub(super) struct Canonical<'a> {
    out: Vec<u8>,
    /// Omitted fields of the outermost struct or map.
    skipped: &'a [&'a str],
    /// The number of open structs and maps.
    depth: usize,
}

/// The canonical form of settings, without the fields `skipped`.
pub(super) fn bytes(value: &(impl Serialize + ?Sized), skipped: &[&str]) -> Vec<u8> {
    let mut canonical = Canonical { out: Vec::new(), skipped, depth: 0 };
    value.serialize(&mut canonical).expect("settings are numbers, texts, lists and tables");
    canonical.out
}

impl Canonical<'_> {
    pub(super) fn digest(value: &(impl Serialize + ?Sized)) -> [u8; 32] {
        Sha256::digest(bytes(value, &[])).into()
    }

    fn put(&mut self, tag: u8, content: &[u8]) -> Result<(), Never> {
        self.out.push(tag);
        self.out.extend((content.len() as u64).to_le_bytes());
        self.out.extend(content);
        Ok(())
    }

    fn integer(&mut self, x: i128) -> Result<(), Never> {
        self.put(b'i', &x.to_le_bytes())
    }

    /// Opens a list or a table; [`Canonical::close`] ends it.
    fn open(&mut self, tag: u8, name: &str) -> Result<&mut Self, Never> {
        self.depth += 1;
        self.put(tag, name.as_bytes())?;
        Ok(self)
    }

    fn close(&mut self) -> Result<(), Never> {
        self.depth -= 1;
        self.out.push(b')');
        Ok(())
    }

    fn entry<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Never> {
        if self.depth == 1 && self.skipped.contains(&key) {
            return Ok(());
        }
        self.put(b'k', key.as_bytes())?;
        value.serialize(&mut *self)
    }
}

/// Only a value's own `Serialize` can fail.
#[derive(Debug)]
pub(super) struct Never(String);

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: std::fmt::Display>(what: T) -> Self {
        Never(what.to_string())
    }
}

macro_rules! integers {
    ($($name:ident: $type:ty,)+) => {
        $(fn $name(self, x: $type) -> Result<(), Never> {
            self.integer(i128::from(x))
        })+
    };
}

impl<'a, 'b> ser::Serializer for &'a mut Canonical<'b> {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Table<'a, 'b>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }
    fn serialize_bool(self, x: bool) -> Result<(), Never> {
        self.put(b'b', &[u8::from(x)])
    }
    fn serialize_f32(self, x: f32) -> Result<(), Never> {
        self.serialize_f64(f64::from(x))
    }
    fn serialize_f64(self, x: f64) -> Result<(), Never> {
        self.put(b'f', &x.to_bits().to_le_bytes())
    }
    fn serialize_char(self, x: char) -> Result<(), Never> {
        self.serialize_str(x.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, x: &str) -> Result<(), Never> {
        self.put(b's', x.as_bytes())
    }
    fn serialize_bytes(self, x: &[u8]) -> Result<(), Never> {
        self.put(b'y', x)
    }
    fn serialize_none(self) -> Result<(), Never> {
        self.put(b'n', &[])
    }
    fn serialize_some<T: Serialize + ?Sized>(self, x: &T) -> Result<(), Never> {
        x.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Never> {
        self.put(b'n', &[])
    }
    fn serialize_unit_struct(self, name: &'static str) -> Result<(), Never> {
        self.put(b'u', name.as_bytes())
    }
    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Result<(), Never> {
        self.put(b'e', name.as_bytes())?;
        self.put(b'v', variant.as_bytes())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, x: &T) -> Result<(), Never> {
        self.put(b'w', name.as_bytes())?;
        x.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        x: &T,
    ) -> Result<(), Never> {
        self.put(b'e', name.as_bytes())?;
        self.put(b'v', variant.as_bytes())?;
        x.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Never> {
        self.open(b'(', "")
    }
    fn serialize_tuple(self, _: usize) -> Result<Self, Never> {
        self.open(b'(', "")
    }
    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Self, Never> {
        self.open(b'(', name)
    }
    fn serialize_tuple_variant(self, name: &'static str, _: u32, variant: &'static str, _: usize) -> Result<Self, Never> {
        self.put(b'e', name.as_bytes())?;
        self.open(b'(', variant)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Table<'a, 'b>, Never> {
        Ok(Table { to: self.open(b'{', "")?, key: Vec::new() })
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Self, Never> {
        self.open(b'{', name)
    }
    fn serialize_struct_variant(self, name: &'static str, _: u32, variant: &'static str, _: usize) -> Result<Self, Never> {
        self.put(b'e', name.as_bytes())?;
        self.open(b'{', variant)
    }
}

/// Elements of lists and tuples.
macro_rules! elements {
    ($($trait:ident $method:ident,)+) => {
        $(impl ser::$trait for &mut Canonical<'_> {
            type Ok = ();
            type Error = Never;
            fn $method<T: Serialize + ?Sized>(&mut self, x: &T) -> Result<(), Never> {
                x.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Never> {
                self.close()
            }
        })+
    };
}

elements! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

/// Fields of structs.
macro_rules! fields {
    ($($trait:ident,)+) => {
        $(impl ser::$trait for &mut Canonical<'_> {
            type Ok = ();
            type Error = Never;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, x: &T) -> Result<(), Never> {
                self.entry(key, x)
            }
            fn end(self) -> Result<(), Never> {
                self.close()
            }
        })+
    };
}

fields! { SerializeStruct, SerializeStructVariant, }

/// A table whose keys come one by one, such as a flattened struct. Keys are texts.
pub(super) struct Table<'a, 'b> {
    to: &'a mut Canonical<'b>,
    key: Vec<u8>,
}

impl ser::SerializeMap for Table<'_, '_> {
    type Ok = ();
    type Error = Never;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Never> {
        // Without the text's letter and length.
        self.key = bytes(key, &[]).split_off(9);
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, x: &T) -> Result<(), Never> {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        self.to.entry(&key, x)
    }
    fn end(self) -> Result<(), Never> {
        self.to.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct One {
        step: f64,
        path: &'static str,
        inner: Option<Inner>,
    }

    #[derive(Serialize)]
    struct Other {
        step: f64,
        path: &'static str,
        inner: Option<Inner>,
    }

    #[derive(Serialize, Clone, Copy)]
    enum Inner {
        Plain,
        Of(u32),
        With { path: u64 },
    }

    #[test]
    fn what_differs_has_another_form() {
        let one = |step, path, inner| bytes(&One { step, path, inner }, &[]);
        let base = one(0.5, "a", None);
        assert_eq!(base, one(0.5, "a", None));
        let others = [
            one(0.25, "a", None),
            one(0.5, "b", None),
            one(0.5, "a", Some(Inner::Plain)),
            one(0.5, "a", Some(Inner::Of(1))),
            one(0.5, "a", Some(Inner::Of(2))),
            one(0.5, "a", Some(Inner::With { path: 1 })),
            bytes(&Other { step: 0.5, path: "a", inner: None }, &[]),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != base && !others[..i].contains(other), "{i}");
        }
    }

    #[test]
    fn fields_of_the_outermost_table_are_left_out_and_no_others() {
        let skipped = |path, inner| bytes(&One { step: 0.5, path, inner }, &["path"]);
        assert_eq!(skipped("a", None), skipped("b", None));
        assert_ne!(skipped("a", Some(Inner::With { path: 1 })), skipped("a", Some(Inner::With { path: 2 })));
        let map = |path: i32| bytes(&BTreeMap::from([("path", path), ("step", 1)]), &["path"]);
        assert_eq!(map(1), map(2));
        assert_ne!(map(1), bytes(&BTreeMap::from([("step", 1), ("other", 1)]), &["path"]));
    }

    #[test]
    fn the_width_of_an_integer_does_not_matter_and_lists_do_not_run_together() {
        assert_eq!(bytes(&3u8, &[]), bytes(&3i64, &[]));
        assert_ne!(bytes(&3u8, &[]), bytes(&3.0, &[]));
        assert_ne!(bytes(&(vec!["ab"], vec!["c"]), &[]), bytes(&(vec!["a"], vec!["bc"]), &[]));
        assert_ne!(bytes(&(vec![1, 2], vec![3]), &[]), bytes(&(vec![1], vec![2, 3]), &[]));
    }

    /// SHA-256 of the canonical form, from another implementation.
    #[test]
    fn the_digest_is_the_start_of_sha_256() {
        let by_hand = b"{\x01\0\0\0\0\0\0\0Xk\x01\0\0\0\0\0\0\0ai\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0)";
        #[derive(Serialize)]
        struct X {
            a: u8,
        }
        assert_eq!(bytes(&X { a: 5 }, &[]), by_hand);
        assert_eq!(Canonical::digest(&X { a: 5 })[..8], DIGEST);
    }

    const DIGEST: [u8; 8] = [0x40, 0x4f, 0x83, 0x09, 0x6a, 0x63, 0x37, 0xb0];
}
