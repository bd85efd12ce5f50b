//! A deserialiser that never reads a table from a list.
//!
//! Derived serde code accepts a list of values for a struct, in the order of its fields: a file with
//! `step_size = [0.1, 0.2]` would get the schedule `c = 0.1, t0 = 0.2`. [`Strict`] refuses this
//! for all structs. Untagged and internally tagged enums read their content without telling the
//! deserialiser its type, so that it cannot refuse. Choices between a table and something
//! else therefore use [`choice`], and [`fedsa::registry::table`] in the library.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use toml::Value;
use toml::de::Error;

/// A value to be read.
#[derive(Debug, Clone, Copy)]
pub struct Strict<'a>(pub &'a Value);

impl IntoDeserializer<'_, Error> for Strict<'_> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let mut each = SeqDeserializer::new(items.iter().map(Strict));
                let read = visitor.visit_seq(&mut each)?;
                each.end()?;
                Ok(read)
            }
            Value::Table(table) => {
                let mut each = MapDeserializer::new(table.iter().map(|(key, value)| (key.as_str(), Strict(value))));
                let read = visitor.visit_map(&mut each)?;
                each.end()?;
                Ok(read)
            }
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(i) => visitor.visit_i64(*i),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Boolean(b) => visitor.visit_bool(*b),
            Value::Datetime(_) => self.0.clone().deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(text) => IntoDeserializer::<Error>::into_deserializer(text.as_str()).deserialize_enum(name, variants, visitor),
            Value::Table(table) if table.len() == 1 => {
                let entry = table.iter().map(|(key, value)| (key.as_str(), Strict(value)));
                MapAccessDeserializer::new(MapDeserializer::new(entry)).deserialize_enum(name, variants, visitor)
            }
            Value::Table(table) => Err(match table.keys().find(|key| !variants.contains(&key.as_str())) {
                Some(other) => Error::unknown_field(other, variants),
                None => Error::custom("expected a name in quotes, or a table of one key"),
            }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// Implements `Deserialize` for a choice between a text, a list and a table. Arguments: the text of the
/// expected value for messages, and for each form its type and the conversion into the choice.
macro_rules! choice {
    ($type:ty, $expecting:literal, $($form:ident $inner:ty => $make:expr),+ $(,)?) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                struct Choice;
                impl<'de> serde::de::Visitor<'de> for Choice {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }
                    $($crate::config::strict::choice!(@ $form $inner, $make);)+
                }
                from.deserialize_any(Choice)
            }
        }
    };
    (@ text $inner:ty, $make:expr) => {
        fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
            let inner = <$inner>::deserialize(serde::de::IntoDeserializer::<E>::into_deserializer(text))?;
            ($make)(inner).map_err(|e: &str| E::custom(e))
        }
    };
    (@ list $inner:ty, $make:expr) => {
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> std::result::Result<Self::Value, A::Error> {
            let inner = <$inner>::deserialize(serde::de::value::SeqAccessDeserializer::new(list))?;
            ($make)(inner).map_err(|e: &str| serde::de::Error::custom(e))
        }
    };
    (@ table $inner:ty, $make:expr) => {
        fn visit_map<A: serde::de::MapAccess<'de>>(self, table: A) -> std::result::Result<Self::Value, A::Error> {
            let inner = <$inner>::deserialize(serde::de::value::MapAccessDeserializer::new(table))?;
            ($make)(inner).map_err(|e: &str| serde::de::Error::custom(e))
        }
    };
}
pub(crate) use choice;
