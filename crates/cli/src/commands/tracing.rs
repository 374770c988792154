//! `--trace FILE`: who ran on which CPU of the emulated machine, and its page moves, as a page for
//! ui.perfetto.dev.
//!
//! Two hidden commands run in the guest, before and after the traced one; the timeline is made
//! here, from what the second prints.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_lab::guest::Output;
use numaherd_lab::timeline::{Timeline, timeline};
use numaherd_lab::{Exec, Guest, Machine, tracefs};
use numaherd_model::counted;

use crate::args::LabTrace;
use crate::output::NewFile;

/// In the guest: begins to record, or ends it and prints what was recorded.
pub fn in_guest(args: &LabTrace) -> Result<ExitCode> {
    let root = Path::new(tracefs::ROOT);
    match args {
        LabTrace::Begin => tracefs::begin(root).context("cannot trace with this kernel")?,
        LabTrace::End => {
            let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout());
            tracefs::end(root, &mut out).context("cannot read the trace")?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Begins to record in a guest.
pub fn begin(guest: &mut Guest) -> Result<()> {
    ask(guest, "begin").map(drop)
}

/// Ends it, writes the timeline to a file, and says what it holds.
pub fn end(guest: &mut Guest, machine: &Machine, title: &str, path: &Path) -> Result<String> {
    let text = ask(guest, "end")?;
    let nodes = machine.topology().nodes;
    let node_of_cpu: BTreeMap<u32, u32> =
        nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (cpu.0, node.id.0))).collect();
    let timeline = timeline(&String::from_utf8_lossy(&text), &node_of_cpu, title);
    NewFile::at(path)?.write(&serde_json::to_vec(&timeline.json)?)?;
    Ok(told(&timeline, path))
}

fn ask(guest: &mut Guest, what: &str) -> Result<Vec<u8>> {
    let program = std::env::current_exe().context("cannot find our own program")?;
    let argv = [program.display().to_string(), "lab-trace".into(), what.into()];
    let exec = Exec { argv: argv.to_vec(), cwd: "/".into(), ..Exec::default() };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = guest.exec(&exec, &mut |output, bytes| match output {
        Output::Stdout => stdout.extend_from_slice(bytes),
        Output::Stderr => stderr.extend_from_slice(bytes),
    })?;
    if exit.code != 0 {
        let said = String::from_utf8_lossy(&stderr);
        bail!("tracing in the guest: {}", said.lines().next_back().unwrap_or("it said nothing"));
    }
    Ok(stdout)
}

fn told(timeline: &Timeline, path: &Path) -> String {
    let Timeline { switches, pages, dropped, unread, .. } = timeline;
    let moved: u64 = pages.values().sum();
    let mut text =
        format!("{switches} task switches and {moved} moved pages are in {}", path.display());
    if *dropped > 0 {
        text += &format!("; {dropped} events at its end were dropped: the buffers were full");
    }
    if *unread > 0 {
        text += &format!("; {} could not be read", counted(unread, "line"));
    }
    text
}
