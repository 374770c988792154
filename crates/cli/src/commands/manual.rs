//! `manual`: man pages and shell completions, from the definitions of the command line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, Manual, MigrationArgs, PftArgs, SimulatePft};
use crate::drop_in::USAGES;

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
    let mut cli = without_help(whole());
    cli.build();
    let pages = pages(&cli, "")?;
    for (name, text) in &pages {
        write(&man.join(format!("{name}.1")), text)?;
    }
    // numactl is `run`
    write(&man.join(as_tool(NUMACTL)), b".so man1/numaherd-run.1\n")?;
    for (tool, usage) in USAGES {
        write(&man.join(as_tool(tool)), link_page(tool, usage).as_bytes())?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut told(&whole()), "numaherd", &completions);
        file.with_context(|| format!("cannot write completions for {shell}"))?;
    }
    let count = pages.len() + 1 + USAGES.len();
    putln!("{count} man pages and completions of 3 shells in {}", args.dir.display());
    Ok(ExitCode::SUCCESS)
}

/// The file of the page for the program under another tool's name.
fn as_tool(tool: &str) -> String {
    format!("numaherd-as-{tool}.1")
}

/// The page of a link by the name of another tool.
fn link_page(tool: &str, usage: &str) -> String {
    let plain = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a dot would be a request.
    let usage: String =
        usage.trim_end().lines().map(|line| format!("\\&{}\n", plain(line))).collect();
    format!(
        "{}.SH NAME\nnumaherd\\-as\\-{tool} \\- what numaherd does when it is called {tool}\n\
         .SH SYNOPSIS\n.nf\n{usage}.fi\n\
         .SH DESCRIPTION\nStarted by a link of the name {tool}, numaherd takes these arguments, and prints and \
         exits as that tool does.\n\
         .SH \"SEE ALSO\"\nnumaherd(1), {tool}(8)\n",
        title(&format!("numaherd-as-{tool}"))
    )
}

/// A page's first request: no date, and the version where a page's foot has it.
fn title(name: &str) -> String {
    format!(".TH {name} 1 \"\" \"numaherd {}\"\n", env!("CARGO_PKG_VERSION"))
}

/// The command line with `bench pft`, `bench migration` and `simulate pft`, which have options of their own and are
/// not read as a part of it.
fn whole() -> clap::Command {
    let pft = PftArgs::command().name("pft");
    let migration = MigrationArgs::command().name("migration");
    let simulated = SimulatePft::command().name("pft");
    Cli::command()
        .mut_subcommand("bench", |bench| bench.subcommand(pft).subcommand(migration))
        .mut_subcommand("simulate", |simulate| simulate.subcommand(simulated))
}

/// Without `help`, which has no page and would be referred to.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// A command without what is hidden: completions would offer that, too.
fn told(command: &clap::Command) -> clap::Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(told);
    clap::Command::new(command.get_name().to_string())
        .about(about)
        .disable_help_flag(command.is_disable_help_flag_set())
        .args(args)
        .subcommands(commands)
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
        if !below.is_hide_set() {
            all.extend(pages(below, &name)?);
        }
    }
    Ok(all)
}

fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_string())).render(&mut text)?;
    let text = String::from_utf8(text)?;
    // The generator leaves an empty date out, and the version takes its place.
    let begin = text.find(".TH ").unwrap_or(text.len());
    let end = text[begin..].find('\n').map_or(text.len(), |at| begin + at + 1);
    let text = format!("{}{}{}", &text[..begin], title(name), &text[end..]);
    let lines = command.get_after_help().map_or(0, |help| help.to_string().lines().count());
    Ok(if lines > 1 { unfilled(&text) } else { text }.into_bytes())
}

/// The page with the text behind its options left in lines, as a table of commands must be.
fn unfilled(page: &str) -> String {
    let Some((before, behind)) = page.split_once(".SH EXTRA\n") else { return page.to_string() };
    let (table, rest) = match behind.find(".SH ") {
        Some(at) => behind.split_at(at),
        None => (behind, ""),
    };
    format!("{before}.SH EXTRA\n.nf\n{table}.fi\n{rest}")
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
            ("numaherd-bench-migration", "callgraph"),
            ("numaherd-simulate-pft", "rework"),
            ("numaherd-memtoy", ".nf\nCommands:\n"),
            ("numaherd-as-numactl", "numaherd-run.1"),
            ("numaherd-as-numastat", "\\-z to skip rows"),
            ("numaherd-as-migratepages", "from\\-nodes to\\-nodes"),
            ("numaherd-as-memhog", "\\-rNUM"),
            ("numaherd-as-numad", "NCPUS[:MB]"),
        ] {
            let text = text(&format!("man1/{page}.1"));
            assert!(text.contains(word), "{page} lacks {word}");
            let titles = text.matches(&title(page)).count();
            assert!(titles == 1 || text.starts_with(".so "), "{page} has {titles} titles");
        }
        // Whatever a page refers to is there.
        for page in std::fs::read_dir(folder.path().join("man1")).unwrap() {
            let page = page.unwrap().path();
            let text = std::fs::read_to_string(&page).unwrap().replace("\\-", "-");
            for word in text.split_whitespace().filter_map(|word| word.split_once("(1)")) {
                let name = word.0.trim_start_matches("\\fB").trim_end_matches("\\fR");
                if name.starts_with("numaherd") {
                    let there = folder.path().join(format!("man1/{name}.1"));
                    assert!(there.exists(), "{}: {name}", page.display());
                }
            }
        }
        for file in ["numaherd.bash", "_numaherd", "numaherd.fish"] {
            for hidden in ["supervise", "lab-agent", "--part", "--with-parent", "--summary"] {
                let text = text(&format!("completions/{file}"));
                assert!(!text.contains(hidden), "{file} offers {hidden}");
            }
            for word in ["weighted-interleave", "cache-lines"] {
                assert!(text(&format!("completions/{file}")).contains(word), "{file} lacks {word}");
            }
        }
    }
}
