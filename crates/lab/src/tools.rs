//! The programs and libraries of the host that a lab uses: where they are, or which package
//! brings them.

use std::path::{Path, PathBuf};

use crate::LabError;

/// What a lab needs of its host.
#[derive(Clone, Debug)]
pub struct Tools {
    /// `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// A statically linked busybox, the guest's first program.
    pub busybox: PathBuf,
    /// libfaketime, which dilates QEMU's clock.
    pub faketime: PathBuf,
    /// `setsid`, which gives QEMU a session of its own.
    pub setsid: PathBuf,
    /// `setpriv`, which ties QEMU's life to ours.
    pub setpriv: PathBuf,
}

impl Tools {
    /// Finds all of them.
    ///
    /// # Errors
    /// [`LabError::MissingTool`] for the first that is missing, with its package.
    pub fn find() -> Result<Tools, LabError> {
        let faketime: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
            .iter()
            .flat_map(|lib| [format!("{lib}/x86_64-linux-gnu"), (*lib).to_string()])
            .map(|dir| Path::new(&dir).join("faketime/libfaketimeMT.so.1"))
            .collect();
        Ok(Tools {
            qemu: on_path("qemu-system-x86_64", "qemu-system-x86")?,
            busybox: on_path("busybox", "busybox-static")?,
            faketime: first(faketime).ok_or_else(|| missing("libfaketimeMT.so.1", "faketime"))?,
            setsid: on_path("setsid", "util-linux")?,
            setpriv: on_path("setpriv", "util-linux")?,
        })
    }
}

fn on_path(program: &str, package: &str) -> Result<PathBuf, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    let found = first(std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)));
    found.ok_or_else(|| missing(program, package))
}

fn first(paths: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    paths.into_iter().find(|path| path.is_file())
}

fn missing(what: &str, package: &str) -> LabError {
    LabError::MissingTool { what: what.into(), package: package.into() }
}
