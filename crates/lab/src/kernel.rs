//! Kernel images: unpacked from a distribution's package into the cache folder, never
//! installed.
//!
//! `scripts/fetch-kernel` lays a kernel out as `CACHE/kernels/RELEASE/{vmlinuz,modules/*.ko}`,
//! the modules already decompressed and only those the guest needs before it sees the host's
//! files.

use std::path::{Path, PathBuf};

use crate::LabError;

/// Modules that bring the host's files into the guest, in the order they are loaded. What is
/// built into a kernel has no file and is skipped. `scripts/fetch-kernel` has the same list.
/// Debian's 6.1 has all of virtio as modules, 6.12 has it built in.
pub const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_console",
    "netfs",
    "fscache",
    "9pnet",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it is called: its release, or the image's file name.
    pub name: String,
    /// The compressed image.
    pub image: PathBuf,
    /// Module files that exist, in loading order.
    pub modules: Vec<PathBuf>,
}

/// The folder for kernels and results that can be fetched or computed again:
/// `$NUMAHERD_CACHE`, else `$XDG_CACHE_HOME/numaherd`, else `~/.cache/numaherd`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("NUMAHERD_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("numaherd")))
        .or_else(|| from("HOME").map(|dir| dir.join(".cache/numaherd")))
        .unwrap_or_else(|| PathBuf::from("/var/cache/numaherd"))
}

impl Kernel {
    /// Finds a kernel: by the path of an image, by (the beginning of) a release in the cache
    /// folder, or, without a name, the newest release there. Special builds (`sched-ext-…`) do not
    /// begin with a number and are taken only by name.
    ///
    /// # Errors
    /// [`LabError::Kernel`] naming the folder that was searched.
    pub fn find(name: Option<&str>, cache: &Path) -> Result<Kernel, LabError> {
        if let Some(path) = name.map(Path::new).filter(|path| path.is_file()) {
            let dir = path.parent().unwrap_or(Path::new("."));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(Kernel {
                name,
                image: path.into(),
                modules: modules_in(&dir.join("modules")),
            });
        }
        let folder = cache.join("kernels");
        let mut releases: Vec<String> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().join("vmlinuz").is_file())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|release| match name {
                Some(name) => starts_with_release(release, name),
                None => release.starts_with(|c: char| c.is_ascii_digit()),
            })
            .collect();
        releases.sort_by_key(|release| version_key(release));
        let release = releases.pop().ok_or_else(|| LabError::Kernel {
            problem: match name {
                Some(name) => format!("no kernel '{name}' in {}", folder.display()),
                None => format!("no kernel in {}", folder.display()),
            },
        })?;
        let dir = folder.join(&release);
        Ok(Kernel {
            image: dir.join("vmlinuz"),
            modules: modules_in(&dir.join("modules")),
            name: release,
        })
    }
}

/// `6.1` must not match `6.12.9`.
fn starts_with_release(release: &str, name: &str) -> bool {
    release.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The numbers in a release, so that 6.12 sorts after 6.1 and 6.9.
fn version_key(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn modules_in(dir: &Path) -> Vec<PathBuf> {
    MODULES
        .iter()
        .map(|name| dir.join(format!("{name}.ko")))
        .filter(|path| path.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_wins_and_a_prefix_ends_at_a_number() {
        let cache = tempfile::tempdir().unwrap();
        for release in ["6.1.0-50-amd64", "6.12.9+deb12-amd64", "6.9.1", "sched-ext-6.13"] {
            let dir = cache.path().join("kernels").join(release);
            std::fs::create_dir_all(dir.join("modules")).unwrap();
            std::fs::write(dir.join("vmlinuz"), "").unwrap();
            std::fs::write(dir.join("modules/9p.ko"), "").unwrap();
        }
        let found = |name| Kernel::find(name, cache.path()).unwrap().name;
        assert_eq!(found(None), "6.12.9+deb12-amd64");
        assert_eq!(found(Some("6.1")), "6.1.0-50-amd64");
        assert_eq!(found(Some("sched-ext")), "sched-ext-6.13");
        let error = Kernel::find(Some("5"), cache.path()).unwrap_err().to_string();
        assert!(error.contains("no kernel '5'") && error.contains("fetch-kernel"), "{error}");
        assert_eq!(Kernel::find(None, cache.path()).unwrap().modules.len(), 1);
    }
}
