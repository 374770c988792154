//! Prints docs/results.md from a folder of comparisons (`compare -o json`, one file each): `make
//! results` writes both. No figure is typed in.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use numaherd_model::counted;
use numaherd_report::{Comparison, bars};

const BEFORE: &str = "\
# Results

Written by `make results`, which measures what is not measured yet; each comparison's own JSON is
in `docs/results/runs`, and what was last measured while runs were shorter in
[results/shorter.md](results/shorter.md). Ratios are of seconds per work, medians over paired rounds, of all
comparisons below that have both; *surely* means that all of the 95 % interval lies on that side of the limit. What the machines are,
and what they do not model: [lab.md](lab.md); `2x4fast` is `2x4` at 200 million instructions a second. Herd
goes by latencies that were measured before it runs, as `balance --measured` does, and since 2026-11-28 by what memory carries. Where herd's time goes, and what was tried:
[results/herd.md](results/herd.md).
";

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("results: the folder of the comparisons, please");
        return ExitCode::from(2);
    };
    match read(&folder) {
        Ok(comparisons) => {
            print(&comparisons);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("results: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// All comparisons of the folder, by name.
fn read(folder: &Path) -> Result<Vec<(String, Comparison)>, String> {
    let told = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|error| told(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| told(path, &error))?;
        let comparison = serde_json::from_str(&text).map_err(|error| told(path, &error))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, comparison))
    };
    paths.iter().map(read).collect()
}

fn print(comparisons: &[(String, Comparison)]) {
    println!("{BEFORE}\n## Bars\n");
    let all: Vec<Comparison> =
        comparisons.iter().map(|(_, comparison)| comparison.clone()).collect();
    print!("{}", bars::table(&all));
    println!("\n## Seconds\n");
    for (name, comparison) in comparisons {
        let Comparison { workload, machine, kernel, runs, dilation, .. } = comparison;
        println!(
            "`{name}`: {workload} on {machine}, kernel {kernel}, {}, one second there \
             took {dilation:.1} s.\n\n| placement | seconds | least–greatest | ÷ bind | local | \
             pages by kernel | by herd | late |\n|---|---|---|---|---|---|---|---|",
            counted(runs, "round")
        );
        for one in &comparison.placements {
            let share =
                |share: Option<f64>| share.map_or("–".into(), |s| format!("{:.1} %", s * 100.0));
            println!(
                "| {} | {:.2} | {:.2}–{:.2} | {} | {} | {} | {} | {} |",
                one.name,
                one.seconds.median,
                one.seconds.min,
                one.seconds.max,
                one.ratio_to_bind.map_or("–".into(), |ratio| format!("{ratio:.3}")),
                share(one.local_share),
                one.pages_migrated_by_kernel,
                one.pages_migrated_by_us,
                share(one.late_share),
            );
        }
        println!();
    }
}
