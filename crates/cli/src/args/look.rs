//! The commands that look and change nothing.

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
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Sample hinting faults for so many seconds, to tell who uses which memory; needs root
    #[arg(long, value_name = "SECONDS", value_parser = parse_sample)]
    pub sample: Option<f64>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Seconds, with or without their unit.
fn parse_sample(text: &str) -> Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.1 to 3600, such as 10".into()),
    }
}
