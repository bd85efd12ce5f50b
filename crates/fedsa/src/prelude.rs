//! What most programs need, in one `use`: `use fedsa::prelude::*;`.

pub use crate::cancel::Cancel;
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::federation::{AnswerRules, Description, Faults, Federation, MissingAnswers};
pub use crate::kernel::Isa;
pub use crate::message::Part;
pub use crate::methods::anderson::Anderson;
pub use crate::methods::fedhsa::FedHsa;
pub use crate::methods::fedlin::FedLin;
pub use crate::methods::fedlsa::FedLsa;
pub use crate::methods::fednl::FedNl;
pub use crate::methods::scafflsa::Scafflsa;
pub use crate::methods::scaffold::Scaffold;
pub use crate::methods::shed::Shed;
pub use crate::methods::{self, MethodSettings};
pub use crate::metrics::Metrics;
pub use crate::node::{ClientNode, ServerNode, Todo};
pub use crate::problem::file::ArrayFile;
pub use crate::problem::garnet::{Garnet, Heterogeneity};
pub use crate::problem::linear::LinearSystems;
pub use crate::problem::{Field, NoFiles, Problem, ProblemSettings};
pub use crate::record::{Ledger, Outcome, OutputRule};
pub use crate::round::Run;
pub use crate::sampling::{Law, Sampling};
pub use crate::session::{Carrier, Nodes, Quorum, Record, Recorded, Session, Transport, Until};
pub use crate::uplink::Uplink;
