//! The names of parts of messages, and their properties.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Body;

/// Makes [`Part`] with the tags of its variants from one table.
macro_rules! parts {
    ($($(#[doc = $doc:literal])+ $name:ident = $tag:literal,)+) => {
        /// The name of a part of a message. It determines the part's forms, whether a codec may alter it, and its unit in the ledger.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Part {
            $($(#[doc = $doc])+ $name,)+
            /// A part of a method outside this crate ([`OutsidePart`]).
            Outside(OutsidePart),
        }

        impl Part {
            /// The parts of this crate.
            const OWN: &[Part] = &[$(Part::$name),+];

            /// Its number in messages: below 128 for the parts of this crate.
            pub fn tag(self) -> u8 {
                match self {
                    $(Part::$name => $tag,)+
                    Part::Outside(part) => part.tag,
                }
            }
        }
    };
}

parts! {
    /// The server's iterate `theta_t`; d numbers.
    Model = 1,
    /// A direction `v_c = (theta_{c,H} - theta_t) / E`, or the mean of several; d numbers.
    Direction = 2,
    /// An operator's value `g_c(theta_t, z)`, or the mean of several; d numbers.
    Operator = 3,
    /// The last round that counted an answer of the agent, -1 for none; one number. Only agents whose last answer did not count get it
    /// ([`crate::protocol::Protocol::is_acknowledged`]).
    Counted = 4,
    /// The agent's control variate `xi_c`; d numbers. A server node sends it to an agent that is out of step.
    Control = 5,
    /// The gradient of an agent's objective, or the mean of several; d numbers.
    Gradient = 7,
    /// A symmetric matrix, its lower triangle row by row; d (d + 1) / 2 numbers.
    Hessian = 8,
    /// Losses at several trial points, and related numbers; one number each.
    Losses = 9,
    /// A step that the server proposes; d numbers.
    Step = 10,
    /// Pairs of an index and a value that a method chose to send.
    Correction = 11,
    /// Bytes that a method packed itself.
    Packed = 12,
    /// Replaces an answer whose numbers are no longer finite; no numbers.
    Diverged = 13,
    /// A linear system: the matrix `A_c` row by row, then `b_c`; d (d + 1) numbers.
    System = 14,
    /// A product `A_c q`, or the mean of several; d numbers.
    Product = 15,
    /// The server's control variate c; d numbers.
    ServerControl = 16,
    /// Leading eigenvalues of an agent's Hessian: the Hessian's round, the index of the first eigenvalue, rho, then the eigenvalues.
    Eigenvalues = 17,
    /// The eigenvectors of these eigenvalues, one after the other; d numbers each, sparse if that is shorter and the server wants no matrices.
    Eigenvectors = 18,
    /// The round of the last renewal that the server decided on; one number.
    Renewal = 19,
    /// The Frobenius distances of a learned matrix from the agent's Hessian before and after the answer's correction; two numbers.
    Deviation = 22,
    /// A matrix `lambda v v^T`: the number lambda, then v; d + 1 numbers.
    RankOne = 23,
    /// Entries of a symmetric matrix at places that both ends know.
    Entries = 24,
    /// A symmetric matrix in bytes that a method packed itself.
    PackedMatrix = 25,
    /// The gradient of an agent's objective, outside codec and budget; d numbers.
    ExactGradient = 26,
    /// The bits per component by which each of an agent's eigenvectors is refined, packed by the method.
    Refinement = 27,
    /// The refining bits, packed by the method.
    Digits = 28,
    /// A matrix `lambda v v^T` in bytes that a method packed itself.
    PackedPair = 30,
    /// The trial step of a line search, from 1, at which the gradient is also wanted; one number.
    Trial = 31,
    /// An agent's masked numbers, packed ([`crate::secure`]).
    Masked = 32,
    /// The agents whose masked answers are in a sum: bit `c mod 8` of byte `c / 8` for agent c.
    Answered = 33,
    /// The seeds of an agent's masks that do not cancel in a sum.
    Seeds = 34,
    /// The logarithms of the weights of an agent's entries, up to a constant; d numbers.
    LogWeights = 35,
}

/// A part of a method outside this crate, with a number from 128 to 255. Both halves of the method use the same constant:
///
/// ```
/// use fedsa::message::{Form, OutsidePart, Part, Unit};
///
/// const MOMENTUM: Part = Part::Outside(OutsidePart::new(128, Form::Numbers, Unit::Vector, true));
/// assert!(MOMENTUM.may_be_encoded());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutsidePart {
    tag: u8,
    form: Form,
    unit: Unit,
    may_be_encoded: bool,
}

/// The forms that the content of a part may have ([`Body`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Form {
    /// Numbers. Readers get all of them ([`Body::Numbers`]).
    Numbers,
    /// Numbers that may be sent sparse if that is shorter. Readers get all of them.
    NumbersOrSparse,
    /// Numbers that may be sent sparse; readers get the sent form, and must read both.
    Either,
    /// Pairs of a place and a value ([`Body::Sparse`]).
    Sparse,
    /// Bytes that the method packed itself ([`Body::Packed`]).
    Packed,
}

impl OutsidePart {
    /// A part with the number `tag` in messages, its form, its unit in the ledger, and whether a codec may alter it (numbers only).
    ///
    /// # Panics
    /// When the tag is below 128, or `may_be_encoded` is set for content other than numbers; in a constant this is a compile error.
    pub const fn new(tag: u8, form: Form, unit: Unit, may_be_encoded: bool) -> Self {
        assert!(tag >= 128, "numbers below 128 belong to the parts of fedsa");
        assert!(!may_be_encoded || matches!(form, Form::Numbers | Form::NumbersOrSparse), "a codec encodes numbers");
        Self { tag, form, unit, may_be_encoded }
    }
}

/// The unit in which the ledger counts a part, in addition to its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// A vector of d components.
    Vector,
    /// One or more vectors of d components.
    Vectors,
    /// Single numbers.
    Scalars,
    /// A d x d matrix, or a correction of one.
    Matrix,
    /// Not counted: bookkeeping of the protocol.
    Nothing,
}

impl fmt::Display for Part {
    /// Its name in words, such as `server control`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Outside(part) = self {
            return write!(f, "part {}", part.tag);
        }
        let name = format!("{self:?}");
        let words = name.char_indices().map(|(i, c)| if i > 0 && c.is_uppercase() { format!(" {c}") } else { c.to_string() });
        f.write_str(&words.collect::<String>().to_lowercase())
    }
}

impl Part {
    /// The unit in which the ledger counts the part.
    pub fn unit(self) -> Unit {
        match self {
            Part::Model | Part::Direction | Part::Operator | Part::Control | Part::ServerControl => Unit::Vector,
            Part::Gradient | Part::ExactGradient | Part::Step | Part::Product | Part::LogWeights => Unit::Vector,
            Part::RankOne | Part::PackedPair => Unit::Vector,
            Part::Eigenvectors => Unit::Vectors,
            Part::Losses | Part::Eigenvalues | Part::Deviation => Unit::Scalars,
            Part::Hessian | Part::Correction | Part::System | Part::Entries | Part::PackedMatrix => Unit::Matrix,
            Part::Counted | Part::Packed | Part::Diverged => Unit::Nothing,
            Part::Renewal | Part::Refinement | Part::Digits | Part::Trial => Unit::Nothing,
            Part::Masked | Part::Answered | Part::Seeds => Unit::Nothing,
            Part::Outside(part) => part.unit,
        }
    }

    /// The forms that its content may have.
    pub fn form(self) -> Form {
        match self {
            Part::Packed | Part::PackedMatrix | Part::Refinement | Part::Digits | Part::PackedPair => Form::Packed,
            Part::Masked | Part::Answered | Part::Seeds => Form::Packed,
            Part::Correction => Form::Sparse,
            Part::Operator | Part::Product => Form::NumbersOrSparse,
            Part::System | Part::Hessian | Part::Entries | Part::Eigenvectors => Form::Either,
            Part::Outside(part) => part.form,
            _ => Form::Numbers,
        }
    }

    /// Whether its content is packed by the method.
    pub fn is_packed(self) -> bool {
        self.form() == Form::Packed
    }

    /// Whether its content may be sent in this form.
    pub fn takes(self, body: &Body) -> bool {
        match body {
            Body::Numbers(_) => !matches!(self.form(), Form::Sparse | Form::Packed),
            Body::Sparse { .. } => !matches!(self.form(), Form::Numbers | Form::Packed),
            Body::Packed(_) => self.is_packed(),
        }
    }

    /// Expands content to the form that readers get; called on messages from a network after their check.
    pub(crate) fn settle(self, body: &mut Body) {
        if self.form() == Form::NumbersOrSparse {
            body.write_out();
        }
    }

    /// Whether a codec may alter the part, and the link's bit budget applies to it. All other parts are sent exactly, regardless of the
    /// budget.
    pub fn may_be_encoded(self) -> bool {
        use Part::{Direction, Gradient, Model, Operator, Product, Step, System};
        match self {
            Part::Outside(part) => part.may_be_encoded,
            known => matches!(known, Model | Direction | Operator | Gradient | Step | System | Product),
        }
    }

    /// The part with this number in messages: one of this crate, or one of `outside`.
    pub(super) fn of_tag(tag: u8, outside: &[Part]) -> Option<Part> {
        Part::OWN.iter().chain(outside).copied().find(|part| part.tag() == tag)
    }
}
