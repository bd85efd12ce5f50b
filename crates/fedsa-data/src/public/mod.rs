//! Public data sets: sources, checksums, and copies in the user's cache.
//!
//! [`registry`] lists the sets. [`verify`] compares files on disk with the list. [`fetch`] downloads files from their canonical source
//! or a mirror, or copies them from a folder.

pub(crate) mod curl;
pub mod fetch;
pub mod registry;
pub mod verify;

pub use registry::{PublicFile, PublicSet};
