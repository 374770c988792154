//! The agent: the guest's end of the wire. Starts commands, carries their input and output,
//! reports how they ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::wire::{Kind, ToGuest, ToHost, read_frame, write_frame, write_message};

/// How long output is waited for after a command ended: a grandchild may hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

type Port = Arc<Mutex<File>>;

/// Serves the host until it says to shut down. `charge` switches charging on.
///
/// # Errors
/// The port is missing or breaks.
pub fn serve(mut charge: impl FnMut()) -> io::Result<()> {
    let path = find_port(Path::new("/sys/class/virtio-ports"), Path::new("/dev"))?;
    let mut from = OpenOptions::new().read(true).write(true).open(path)?;
    let to: Port = Arc::new(Mutex::new(from.try_clone()?));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_string();
    say(&to, &ToHost::Ready { release })?;
    let mut stdin: Option<ChildStdin> = None;
    while let Some((kind, payload)) = read_frame(&mut from)? {
        match kind {
            Kind::Stdin if payload.is_empty() => stdin = None,
            // A command that does not read its input is no error.
            Kind::Stdin => drop(stdin.as_mut().map(|pipe| pipe.write_all(&payload))),
            Kind::Message => match serde_json::from_slice(&payload)? {
                ToGuest::Exec { argv, env, cwd } => stdin = exec(&to, &argv, env, &cwd)?,
                ToGuest::Charge => {
                    charge();
                    say(&to, &ToHost::Charging)?;
                }
                ToGuest::Shutdown => return Ok(()),
            },
            Kind::Stdout | Kind::Stderr => {}
        }
    }
    Ok(())
}

fn find_port(class: &Path, dev: &Path) -> io::Result<PathBuf> {
    for entry in std::fs::read_dir(class)?.flatten() {
        let name = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == "numaherd" {
            return Ok(dev.join(entry.file_name()));
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no virtio port named numaherd: not inside a lab"))
}

fn say(to: &Port, message: &ToHost) -> io::Result<()> {
    write_message(&mut *to.lock().unwrap_or_else(PoisonError::into_inner), message)
}

fn exec(
    to: &Port,
    argv: &[String],
    env: Vec<(String, String)>,
    cwd: &str,
) -> io::Result<Option<ChildStdin>> {
    let [program, args @ ..] = argv else {
        say(to, &ToHost::NotStarted { code: 127, problem: "no command".into() })?;
        return Ok(None);
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env);
    // A folder that the guest does not have is no reason not to run.
    command.current_dir(if Path::new(cwd).is_dir() { cwd } else { "/" });
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(mut child) => {
            let stdin = child.stdin.take();
            let to = Arc::clone(to);
            thread::spawn(move || follow(&to, child));
            Ok(stdin)
        }
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            say(to, &ToHost::NotStarted { code, problem: format!("{program}: {error}") })?;
            Ok(None)
        }
    }
}

/// Carries the command's output and says how it ended.
fn follow(to: &Port, mut child: Child) {
    let outputs = [
        child.stdout.take().map(|pipe| carry(to, Kind::Stdout, pipe)),
        child.stderr.take().map(|pipe| carry(to, Kind::Stderr, pipe)),
    ];
    let code = match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => 255,
    };
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while waited < OUTPUT_GRACE && outputs.iter().flatten().any(|thread| !thread.is_finished()) {
        thread::sleep(step);
        waited += step;
    }
    // The host notices a broken port itself.
    let _ = say(to, &ToHost::Exited { code });
}

fn carry(to: &Port, kind: Kind, mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<()> {
    let to = Arc::clone(to);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length) = pipe.read(&mut buffer) {
            if length == 0 {
                return;
            }
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            if write_frame(&mut *to, kind, &buffer[..length]).is_err() {
                return;
            }
        }
    })
}
