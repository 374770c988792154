//! One booted machine: start it, run commands in it, end it.
//!
//! Nothing outlives a [`Guest`]: dropping it ends QEMU and removes its files, and QEMU is told
//! to die with the thread that started it, should that be killed.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::charge::PluginConfig;
use crate::counters::{CounterFile, Counters, NodeMap};
use crate::qemu::{Files, arguments};
use crate::tools::Tools;
use crate::wire::{Kind, TerminalSize, ToGuest, ToHost, read_frame, write_frame, write_message};
use crate::{Kernel, LabError, Machine, firmware, initramfs, standing};

mod ending;

/// How long a boot may take; a loaded host needs a minute.
const BOOT_PATIENCE: Duration = Duration::from_secs(240);
/// The plugin's counters, in a folder of their own, which the guest sees.
const STATS: &str = "counters/stats";
/// Of a lab's temporary folder, before the launcher's pid.
const PREFIX: &str = "numaherd-lab-";
/// How often interrupts and deadlines are looked at.
const TICK: Duration = Duration::from_millis(50);

/// A folder of the host that the guest may write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(pub PathBuf);

/// What to boot, and how.
#[derive(Clone, Debug)]
pub struct BootOptions {
    /// The machine.
    pub machine: Machine,
    /// The kernel.
    pub kernel: Kernel,
    /// The latency plugin. A machine without distance needs it only to keep QEMU 7.2 from running
    /// stale code.
    pub plugin: Option<PathBuf>,
    /// Whether memory is slower the farther it is.
    pub distance: bool,
    /// Real seconds per guest second.
    pub dilation: f64,
    /// More words for the kernel's command line.
    pub append: Option<String>,
    /// Folders the guest may write to.
    pub shares: Vec<Share>,
    /// Command that serves as the agent, in the guest.
    pub agent: Vec<String>,
    /// End it after this long.
    pub timeout: Option<Duration>,
    /// Set by a signal handler: end it.
    pub interrupted: Arc<AtomicBool>,
    /// Where to keep the console's log if the guest dies.
    pub log_dir: PathBuf,
}

/// A command for the guest.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: String,
    /// A terminal for it, of this size; its output is all standard output then.
    pub terminal: Option<TerminalSize>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, 128 + signal, or 126 and 127 as a shell has them.
    pub code: i32,
    /// Why it could not be started, if it could not.
    pub not_started: Option<String>,
}

/// Which output a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A booted machine.
pub struct Guest {
    child: Child,
    to: Arc<Mutex<UnixStream>>,
    from: Receiver<(Kind, Vec<u8>)>,
    counters: Option<CounterFile>,
    charged_since: Instant,
    dilation: f64,
    release: String,
    dir: TempDir,
    deadline: Option<(Instant, u64)>,
    interrupted: Arc<AtomicBool>,
    log_dir: PathBuf,
    shares: Vec<Share>,
    /// For the next command.
    input: Option<Box<dyn Read + Send>>,
}

impl Guest {
    /// Boots a machine and waits until its agent is there.
    ///
    /// # Errors
    /// Something is missing, or the guest does not come up; the message says what to do.
    pub fn boot(options: &BootOptions, tools: &Tools) -> Result<Guest, LabError> {
        sweep(&std::env::temp_dir(), Path::new("/proc"), Path::new("/dev/shm"));
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir();
        let dir = dir.map_err(LabError::io("cannot make a temporary folder"))?;
        let listener = UnixListener::bind(dir.path().join("agent"))
            .and_then(|l| l.set_nonblocking(true).map(|()| l))
            .map_err(LabError::io("cannot listen for the guest"))?;
        let child = start_qemu(options, tools, dir.path())?;
        let (_, from) = channel();
        let deadline = options.timeout.map(|t| (Instant::now() + t, t.as_secs()));
        // Until the agent connects, the guest talks to nobody.
        let (nobody, _) = UnixStream::pair().map_err(LabError::io("cannot make a socket"))?;
        let mut guest = Guest {
            child,
            to: Arc::new(Mutex::new(nobody)),
            from,
            counters: None,
            charged_since: Instant::now(),
            dilation: options.dilation,
            release: String::new(),
            dir,
            deadline,
            interrupted: Arc::clone(&options.interrupted),
            log_dir: options.log_dir.clone(),
            shares: options.shares.clone(),
            input: None,
        };
        guest.connect(&listener)?;
        let ready = guest.wait_message(Some(BOOT_PATIENCE), &mut |_, _| {})?;
        let ToHost::Ready { release } = ready else {
            return Err(LabError::Agent { problem: format!("it said {ready:?} first") });
        };
        guest.release = release;
        if options.distance {
            guest.start_charging()?;
        }
        Ok(guest)
    }

    /// The kernel's release.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What the latency plugin counts; `None` on a machine without distance.
    #[must_use]
    pub fn counters(&self) -> Option<&CounterFile> {
        self.counters.as_ref()
    }

    /// What was counted since charging began, as of now; `None` on a machine without distance.
    ///
    /// # Errors
    /// The plugin's file cannot be read.
    pub fn counted(&self) -> Result<Option<Counters>, LabError> {
        let Some(file) = &self.counters else { return Ok(None) };
        let mut now = file.now().map_err(LabError::io("cannot read the plugin's counters"))?;
        let guest = self.charged_since.elapsed().as_secs_f64() / self.dilation;
        now.guest_ns = (guest * 1e9) as u64;
        Ok(Some(now))
    }

    /// Runs a command to its end; its output is handed over as it comes.
    ///
    /// # Errors
    /// The guest dies, the time is over, or the user interrupts.
    pub fn exec(
        &mut self,
        exec: &Exec,
        output: &mut dyn FnMut(Output, &[u8]),
    ) -> Result<Exit, LabError> {
        let Exec { argv, env, cwd, terminal } = exec.clone();
        let shared = self.shares.iter().any(|share| share.0 == Path::new(&cwd));
        self.say(&ToGuest::Exec { argv, env, cwd, shared, terminal })?;
        // Only now: what comes before its command is nobody's input.
        if let Some(reader) = self.input.take() {
            carry_input(reader, Arc::clone(&self.to));
        }
        let answer = self.wait_message(None, output).inspect_err(|error| {
            if matches!(error, LabError::Interrupted | LabError::Timeout { .. }) {
                self.shut_down_in_haste();
            }
        });
        match answer? {
            ToHost::Exited { code } => Ok(Exit { code, not_started: None }),
            ToHost::NotStarted { code, problem } => Ok(Exit { code, not_started: Some(problem) }),
            other => Err(LabError::Agent { problem: format!("it said {other:?} to a command") }),
        }
    }

    /// Feeds the next command's standard input from `reader`, in a thread of its own.
    pub fn feed(&mut self, reader: impl Read + Send + 'static) {
        self.input = Some(Box::new(reader));
    }

    /// Tells the running command's terminal its new size; usable from another thread.
    pub fn resizer(&self) -> impl Fn(TerminalSize) + Send + 'static {
        let to = Arc::clone(&self.to);
        move |size| {
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            // A guest that is gone is noticed by whoever waits for it.
            let _ = write_message(&mut *to, &ToGuest::Resize(size));
        }
    }

    fn say(&self, message: &ToGuest) -> Result<(), LabError> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        write_message(&mut *to, message).map_err(LabError::io("cannot talk to the guest"))
    }

    fn connect(&mut self, listener: &UnixListener) -> Result<(), LabError> {
        let failed = || LabError::io("cannot talk to the guest");
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.check_alive()?,
                Err(e) => return Err(failed()(e)),
            }
            thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false).map_err(failed())?;
        let mut reader = stream.try_clone().map_err(failed())?;
        let (sender, from) = channel();
        thread::spawn(move || {
            while let Ok(Some(frame)) = read_frame(&mut reader) {
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        self.to = Arc::new(Mutex::new(stream));
        self.from = from;
        Ok(())
    }

    fn wait_message(
        &mut self,
        patience: Option<Duration>,
        output: &mut dyn FnMut(Output, &[u8]),
    ) -> Result<ToHost, LabError> {
        let begin = Instant::now();
        loop {
            match self.from.recv_timeout(TICK) {
                Ok((Kind::Stdout, bytes)) => output(Output::Stdout, &bytes),
                Ok((Kind::Stderr, bytes)) => output(Output::Stderr, &bytes),
                Ok((Kind::Message, bytes)) => {
                    return serde_json::from_slice(&bytes)
                        .map_err(|e| LabError::Agent { problem: e.to_string() });
                }
                Ok((Kind::Stdin, _)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // QEMU closed the port: it is ending, and its status says why.
                    thread::sleep(TICK);
                    self.check_alive()?;
                    return Err(self.died("it closed the connection".into()));
                }
            }
            self.check_alive()?;
            if patience.is_some_and(|patience| begin.elapsed() > patience) {
                return Err(self.died("nothing heard of it".into()));
            }
        }
    }

    /// An error if the guest has ended, its time is over, or the user wants to stop.
    fn check_alive(&mut self) -> Result<(), LabError> {
        self.check_wanted()?;
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.died(format!("QEMU ended with {status}"))),
            Err(e) => Err(self.died(e.to_string())),
        }
    }

    /// An error if its time is over, or the user wants to stop.
    fn check_wanted(&self) -> Result<(), LabError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        match self.deadline.filter(|(at, _)| Instant::now() > *at) {
            Some((_, seconds)) => Err(LabError::Timeout { seconds }),
            None => Ok(()),
        }
    }

    /// The error for a guest that died, with its console kept and the line that says most.
    fn died(&self, otherwise: String) -> LabError {
        let read = |name: &str| {
            let bytes = std::fs::read(self.dir.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (console, qemu) = (read("console"), read("qemu.log"));
        let said = || said(&qemu).map(|line| format!("{line}; {otherwise}"));
        let reason = telling(&console).or_else(said);
        let kept = self.log_dir.join(format!("console-{}.log", std::process::id()));
        // A log that cannot be kept must not hide what happened.
        let _ = std::fs::create_dir_all(&self.log_dir);
        let _ = std::fs::write(&kept, format!("{console}\n--- QEMU ---\n{qemu}"));
        LabError::GuestDied { reason: reason.unwrap_or(otherwise), console: kept }
    }

    /// Has the agent teach the plugin where nodes lie, and switches charging on.
    fn start_charging(&mut self) -> Result<(), LabError> {
        self.say(&ToGuest::Charge)?;
        self.wait_message(Some(BOOT_PATIENCE), &mut |_, _| {})?;
        let failed = || LabError::io("cannot read the plugin's counters");
        let counters = CounterFile::open(&self.dir.path().join(STATS)).map_err(failed())?;
        let map = counters.node_map().map_err(failed())?;
        if map != NodeMap::Found || !counters.charging().map_err(failed())? {
            return Err(self.died(format!("the plugin could not find the nodes' memory ({map:?})")));
        }
        self.counters = Some(counters);
        self.charged_since = Instant::now();
        Ok(())
    }
}

/// What a console says of the guest's end: a kernel's oops with where it was, else the line that
/// says most.
fn telling(console: &str) -> Option<String> {
    let line = |sign: &str| console.lines().find(|line| line.contains(sign)).map(str::trim);
    if let Some(oops) = line("[#1]") {
        let place = line("RIP: ").and_then(|line| line.split("RIP: ").nth(1));
        return Some(place.map_or(oops.into(), |place| format!("{oops}, at {place}")));
    }
    // Ours begin a line: a kernel's "slab: " is none.
    let ours = console.lines().map(str::trim).find(|line| line.starts_with("lab: "));
    let later = || ["Oops", "Out of memory"].into_iter().find_map(line);
    line("Kernel panic").or(ours).or_else(later).map(String::from)
}

/// What QEMU's log says of its end: its last complaint, else its last line. What our plugin
/// notices and gets over says nothing.
fn said(qemu: &str) -> Option<&str> {
    let complaint =
        |line: &&str| ["ERROR:", "qemu-system", "Could not"].iter().any(|sign| line.contains(sign));
    let notice = |line: &&str| line.starts_with("numaherd_latency: dropped ");
    let lines = || qemu.lines().map(str::trim).filter(|l| !l.is_empty() && !notice(l));
    lines().rfind(complaint).or_else(|| lines().next_back())
}

fn carry_input(mut reader: Box<dyn Read + Send>, to: Arc<Mutex<UnixStream>>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = reader.read(&mut buffer).unwrap_or(0);
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            if write_frame(&mut *to, Kind::Stdin, &buffer[..length]).is_err() || length == 0 {
                return;
            }
        }
    });
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_clock(Path::new("/dev/shm"), self.child.id());
    }
}

/// libfaketime leaves its shared memory behind when its process is killed.
fn remove_clock(shm: &Path, qemu: u32) {
    for name in ["faketime_shm_", "faketime_sem_", "sem.faketime_sem_", "sem.faketime_shm_"] {
        // Not all of them exist.
        let _ = std::fs::remove_file(shm.join(format!("{name}{qemu}")));
    }
}

/// Removes what labs left whose launcher was killed. Best effort: what belongs to somebody else
/// cannot be removed.
fn sweep(temporary: &Path, proc: &Path, shm: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if proc.join(owner.to_string()).exists() {
            continue;
        }
        let qemu = std::fs::read_to_string(entry.path().join("qemu.pid")).unwrap_or_default();
        if let Ok(qemu) = qemu.trim().parse::<u32>()
            && !proc.join(qemu.to_string()).exists()
        {
            remove_clock(shm, qemu);
        }
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

fn start_qemu(options: &BootOptions, tools: &Tools, dir: &Path) -> Result<Child, LabError> {
    let machine = &options.machine;
    let failed = || LabError::io("cannot prepare the guest");
    let paths = |name: &str| dir.join(name);
    let shares: Vec<&Path> = options.shares.iter().map(|share| share.0.as_path()).collect();
    let tables = firmware::tables(machine);
    let archive = initramfs::build(
        &tools.busybox,
        &options.kernel.modules,
        &shares,
        &options.agent,
        &tables,
        options.distance,
    )?;
    std::fs::write(paths("initramfs"), archive).map_err(failed())?;
    if let Some(plugin) = options.plugin.as_ref().filter(|plugin| !plugin.is_file()) {
        return Err(LabError::MissingPlugin { path: plugin.clone() });
    }
    let plugin_config = paths("plugin.json");
    if options.distance {
        std::fs::create_dir(paths("counters")).map_err(failed())?;
        let config = PluginConfig::new(machine, options.dilation, &paths(STATS));
        let config = serde_json::to_vec(&config).map_err(io::Error::from).map_err(failed())?;
        std::fs::write(&plugin_config, config).map_err(failed())?;
    }
    let counters = paths("counters");
    let files = Files {
        kernel: &options.kernel.image,
        initramfs: &paths("initramfs"),
        console: &paths("console"),
        socket: &paths("agent"),
        plugin: options.plugin.as_deref(),
        charge: options.distance.then_some(plugin_config.as_path()),
        counters: options.distance.then_some(counters.as_path()),
        shares: &shares,
        append: options.append.as_deref().unwrap_or_default(),
    };
    let log = std::fs::File::create(paths("qemu.log")).map_err(failed())?;
    let mut command = standing::qemu(tools);
    command.args(arguments(machine, &files));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    if options.dilation > 1.0 {
        command.env("FAKETIME", format!("+0 x{:.6}", 1.0 / options.dilation));
        command.env("LD_PRELOAD", &tools.faketime);
        command.env("NO_FAKE_STAT", "1");
    }
    let child = command.spawn().map_err(LabError::io("cannot start QEMU"))?;
    if options.distance {
        standing::prefer(child.id());
    }
    std::fs::write(paths("qemu.pid"), child.id().to_string()).map_err(failed())?;
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oops_is_told_with_its_place_and_a_panic_by_its_own_line() {
        let oops = "[ 9.1] Oops: int3: 0000 [#1] SMP\r\n[ 9.2] RIP: 0010:f+0x5/0xbf\r\n";
        let panic = "[ 9.3] Kernel panic - not syncing: no init\r\n";
        let told = telling(&format!("{oops}{panic}")).unwrap();
        assert_eq!(told, "[ 9.1] Oops: int3: 0000 [#1] SMP, at 0010:f+0x5/0xbf");
        assert_eq!(telling(panic).as_deref(), Some(panic.trim()));
        assert_eq!(telling("Linux version 6.12\n"), None);
        assert_eq!(telling("[ 1.0] slab: nothing\r\nlab: no root\r\n").unwrap(), "lab: no root");
        assert_eq!(telling("[ 1.0] slab: nothing\r\n"), None);
    }

    #[test]
    fn of_qemus_log_a_complaint_is_told_and_no_notice_of_our_plugins() {
        let notice = "numaherd_latency: dropped a breakpoint that the kernel had taken away\n";
        assert_eq!(said(notice), None);
        let failed = "ERROR:cpu-exec.c:1: assertion failed\n";
        assert_eq!(said(&format!("{failed}a trace\n{notice}")), Some(failed.trim()));
        assert_eq!(said(&format!("numaherd_latency: no map\n{notice}")).unwrap().len(), 24);
    }

    #[test]
    fn what_a_killed_lab_left_is_swept_and_what_a_living_one_has_stays() {
        let root = tempfile::tempdir().unwrap();
        let (temporary, proc, shm) =
            (root.path().join("tmp"), root.path().join("proc"), root.path().join("shm"));
        for dir in ["numaherd-lab-7-x", "numaherd-lab-8-y", "numaherd-lab-other", "unrelated"] {
            std::fs::create_dir_all(temporary.join(dir)).unwrap();
        }
        std::fs::create_dir_all(proc.join("8")).unwrap();
        std::fs::create_dir_all(&shm).unwrap();
        std::fs::write(temporary.join("numaherd-lab-7-x/qemu.pid"), "70").unwrap();
        std::fs::write(shm.join("faketime_shm_70"), "").unwrap();
        std::fs::write(shm.join("faketime_shm_71"), "").unwrap();
        sweep(&temporary, &proc, &shm);
        let left = |dir: &Path| {
            let entries = std::fs::read_dir(dir).unwrap().flatten();
            let mut names: Vec<String> =
                entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(left(&temporary), ["numaherd-lab-8-y", "numaherd-lab-other", "unrelated"]);
        assert_eq!(left(&shm), ["faketime_shm_71"]);
    }
}
