//! The commands that look and change nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::Format;

#[derive(Args)]
pub struct DoctorArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Args)]
pub struct StatusArgs {
    /// This process and its descendants (repeatable) [default: the busiest]
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pub pid: Vec<u32>,
    /// Sample hinting faults for so many seconds, to tell who uses which memory; needs root
    #[arg(long, value_name = "SECONDS", value_parser = parse_sample)]
    pub sample: Option<f64>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Args)]
pub struct TopArgs {
    /// This process and its descendants (repeatable) [default: the busiest]
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pub pid: Vec<u32>,
    /// A look is over so many seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_sample)]
    pub interval: f64,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
    /// How to print it; JSON is a line for each look
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// A process's id.
pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "the id of a process, such as 4711".into())
}

/// Seconds, with or without their unit.
fn parse_sample(text: &str) -> Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.1 to 3600, such as 10".into()),
    }
}

#[derive(Args)]
pub struct ExplainArgs {
    /// A run's id, `last`, or the file balance --log wrote
    #[arg(value_name = "RUN")]
    pub run: OsString,
    /// Only what concerns this task
    #[arg(long, value_name = "TID", conflicts_with = "page")]
    pub task: Option<u32>,
    /// Only what concerns the page at this address: 0x7f00a0000000, or in decimal as logs have it
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub page: Option<u64>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// An address: hexadecimal with 0x, else decimal. What the kernel prints without 0x may have none of the letters, and would
/// be taken for another.
fn parse_address(text: &str) -> Result<u64, String> {
    let address = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    address.map_err(|_| "an address, such as 0x7f00a0000000, or in decimal without 0x".into())
}

#[derive(Args)]
pub struct AdviseArgs {
    /// The process; its descendants are part of it
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pub pid: u32,
    /// Look for so many seconds, and for 4 where it takes those to see whether threads share memory
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_sample)]
    pub sample: f64,
    /// Go by the latencies in FILE, what topology --measure --own -o json said of this machine, instead of
    /// firmware's distances, and by what each node's memory carries
    #[arg(long, value_name = "FILE")]
    pub measured: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}
