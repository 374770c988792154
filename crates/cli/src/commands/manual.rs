//! `manual`: man pages and shell completions, from the definitions of the command line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, Manual, PftArgs};

/// Names as which the program behaves as numactl does, and so has `run`'s completions' page.
const NUMACTL: &str = "numactl";

/// Writes `man1/*.1` and `completions/*` below the folder.
pub fn run(args: &Manual) -> Result<ExitCode> {
    let man = args.dir.join("man1");
    let completions = args.dir.join("completions");
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut cli = Cli::command();
    cli.build();
    let pages = pages(&cli, "")?;
    for (name, text) in &pages {
        write(&man.join(format!("{name}.1")), text)?;
    }
    // numactl is `run`
    write(&man.join(format!("numaherd-as-{NUMACTL}.1")), b".so man1/numaherd-run.1\n")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut Cli::command(), "numaherd", &completions);
        file.with_context(|| format!("cannot write completions for {shell}"))?;
    }
    println!("{} man pages and completions of 3 shells in {}", pages.len() + 1, args.dir.display());
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The page of a command and those of its commands, by name.
fn pages(command: &clap::Command, above: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let separator = if above.is_empty() { "" } else { "-" };
    let own = command.get_name().rsplit('-').next().filter(|_| above.is_empty());
    let name = format!("{above}{separator}{}", own.unwrap_or(command.get_name()));
    let mut all = vec![(name.clone(), page(command, &name)?)];
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            all.extend(pages(below, &name)?);
        }
    }
    if above == "numaherd" && command.get_name() == "bench" {
        let name = format!("{name}-pft");
        all.push((name.clone(), page(&PftArgs::command(), &name)?));
    }
    Ok(all)
}

fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let name: &'static str = Box::leak(name.to_string().into_boxed_str());
    clap_mangen::Man::new(command.clone().name(name)).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        run(&Manual { dir: folder.path().to_path_buf() }).unwrap();
        let text = |path: &str| {
            let path = folder.path().join(path);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        for (page, word) in [
            ("numaherd", "balance"),
            ("numaherd-run", "preferred\\-many"),
            ("numaherd-policy", "cpuset"),
            ("numaherd-lab-run", "machine"),
            ("numaherd-bench-pft", "cache\\-lines"),
        ] {
            assert!(text(&format!("man1/{page}.1")).contains(word), "{page} lacks {word}");
        }
        for file in ["numaherd.bash", "_numaherd", "numaherd.fish"] {
            assert!(text(&format!("completions/{file}")).contains("weighted-interleave"), "{file}");
        }
    }
}
