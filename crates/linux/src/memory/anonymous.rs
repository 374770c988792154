//! How much memory of programs' own there is, and how much of it in huge pages: `/proc/meminfo`.
//!
//! What came of late tells what those have that began of late, before anybody has looked at any of it: a scan of
//! base pages costs hundreds of times as many faults.

use std::path::Path;

use numaherd_model::Bytes;

use crate::file;

/// Memory of programs' own, over the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// All of it.
    pub all: Bytes,
    /// What is in huge pages.
    pub huge: Bytes,
}

impl Anonymous {
    /// What there is now; none where the kernel does not say.
    #[must_use]
    pub fn read(root: &Path) -> Anonymous {
        let text = file::text_if_present(&root.join("proc/meminfo")).ok().flatten();
        let text = text.unwrap_or_default();
        let bytes = |name| Bytes(file::kib(&text, name).unwrap_or(0) << 10);
        Anonymous { all: bytes("AnonPages:"), huge: bytes("AnonHugePages:") }
    }

    /// What came since `earlier` in base pages; none if more came in huge ones, or if less came in all than tells
    /// anything.
    #[must_use]
    pub fn base_since(&self, earlier: &Anonymous) -> Bytes {
        let more = |now: Bytes, then: Bytes| now.0.saturating_sub(then.0);
        let all = more(self.all, earlier.all);
        let huge = more(self.huge, earlier.huge).min(all);
        let tells = all >= TELLS.0 && huge * 2 <= all;
        Bytes(if tells { all - huge } else { 0 })
    }
}

/// Less than this is what any program has, whatever it goes on with. Guessed.
const TELLS: Bytes = Bytes(16 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_in_base_pages_or_not() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Anonymous::read(root.path()), Anonymous::default());
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let put = |all: u64, huge: u64| {
            let text = format!("AnonPages: {all} kB\nAnonHugePages:   {huge} kB\n");
            std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
            Anonymous::read(root.path())
        };
        let first = put(10 << 10, 4 << 10);
        assert_eq!(first, Anonymous { all: Bytes(10 << 20), huge: Bytes(4 << 20) });
        let came = |all: u64, huge: u64| {
            put((10 + all) << 10, (4 + huge) << 10).base_since(&first).0 >> 20
        };
        assert_eq!([came(15, 0), came(16, 0), came(100, 40), came(100, 60)], [0, 16, 60, 0]);
        assert_eq!(put(0, 0).base_since(&first), Bytes(0));
    }
}
