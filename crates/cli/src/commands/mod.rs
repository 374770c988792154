//! One module per command: from validated arguments to results.

pub mod advise;
pub mod balance;
pub mod bench;
pub mod calibrate;
pub mod cell;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod lab;
pub mod machine;
pub mod manual;
pub mod measure;
pub mod memtoy;
pub mod migration;
pub mod pft;
pub mod policy;
mod privileges;
pub mod reproduce;
pub mod restore;
pub mod run;
pub mod shell;
mod silence;
pub mod simulate;
mod site;
pub mod status;
pub mod topology;
pub mod tracing;
