//! Common imports: `use fedsa::prelude::*;`.

pub use crate::cancel::Cancel;
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::federation::{AnswerRules, Description, Faults, Federation, MissingAnswers};
pub use crate::kernel::Isa;
pub use crate::message::Part;
pub use crate::method::MethodSettings;
pub use crate::metrics::Metrics;
pub use crate::node::{ClientNode, ServerNode, Todo};
pub use crate::problem::{Field, Problem};

pub use crate::record::{Ledger, Outcome, OutputRule};
pub use crate::round::Run;
pub use crate::sampling::{Law, Sampling};
pub use crate::session::{Carrier, Nodes, Quorum, Record, Recorded, Session, StoppingCriteria, Transport};
pub use crate::uplink::{Aggregation, Uplink};
