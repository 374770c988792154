//! What mainline decides on small worlds.

use super::*;
