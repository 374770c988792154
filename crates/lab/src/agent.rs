//! The agent: the guest's end of the wire. Starts commands, carries their input and output,
//! reports how they ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::terminal::Terminal;
use crate::wire::{Kind, TerminalSize, ToGuest, ToHost, read_frame, write_frame, write_message};

/// How long output is waited for after a command ended and nothing arrives: a grandchild may hold
/// the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// And however much arrives: what was in the pipe has come by then, and who goes on writing is left behind.
const OUTPUT_MOST: Duration = Duration::from_secs(10);

/// How often the host hears that what was written to shares is still being carried over.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(20);

/// Ctrl-D: what a terminal's user types at the end of input.
const END_OF_INPUT: u8 = 4;

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
    let mut stdin: Option<Input> = None;
    while let Some((kind, payload)) = read_frame(&mut from)? {
        match kind {
            Kind::Stdin if payload.is_empty() => stdin = stdin.and_then(Input::end),
            // A command that does not read its input is no error.
            Kind::Stdin => drop(stdin.as_mut().map(|input| input.write_all(&payload))),
            Kind::Message => match serde_json::from_slice(&payload)? {
                ToGuest::Exec { argv, env, cwd, shared, terminal } => {
                    stdin = match folder(&cwd, shared) {
                        Ok(folder) => exec(&to, &argv, env, folder, terminal)?,
                        Err(problem) => {
                            say(&to, &ToHost::NotStarted { code: 126, problem })?;
                            None
                        }
                    };
                }
                // A size that cannot be set leaves the old one.
                ToGuest::Resize(size) => drop(stdin.as_ref().map(|input| input.resize(size))),
                ToGuest::Charge => {
                    charge();
                    say(&to, &ToHost::Charging)?;
                }
                ToGuest::Shutdown => {
                    carry_over(&to, rustix::fs::sync);
                    return Ok(());
                }
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

/// Where a command's input goes.
enum Input {
    Pipe(ChildStdin),
    Terminal(Terminal),
}

impl Input {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Input::Pipe(pipe) => pipe.write_all(bytes),
            Input::Terminal(terminal) => terminal.write_all(bytes),
        }
    }

    fn resize(&self, size: TerminalSize) -> io::Result<()> {
        match self {
            Input::Pipe(_) => Ok(()),
            Input::Terminal(terminal) => terminal.resize(size),
        }
    }

    /// A pipe is closed; a terminal stays and gets the character that means it.
    fn end(self) -> Option<Input> {
        match self {
            Input::Pipe(_) => None,
            Input::Terminal(mut terminal) => {
                let _ = terminal.write_all(&[END_OF_INPUT]);
                Some(Input::Terminal(terminal))
            }
        }
    }
}

/// Where a command runs. A folder that the guest does not have is no reason not to run, unless it
/// was to be shared: what is written elsewhere is lost.
fn folder(cwd: &str, shared: bool) -> Result<&Path, String> {
    match Path::new(cwd) {
        folder if folder.is_dir() => Ok(folder),
        _ if shared => Err(format!("the shared folder {cwd} is not in the guest")),
        _ => Ok(Path::new("/")),
    }
}

fn exec(
    to: &Port,
    argv: &[String],
    env: Vec<(String, String)>,
    folder: &Path,
    size: Option<TerminalSize>,
) -> io::Result<Option<Input>> {
    let [program, args @ ..] = argv else {
        say(to, &ToHost::NotStarted { code: 127, problem: "no command".into() })?;
        return Ok(None);
    };
    let terminal = size.map(Terminal::open).transpose()?;
    let mut command = Command::new(if terminal.is_some() { "setsid" } else { program });
    if let Some(terminal) = &terminal {
        // A session of its own, with the terminal as its controlling one.
        command.arg("--ctty").arg("--wait").arg(program);
        let [stdin, stdout, stderr] = terminal.command_side()?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
    } else {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    command.args(args).env_clear().envs(env);
    command.current_dir(folder);
    let spawned = command.spawn();
    // Its ends of the terminal must be the child's alone, or its output never ends.
    drop(command);
    match spawned {
        Ok(mut child) => {
            let outputs = match &terminal {
                Some(terminal) => vec![carry(to, Kind::Stdout, terminal.reader()?)],
                None => [
                    child.stdout.take().map(|pipe| carry(to, Kind::Stdout, pipe)),
                    child.stderr.take().map(|pipe| carry(to, Kind::Stderr, pipe)),
                ]
                .into_iter()
                .flatten()
                .collect(),
            };
            let stdin = child.stdin.take().map(Input::Pipe);
            let to = Arc::clone(to);
            thread::spawn(move || follow(&to, child, &outputs));
            Ok(stdin.or(terminal.map(Input::Terminal)))
        }
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            say(to, &ToHost::NotStarted { code, problem: format!("{program}: {error}") })?;
            Ok(None)
        }
    }
}

/// Says how the command ended, once its output has been carried.
fn follow(to: &Port, mut child: Child, outputs: &[Carried]) {
    let code = match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => 255,
    };
    let step = Duration::from_millis(10);
    let steps = || outputs.iter().map(|output| output.steps.load(Ordering::Relaxed));
    let (mut waited, mut before) = (Duration::ZERO, 0);
    let ended = Instant::now();
    let goes_on = |waited| waited < OUTPUT_GRACE && ended.elapsed() < OUTPUT_MOST;
    while goes_on(waited) && outputs.iter().any(|output| !output.thread.is_finished()) {
        thread::sleep(step);
        let now = steps().sum();
        // A piece that the host takes its time with is still arriving.
        let on_its_way = steps().any(|steps| steps % 2 == 1);
        waited = if on_its_way || now != before { Duration::ZERO } else { waited + step };
        before = now;
    }
    // The host notices a broken port itself.
    let _ = say(to, &ToHost::Exited { code });
}

/// An output on its way to the host.
struct Carried {
    thread: thread::JoinHandle<()>,
    /// Two for each piece: when it is read, and when the host has it.
    steps: Arc<AtomicUsize>,
}

fn carry(to: &Port, kind: Kind, mut pipe: impl Read + Send + 'static) -> Carried {
    let (to, steps) = (Arc::clone(to), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&steps);
    let thread = thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length) = pipe.read(&mut buffer) {
            if length == 0 {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            if write_frame(&mut *to, kind, &buffer[..length]).is_err() {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    Carried { thread, steps }
}

/// Has what was written to shares carried over, and says all the while that it goes on: the host ends a guest of which it
/// hears nothing.
fn carry_over(to: &Port, sync: impl FnOnce() + Send + 'static) {
    let (done, over) = channel();
    thread::spawn(move || {
        sync();
        // We wait for it.
        let _ = done.send(());
    });
    let message = loop {
        match over.recv_timeout(HEARTBEAT) {
            Ok(()) => break ToHost::Written,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
                // A host that does not listen does not wait either.
                let _ = say(to, &ToHost::Writing { kib: unwritten(&meminfo) });
            }
        }
    };
    let _ = say(to, &message);
}

/// KiB of files that are in memory only, or on their way: other than in shares there are none in the guest.
fn unwritten(meminfo: &str) -> u64 {
    let kib = |line: &str| line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    let wanted = |line: &&str| line.starts_with("Dirty:") || line.starts_with("Writeback:");
    meminfo.lines().filter(wanted).filter_map(kib).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_files_are_carried_over_the_host_hears_that_it_goes_on_and_then_that_it_is_done() {
        let (mut from, port) = io::pipe().unwrap();
        let to: Port = Arc::new(Mutex::new(File::from(std::os::fd::OwnedFd::from(port))));
        carry_over(&to, || thread::sleep(10 * HEARTBEAT));
        drop(to);
        let mut said = Vec::new();
        while let Some((Kind::Message, bytes)) = read_frame(&mut from).unwrap() {
            said.push(serde_json::from_slice::<ToHost>(&bytes).unwrap());
        }
        assert_eq!(said.pop(), Some(ToHost::Written));
        let writing = |message: &ToHost| matches!(message, ToHost::Writing { .. });
        assert!(!said.is_empty() && said.iter().all(writing), "{said:?}");
    }

    #[test]
    fn what_is_left_is_dirty_or_on_its_way() {
        let meminfo = "Dirty:      20480 kB\nWriteback:  1024 kB\nWritebackTmp:  7 kB\n";
        assert_eq!((unwritten(meminfo), unwritten("")), (21504, 0));
    }

    #[test]
    fn output_is_whole_as_long_as_it_arrives_after_the_command_ended() {
        let (mut from, port) = io::pipe().unwrap();
        let to: Port = Arc::new(Mutex::new(File::from(std::os::fd::OwnedFd::from(port))));
        let script = "(for i in 1 2 3 4 5 6 7 8 9 a b c; do sleep 0.1; echo $i; done) & exit 3";
        let argv = ["sh", "-c", script].map(String::from);
        exec(&to, &argv, std::env::vars().collect(), Path::new("/"), None).unwrap();
        let mut text = Vec::new();
        let end = loop {
            match read_frame(&mut from).unwrap().unwrap() {
                (Kind::Message, bytes) => break serde_json::from_slice::<ToHost>(&bytes).unwrap(),
                (_, bytes) => text.extend(bytes),
            }
        };
        assert_eq!(end, ToHost::Exited { code: 3 });
        assert_eq!(text, b"1\n2\n3\n4\n5\n6\n7\n8\n9\na\nb\nc\n");
    }

    #[test]
    fn a_missing_folder_is_the_root_unless_it_was_to_be_shared() {
        let root = Path::new("/");
        assert_eq!(folder("/no/such/folder", false), Ok(root));
        assert!(folder("/no/such/folder", true).unwrap_err().contains("/no/such/folder"));
        assert_eq!(folder("/", true), Ok(root));
    }
}
