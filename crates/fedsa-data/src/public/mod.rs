//! Public data sets: where they come from, checksums, copies in the user's cache.
//!
//! [`registry`] lists the sets. [`verify`] compares what is on the disk with it. [`fetch`] gets files from their canonical
//! source, from a mirror, or from a folder.

pub(crate) mod curl;
pub mod fetch;
pub mod registry;
pub mod verify;

pub use registry::{PublicFile, PublicSet};
