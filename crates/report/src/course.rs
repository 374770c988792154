//! The picture of throughput over time: a line for each placement, of its run nearest the median.
//! It shows when a placement found its way, and what it cost until then.

use plotters::prelude::*;

use crate::chart::{self, ChartError, GRID, TEXT, WIDTH};
use crate::{Comparison, Series};

/// Pixels.
const HEIGHT: u32 = 320;
const TOP: i32 = 46;
const BOTTOM: i32 = 262;
const LEFT: i32 = 96;
const RIGHT: i32 = 110;
/// Least distance between two names beside their lines.
const LINE_HEIGHT: i32 = 15;

/// An SVG; empty where no course was noted.
///
/// # Errors
/// The drawing library's.
pub fn svg(comparison: &Comparison) -> Result<String, ChartError> {
    let mut picture = String::new();
    let courses: Vec<(&str, &Series)> = comparison
        .placements
        .iter()
        .filter_map(|placement| Some((&*placement.name, placement.throughput_over_time.as_ref()?)))
        .filter(|(_, series)| series.values.len() > 1)
        .collect();
    if courses.is_empty() {
        return Ok(picture);
    }
    let unit = &comparison.placements[0].throughput.unit;
    draw(&courses, &scale_of(unit), &mut picture)
        .map_err(|e| ChartError { problem: e.to_string() })?;
    Ok(picture)
}

/// What a value is divided by, and what it then is.
fn scale_of(unit: &str) -> (f64, String) {
    if unit == "B/s" { (1e6, "MB/s".into()) } else { (1.0, unit.into()) }
}

fn draw(
    courses: &[(&str, &Series)],
    (divisor, unit): &(f64, String),
    picture: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(picture, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: f64| ("sans-serif", size).into_font().color(&TEXT);
    let end = |series: &Series| series.interval_seconds * series.values.len() as f64;
    let longest = courses.iter().map(|(_, series)| end(series)).fold(0.0, f64::max);
    let values = courses.iter().flat_map(|(_, series)| &series.values);
    let most = values.copied().fold(f64::MIN_POSITIVE, f64::max) / divisor;
    let x = |seconds: f64| {
        LEFT + (seconds / longest * f64::from(WIDTH as i32 - LEFT - RIGHT)).round() as i32
    };
    let y = |value: f64| BOTTOM - (value / most * f64::from(BOTTOM - TOP)).round() as i32;
    area.draw_text(&format!("throughput, {unit}, more is better"), &font(17.0), (12, 14))?;
    for tick in ticks(longest) {
        area.draw(&PathElement::new([(x(tick), TOP), (x(tick), BOTTOM)], GRID))?;
        area.draw_text(&tick.to_string(), &font(12.0), (x(tick) - 4, BOTTOM + 6))?;
    }
    for tick in ticks(most) {
        area.draw(&PathElement::new([(LEFT, y(tick)), (x(longest), y(tick))], GRID))?;
        area.draw_text(&tick.to_string(), &font(12.0), (12, y(tick) - 7))?;
    }
    let mut names: Vec<(i32, i32, &str)> = Vec::new();
    for (name, series) in courses {
        // A value stands in the middle of its interval.
        let at = |index: usize| (index as f64 + 0.5) * series.interval_seconds;
        let points: Vec<(i32, i32)> = series
            .values
            .iter()
            .enumerate()
            .map(|(index, value)| (x(at(index).min(longest)), y(value / divisor)))
            .collect();
        let (last_x, last_y) = points[points.len() - 1];
        names.push((last_y, last_x, name));
        area.draw(&PathElement::new(points, chart::colour(name).stroke_width(2)))?;
    }
    names.sort_unstable();
    let mut lowest = i32::MIN;
    for (at, last_x, name) in names {
        let line = at.max(lowest.saturating_add(LINE_HEIGHT));
        area.draw_text(name, &font(13.0), (last_x + 8, line - 7))?;
        lowest = line;
    }
    let foot =
        "seconds since the end of initialisation; of each placement the run nearest the median";
    area.draw_text(foot, &font(12.0), (12, BOTTOM + 32))?;
    area.present()?;
    Ok(())
}

/// Round figures from 0 to `most`.
fn ticks(most: f64) -> impl Iterator<Item = f64> {
    let step = chart::tick(most);
    (0..=(most / step) as i32).map(move |n| (f64::from(n) * step * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::comparison;

    #[test]
    fn there_is_a_line_for_each_course() {
        let mut comparison = comparison();
        assert_eq!(svg(&comparison).unwrap(), "");
        let course =
            |values: &[f64]| Some(Series { interval_seconds: 0.5, values: values.to_vec() });
        comparison.placements[0].throughput_over_time = course(&[1e6, 2e6, 4e6]);
        comparison.placements[1].throughput_over_time = course(&[4e6, 4e6]);
        let picture = svg(&comparison).unwrap();
        // 1.5 s are 760 - 96 - 110 = 554 pixels and 4 MB/s are 216. Off's values stand at 0.25,
        // 0.75 and 1.25 s and are a quarter, a half and all of 216 pixels above 262.
        assert!(picture.contains(r#"points="188,208 373,154 558,46 ""#), "{picture}");
        assert!(picture.contains("MB/s") && picture.contains("bind"), "{picture}");
    }
}
