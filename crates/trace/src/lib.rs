//! What is written down: the undo journal and the log of a run, as lines of JSON with one
//! versioned schema, appended as things happen.
//!
//! | module | owns |
//! |---|---|
//! | [`event`] | the schema |
//! | [`journal`] | changes, before they are made; and finding what was left behind |
//! | [`log`] | a run's actions with their reasons and outcomes |

pub mod event;
pub mod journal;
pub mod log;

pub use event::{Event, VERSION};
pub use journal::{FileJournal, Found, LeftBehind, open_own};
pub use log::{RunLog, create_private, put_aside, read_log};
