//! The picture of a comparison: a bar per placement, its spread, and bind as a line. And the
//! page around it, which needs no network.

use numaherd_model::counted;
use plotters::prelude::*;

use crate::{Comparison, course, text};

/// Pixels.
pub(crate) const WIDTH: u32 = 760;
const ROW_HEIGHT: u32 = 44;
const HEAD: u32 = 52;
const FOOT: u32 = 58;
const LEFT: i32 = 96;
const RIGHT: i32 = 150;
pub(crate) const TEXT: RGBColor = RGBColor(51, 51, 51);
pub(crate) const GRID: RGBColor = RGBColor(221, 221, 221);

/// A picture that cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {problem}")]
pub struct ChartError {
    /// What the drawing library says.
    pub(crate) problem: String,
}

impl ChartError {
    pub(crate) fn new(error: &dyn std::error::Error) -> ChartError {
        ChartError { problem: error.to_string() }
    }
}

/// Text as it may stand in a page.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// An SVG of the comparison.
///
/// # Errors
/// The drawing library's.
pub fn svg(comparison: &Comparison) -> Result<String, ChartError> {
    let mut picture = String::new();
    draw(comparison, &mut picture).map_err(|e| ChartError { problem: e.to_string() })?;
    Ok(picture)
}

fn draw(comparison: &Comparison, picture: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let rows = comparison.placements.len() as u32;
    let height = HEAD + rows * ROW_HEIGHT + FOOT;
    let area = SVGBackend::with_string(picture, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: f64| ("sans-serif", size).into_font().color(&TEXT);
    let slowest = comparison.placements.iter().map(|p| p.seconds.max).fold(0.0, f64::max);
    let scale = f64::from(WIDTH as i32 - LEFT - RIGHT) / slowest.max(f64::MIN_POSITIVE);
    let x = |seconds: f64| LEFT + (seconds * scale).round() as i32;
    let title =
        format!("{} on {}: seconds, less is better", comparison.workload, comparison.machine);
    area.draw_text(&title, &font(17.0), (12, 14))?;
    let bottom = (HEAD + rows * ROW_HEIGHT) as i32;
    let step = tick(slowest);
    for i in 0..=(slowest / step) as i32 {
        let at = x(f64::from(i) * step);
        area.draw(&PathElement::new([(at, HEAD as i32 - 6), (at, bottom)], GRID))?;
        let label = format!("{}", f64::from(i) * step);
        area.draw_text(&label, &font(12.0), (at - 4 * label.len() as i32, bottom + 6))?;
    }
    for (row, placement) in (0..).zip(&comparison.placements) {
        let top = HEAD as i32 + row * ROW_HEIGHT as i32;
        let (first, last) = (top + 8, top + ROW_HEIGHT as i32 - 8);
        let bar = [(LEFT, first), (x(placement.seconds.median), last)];
        area.draw(&Rectangle::new(bar, colour(&placement.name).filled()))?;
        let middle = i32::midpoint(first, last);
        let spread = [(x(placement.seconds.min), middle), (x(placement.seconds.max), middle)];
        area.draw(&PathElement::new(spread, TEXT.stroke_width(2)))?;
        area.draw_text(&placement.name, &font(14.0), (12, middle - 8))?;
        let ratio =
            placement.ratio_to_bind.map_or_else(String::new, |r| format!("  ({r:.2} x bind)"));
        let label = format!("{:.1}{ratio}", placement.seconds.median);
        area.draw_text(&label, &font(13.0), (x(placement.seconds.max) + 8, middle - 7))?;
    }
    if let Some(bind) = comparison.placement("bind") {
        let at = x(bind.seconds.median);
        area.draw(&PathElement::new([(at, HEAD as i32 - 6), (at, bottom)], TEXT.stroke_width(1)))?;
    }
    let foot = format!(
        "kernel {}, medians of {}, thin lines from the least to the greatest; the vertical line is bind",
        comparison.kernel,
        counted(comparison.runs, "run")
    );
    area.draw_text(&foot, &font(12.0), (12, bottom + 32))?;
    area.present()?;
    Ok(())
}

/// A drawing area of a picture.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A line of a plot, with its name.
pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub colour: RGBColor,
}

/// Height of a plot over what it shows: the legend stands above all lines.
const LEGENDS_ROOM: f64 = 1.4;

/// A plot of lines over a whole number, whose name stands below.
pub(crate) fn lines(
    area: &Area<'_>,
    title: &str,
    below: &str,
    lines: &[Line],
    value: &dyn Fn(&f64) -> String,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let most = if most > 0.0 { most * LEGENDS_ROOM } else { 1.0 };
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..right + 0.5, 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc(below)
        .x_labels(right as usize + 1)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(value)
        .draw()?;
    for Line { name, points, colour } in lines {
        let colour = *colour;
        chart
            .draw_series([PathElement::new(points.clone(), colour.stroke_width(2))])?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

/// A round step that gives four to eight ticks.
pub(crate) fn tick(most: f64) -> f64 {
    let rough = (most / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

/// Ours stands out; the two ends of the scale are grey.
pub(crate) fn colour(placement: &str) -> RGBColor {
    match placement {
        "bind" | "inverse" => RGBColor(170, 170, 170),
        "kernel" => RGBColor(94, 143, 190),
        name if name.starts_with("herd") => RGBColor(46, 139, 87),
        _ => RGBColor(210, 150, 100),
    }
}

/// A page that holds the pictures, the table and the data.
///
/// # Errors
/// The drawing library's.
pub fn page(comparison: &Comparison) -> Result<String, ChartError> {
    let json = serde_json::to_string_pretty(comparison)
        .map_err(|e| ChartError { problem: e.to_string() })?;
    let pictures = svg(comparison)? + &course::svg(comparison)?;
    let title = escape(&format!("{} on {}", comparison.workload, comparison.machine));
    let data = Data { kind: "JSON", text: &json };
    Ok(framed(&title, 50, &pictures, &text::table(comparison), &data))
}

/// What a page holds for programs, and what kind of text that is.
pub(crate) struct Data<'a> {
    pub kind: &'static str,
    pub text: &'a str,
}

/// The page of a title (escaped), pictures, a table and data, so many em wide.
pub(crate) fn framed(
    title: &str,
    width_em: u32,
    pictures: &str,
    table: &str,
    data: &Data<'_>,
) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:{width_em}em;margin:2em auto;color:#333}}\
         pre{{overflow-x:auto;background:#f6f6f6;padding:1em;font-size:13px}}</style>\n\
         <h1>{title}</h1>\n{pictures}\n<pre>{}</pre>\n\
         <details><summary>Data ({})</summary><pre>{}</pre></details>\n",
        escape(table),
        data.kind,
        escape(data.text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::comparison;

    #[test]
    fn bars_are_as_long_as_their_medians() {
        let picture = svg(&comparison()).unwrap();
        // 19 s is the slowest and fills 760 - 96 - 150 = 514 pixels; 11 s is 297.6 of them.
        assert!(
            picture.contains(r#"width="514""#) && picture.contains(r#"width="298""#),
            "{picture}"
        );
        assert!(picture.contains("1.90 x bind"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((tick(19.0), tick(34.0), tick(0.7)), (5.0, 10.0, 0.2));
    }

    #[test]
    fn the_page_fetches_nothing() {
        let page = page(&comparison()).unwrap();
        let fetches = ["src=", "href=", "@import"];
        assert!(fetches.iter().all(|word| !page.contains(word)), "{page}");
    }
}
