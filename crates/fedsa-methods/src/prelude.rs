//! The names that most programs need: `use fedsa_methods::prelude::*;`. It includes the engine's prelude.

pub use fedsa::prelude::*;

pub use crate::anderson::Anderson;
pub use crate::fedhsa::FedHsa;
pub use crate::fedlin::FedLin;
pub use crate::fedlsa::FedLsa;
pub use crate::fednl::FedNl;
pub use crate::scafflsa::Scafflsa;
pub use crate::scaffold::Scaffold;
pub use crate::shed::Shed;
