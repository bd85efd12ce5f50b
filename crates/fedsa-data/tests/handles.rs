//! Handles of files may be kept anywhere and shared between threads.

use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_data::linear_model::LinearModel;
use fedsa_data::logs::FileLog;
use fedsa_data::public::PublicSet;
use fedsa_data::public::fetch::Fetcher;
use fedsa_data::table::Table;
use fedsa_data::trace::Trace;
use fedsa_data::weights::{FittedModel, ValueModel};

fn is_owned<T: Send + Sync + 'static>() {}

#[test]
fn handles_are_owned_and_shared() {
    is_owned::<DiskFiles>();
    is_owned::<Places>();
    is_owned::<FileLog>();
    is_owned::<Table>();
    is_owned::<Trace>();
    is_owned::<FittedModel>();
    is_owned::<ValueModel>();
    is_owned::<LinearModel>();
    is_owned::<Fetcher>();
    is_owned::<PublicSet>();
}
