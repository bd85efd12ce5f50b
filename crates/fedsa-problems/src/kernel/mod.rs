//! The hot loops of these problems, with the same bits as the generic kernel ([`fedsa::kernel`]).

pub mod common_rows;
pub mod dense;
pub mod elementary;
pub mod gram;
pub mod lists;
pub mod margins;
pub mod rows;
pub mod symmetric;
pub mod td;
pub(crate) mod tiles;
pub mod unit_rows;
