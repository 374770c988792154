//! The picture of a measured machine: a heat map each for latency, reading and writing, as far as measured, and the
//! page around them, which needs no network. Dark is bad: far, or narrow.

use numaherd_model::counted;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{ChartError, escape};
use crate::matrix::{Matrices, Panel};

/// Pixels.
const CELL: i32 = 74;
const LEFT: i32 = 84;
const GAP: i32 = 28;
const HEAD: i32 = 84;
const FOOT: i32 = 44;
/// For the heading, at the least.
const WIDTH: i32 = 520;
const TEXT: RGBColor = RGBColor(51, 51, 51);

/// An SVG of the matrices side by side.
///
/// # Errors
/// The drawing library's.
pub fn svg(matrices: &Matrices) -> Result<String, ChartError> {
    let mut picture = String::new();
    draw(matrices, &mut picture).map_err(|e| ChartError::new(e.as_ref()))?;
    Ok(picture)
}

fn draw(matrices: &Matrices, picture: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let (rows, columns) = (matrices.cpu_nodes.len() as i32, matrices.memory_nodes.len() as i32);
    let panel_width = LEFT + columns.max(2) * CELL + GAP;
    let panels = matrices.panels().len() as i32 * panel_width;
    let (width, height) = (panels.max(WIDTH), HEAD + rows * CELL + FOOT);
    let size = (width as u32, height as u32);
    let area = SVGBackend::with_string(picture, size).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: f64| ("sans-serif", size).into_font().color(&TEXT);
    let title = format!("{}: from the CPUs of a node to the memory of a node", matrices.machine);
    area.draw_text(&title, &font(17.0), (12, 12))?;
    for (index, panel) in (0..).zip(matrices.panels()) {
        draw_panel(&area, matrices, &panel, index * panel_width)?;
    }
    let foot = format!(
        "kernel {}, medians of {}; small: what the machine's file states",
        matrices.kernel,
        counted(matrices.samples, "sample")
    );
    area.draw_text(&foot, &font(12.0), (12, height - 24))?;
    area.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(
    area: &Area<'_>,
    matrices: &Matrices,
    panel: &Panel<'_>,
    left: i32,
) -> Result<(), Box<dyn std::error::Error>> {
    let font = |size: f64| ("sans-serif", size).into_font();
    let middle = Pos::new(HPos::Center, VPos::Center);
    let heading = format!("{}, {}", panel.name, panel.unit);
    area.draw_text(&heading, &font(14.0).color(&TEXT), (left + 12, 42))?;
    for (column, node) in (0..).zip(&matrices.memory_nodes) {
        let at = (left + LEFT + column * CELL + CELL / 2, HEAD - 12);
        let style = font(12.0).color(&TEXT).pos(middle);
        area.draw_text(&format!("memory {node}"), &style, at)?;
    }
    let medians = || panel.cells.iter().flatten().map(|figure| figure.median);
    let (least, most) = (medians().fold(f64::MAX, f64::min), medians().fold(0.0, f64::max));
    for (row, cells) in panel.cells.iter().enumerate() {
        let top = HEAD + row as i32 * CELL;
        let name = format!("CPUs {}", matrices.cpu_nodes[row]);
        area.draw_text(&name, &font(12.0).color(&TEXT), (left + 12, top + CELL / 2 - 6))?;
        for (column, figure) in cells.iter().enumerate() {
            let x = left + LEFT + column as i32 * CELL;
            let mut badness = (figure.median - least) / (most - least).max(f64::MIN_POSITIVE);
            if panel.unit != "ns" {
                badness = 1.0 - badness;
            }
            let corners = [(x + 1, top + 1), (x + CELL - 1, top + CELL - 1)];
            area.draw(&Rectangle::new(corners, shade(badness).filled()))?;
            let ink = if badness > 0.6 { WHITE } else { TEXT };
            let at = (x + CELL / 2, top + CELL / 2 - 6);
            let text = format!("{:.0}", figure.median);
            area.draw_text(&text, &font(16.0).color(&ink).pos(middle), at)?;
            if let Some(stated) = panel.stated_at(row, column) {
                let at = (x + CELL / 2, top + CELL / 2 + 16);
                let text = format!("{stated:.0}");
                area.draw_text(&text, &font(11.0).color(&ink).pos(middle), at)?;
            }
        }
    }
    Ok(())
}

/// From a pale to a dark blue.
fn shade(badness: f64) -> RGBColor {
    let between = |good: f64, bad: f64| (good + (bad - good) * badness.clamp(0.0, 1.0)) as u8;
    RGBColor(between(222.0, 8.0), between(235.0, 69.0), between(247.0, 148.0))
}

/// A page that holds the picture, the tables and the data.
///
/// # Errors
/// The drawing library's.
pub fn page(matrices: &Matrices) -> Result<String, ChartError> {
    let json = serde_json::to_string_pretty(matrices).map_err(|e| ChartError::new(&e))?;
    let title = escape(&format!("{}, measured", matrices.machine));
    Ok(format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;color:#333}}\
         svg{{max-width:100%;height:auto}}\
         pre{{overflow-x:auto;background:#f6f6f6;padding:1em;font-size:13px}}</style>\n\
         <h1>{title}</h1>\n{}\n<pre>{}</pre>\n\
         <details><summary>Data (JSON)</summary><pre>{}</pre></details>\n",
        svg(matrices)?,
        escape(&matrices.table()),
        escape(&json)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::tests::matrices;

    #[test]
    fn every_cell_has_its_figure_and_the_worst_is_dark() {
        let picture = svg(&matrices()).unwrap();
        assert_eq!(picture.matches("\n306\n").count(), 2, "{picture}");
        // Latency 306 and the two rates of 750 are the worst of their panels, two cells each.
        assert_eq!(picture.matches("#084594").count(), 6, "{picture}");
        assert_eq!(picture.matches("#DEEBF7").count(), 6, "{picture}");
    }

    #[test]
    fn the_page_fetches_nothing() {
        let page = page(&matrices()).unwrap();
        assert!(["src=", "href=", "@import"].iter().all(|word| !page.contains(word)), "{page}");
    }
}
