//! Settings of one of several types.

/// Implements `Deserialize` for a choice between a number, a whole number, a text, a list and a table. Arguments: the text that names the
/// accepted values, and for each form its type and the conversion into the choice. A conversion refuses with a text of accepted values.
/// Unlike serde's untagged enums, errors have their place within the form.
///
/// ```
/// /// A level, or several.
/// #[derive(Debug, PartialEq)]
/// enum Levels {
///     One(f64),
///     Many(Vec<f64>),
/// }
///
/// fedsa::choice!(Levels, "a number, or a list of numbers",
///     number f64 => |x| Ok(Levels::One(x)),
///     list Vec<f64> => |list| Ok(Levels::Many(list)),
/// );
///
/// use fedsa::settings::{self, Value};
/// assert_eq!(settings::read::<Levels>(&Value::Float(0.5)).unwrap(), Levels::One(0.5));
/// let e = settings::read::<Levels>(&Value::List(vec![Value::Float(0.5), Value::Bool(true)])).unwrap_err();
/// assert_eq!((e.key.as_str(), e.help.as_str()), ("[1]", "a number"));
/// ```
#[macro_export]
macro_rules! choice {
    ($type:ty, $expecting:literal, $($form:ident $inner:ty => $make:expr),+ $(,)?) => {
        impl<'de> $crate::settings::__private::serde::Deserialize<'de> for $type {
            fn deserialize<D>(from: D) -> ::std::result::Result<Self, D::Error>
            where
                D: $crate::settings::__private::serde::Deserializer<'de>,
            {
                struct Choice;
                impl<'de> $crate::settings::__private::serde::de::Visitor<'de> for Choice {
                    type Value = $type;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($expecting)
                    }
                    $($crate::choice!(@ $form $inner, $make);)+
                }
                from.deserialize_any(Choice)
            }
        }
    };
    (@ number $inner:ty, $make:expr) => {
        fn visit_f64<E: $crate::settings::__private::serde::de::Error>(self, x: f64) -> ::std::result::Result<Self::Value, E> {
            ($make)(x).map_err(|e: &str| E::custom(e))
        }
        fn visit_i64<E: $crate::settings::__private::serde::de::Error>(self, i: i64) -> ::std::result::Result<Self::Value, E> {
            self.visit_f64(i as f64)
        }
        fn visit_u64<E: $crate::settings::__private::serde::de::Error>(self, i: u64) -> ::std::result::Result<Self::Value, E> {
            self.visit_f64(i as f64)
        }
    };
    (@ whole $inner:ty, $make:expr) => {
        fn visit_u64<E: $crate::settings::__private::serde::de::Error>(self, i: u64) -> ::std::result::Result<Self::Value, E> {
            let i = <$inner>::try_from(i).map_err(|_| E::custom($crate::settings::__private::expected(&self)))?;
            ($make)(i).map_err(|e: &str| E::custom(e))
        }
        fn visit_i64<E: $crate::settings::__private::serde::de::Error>(self, i: i64) -> ::std::result::Result<Self::Value, E> {
            let i = <$inner>::try_from(i).map_err(|_| E::custom($crate::settings::__private::expected(&self)))?;
            ($make)(i).map_err(|e: &str| E::custom(e))
        }
    };
    (@ text $inner:ty, $make:expr) => {
        fn visit_str<E: $crate::settings::__private::serde::de::Error>(self, text: &str) -> ::std::result::Result<Self::Value, E> {
            use $crate::settings::__private::serde::de::IntoDeserializer;
            let from = IntoDeserializer::<E>::into_deserializer(text);
            let inner = <$inner as $crate::settings::__private::serde::Deserialize>::deserialize(from)?;
            ($make)(inner).map_err(|e: &str| E::custom(e))
        }
    };
    (@ list $inner:ty, $make:expr) => {
        fn visit_seq<A>(self, list: A) -> ::std::result::Result<Self::Value, A::Error>
        where
            A: $crate::settings::__private::serde::de::SeqAccess<'de>,
        {
            let from = $crate::settings::__private::serde::de::value::SeqAccessDeserializer::new(list);
            let inner = <$inner as $crate::settings::__private::serde::Deserialize>::deserialize(from)?;
            ($make)(inner).map_err(|e: &str| $crate::settings::__private::serde::de::Error::custom(e))
        }
    };
    (@ table $inner:ty, $make:expr) => {
        fn visit_map<A>(self, table: A) -> ::std::result::Result<Self::Value, A::Error>
        where
            A: $crate::settings::__private::serde::de::MapAccess<'de>,
        {
            let from = $crate::settings::__private::serde::de::value::MapAccessDeserializer::new(table);
            let inner = <$inner as $crate::settings::__private::serde::Deserialize>::deserialize(from)?;
            ($make)(inner).map_err(|e: &str| $crate::settings::__private::serde::de::Error::custom(e))
        }
    };
}
