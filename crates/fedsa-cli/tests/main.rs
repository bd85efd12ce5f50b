//! All tests that run the program, in one program, so that the crates are linked once.

#[cfg(unix)]
mod agents;
mod bad_input;
mod check_values;
mod checks;
mod circles;
mod common;
mod config_properties;
mod crate_rules;
mod data;
mod evaluation;
mod feature_choice;
mod feature_products;
mod fit;
mod fit_columns;
mod fit_models;
#[cfg(unix)]
mod folders;
mod imports;
mod json_schema;
mod layers;
mod lengths;
mod log_forms;
mod numpy;
mod outside;
#[cfg(unix)]
mod parts;
mod pictures;
mod policy_value;
mod program;
#[cfg(unix)]
mod purposes;
mod reference;
#[cfg(unix)]
mod resume;
mod table_names;
mod tables;
mod theory;
mod tune;
mod type_names;
mod value_pictures;
