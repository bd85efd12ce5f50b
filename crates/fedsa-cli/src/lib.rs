pub mod figure;
