//! The deserialiser of settings.
//!
//! Derived serde code accepts a list of values for a struct, in the order of its fields: a file with `step_size = [0.1, 0.2]` would get the
//! schedule `c = 0.1, t0 = 0.2`. The reader refuses this for all structs. Enums with a tag (`law = ..`) do not tell the reader their type;
//! fields of such types use [`crate::registry::table`]. A choice between types is a [`crate::choice!`], because errors of serde's untagged
//! enums have no place.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::words::{BOOL, LIST, NAME, NUMBER, TABLE, TEXT, WHOLE, WHOLE_POSITIVE};
use super::{ReadError, Value};

type Result<T> = std::result::Result<T, ReadError>;

/// Reads a tree; the one deserialiser of settings.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a Value);

impl<'a> Reader<'a> {
    /// A reader of a tree.
    pub fn new(value: &'a Value) -> Self {
        Self(value)
    }

    /// The error about a value of another type.
    #[cold]
    fn refuse(self, accepted: &str) -> ReadError {
        ReadError::wrong_type(accepted).seen(self.0)
    }

    /// Adds the value to an error.
    #[inline]
    fn seen<T>(self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|e| e.seen(self.0))
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Reader<'_> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

/// Whole numbers of all sizes.
macro_rules! whole {
    ($($method:ident $accepted:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.0 {
                Value::Integer(i) => visitor.visit_i64::<ReadError>(*i).map_err(|_| self.refuse($accepted)),
                _ => Err(self.refuse($accepted)),
            }
        })+
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    whole! {
        deserialize_u8 WHOLE_POSITIVE
        deserialize_u16 WHOLE_POSITIVE
        deserialize_u32 WHOLE_POSITIVE
        deserialize_u64 WHOLE_POSITIVE
        deserialize_i8 WHOLE
        deserialize_i16 WHOLE
        deserialize_i32 WHOLE
        deserialize_i64 WHOLE
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Float(x) => self.seen(visitor.visit_f64(*x)),
            Value::Integer(i) => self.seen(visitor.visit_f64(*i as f64)),
            _ => Err(self.refuse(NUMBER)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Bool(yes) => self.seen(visitor.visit_bool(*yes)),
            _ => Err(self.refuse(BOOL)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Text(text) => self.seen(visitor.visit_str(text)),
            _ => Err(self.refuse(TEXT)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::List(items) => self.seen(visitor.visit_seq(Items { items: items.iter(), index: 0 })),
            _ => Err(self.refuse(LIST)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value> {
        let accepted = || match length {
            2 => "a list of two, such as [0.0, 1.0]".to_string(),
            n => format!("a list of {n}"),
        };
        match self.0 {
            Value::List(items) if items.len() == length => self.deserialize_seq(visitor),
            Value::List(_) => Err(ReadError::wrong_length(accepted()).seen(self.0)),
            _ => Err(self.refuse(&accepted())),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, length: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Table(entries) => self.seen(visitor.visit_map(Entries { entries: entries.iter(), at: None })),
            _ => Err(self.refuse(TABLE)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &'static str, variants: &'static [&'static str], visitor: V) -> Result<V::Value> {
        let chosen = match self.0 {
            Value::Text(name) => Chosen { name, value: None },
            Value::Table(entries) => match &entries[..] {
                [(name, value)] => Chosen { name, value: Some(value) },
                _ => match entries.iter().find(|(name, _)| !variants.contains(&name.as_str())) {
                    Some((other, _)) => return Err(ReadError::unknown_key(other, variants)),
                    None => return Err(self.refuse("a name in quotes, or a table of one key")),
                },
            },
            _ => return Err(self.refuse(NAME)),
        };
        self.seen(visitor.visit_enum(chosen))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.seen(match self.0 {
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Integer(i) => visitor.visit_i64(*i),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Text(text) => visitor.visit_str(text),
            Value::Date(text) => visitor.visit_map(Date(Some(text))),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), index: 0 }),
            Value::Table(entries) => visitor.visit_map(Entries { entries: entries.iter(), at: None }),
        })
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit unit_struct identifier }
}

/// The items of a list.
struct Items<'a> {
    items: std::slice::Iter<'a, Value>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(Reader(value)).map(Some).map_err(|e| e.seen(value).within(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a table.
struct Entries<'a> {
    entries: std::slice::Iter<'a, (String, Value)>,
    at: Option<&'a (String, Value)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        self.at = self.entries.next();
        self.at.map(|(key, _)| seed.deserialize(StrDeserializer::<ReadError>::new(key))).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let (key, value) = self.at.expect("a key comes before its value");
        seed.deserialize(Reader(value)).map_err(|e| e.seen(value).under(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A date, in the form that the `toml` crate uses for its own types.
struct Date<'a>(Option<&'a str>);

impl<'de> MapAccess<'de> for Date<'_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let key = |_| seed.deserialize(StrDeserializer::<ReadError>::new("$__toml_private_datetime"));
        self.0.map(key).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        seed.deserialize(StrDeserializer::<ReadError>::new(self.0.take().expect("a key comes before its value")))
    }
}

/// A variant of an enum: a name, or a table with the name as its key.
struct Chosen<'a> {
    name: &'a str,
    value: Option<&'a Value>,
}

impl<'de> EnumAccess<'de> for Chosen<'_> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        Ok((seed.deserialize(StrDeserializer::<ReadError>::new(self.name))?, self))
    }
}

impl<'a> Chosen<'a> {
    fn table(&self) -> Result<Reader<'a>> {
        self.value.map(Reader).ok_or_else(|| ReadError::wrong_type(&format!("{{ {} = .. }}", self.name)))
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<()> {
        self.value.map_or(Ok(()), |value| Err(ReadError::wrong_type(&format!("\"{}\"", self.name)).seen(value).under(self.name)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        let table = self.table()?;
        seed.deserialize(table).map_err(|e| e.seen(table.0).under(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value> {
        self.table()?.deserialize_tuple(length, visitor).map_err(|e| e.under(self.name))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.table()?.deserialize_map(visitor).map_err(|e| e.under(self.name))
    }
}
