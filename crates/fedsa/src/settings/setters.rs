//! Setters of settings.

/// Functions `with_x` that set the key `x`. Settings may gain keys, so other crates cannot write them as literals.
#[macro_export]
macro_rules! setters {
    ($settings:ident { $($with:ident($key:ident: $of:ty) = $value:expr;)+ }) => {
        impl $settings {
            $(
                #[doc = concat!("The same settings with this `", stringify!($key), "`.")]
                #[must_use]
                #[allow(clippy::needless_update)]
                pub fn $with(self, $key: $of) -> Self {
                    Self { $key: $value, ..self }
                }
            )+
        }
    };
}
