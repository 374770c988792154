//! Nodes over time: who runs where, where memory is, how much of its use is local, and what was
//! moved why. One page that needs no network.
//!
//! Each node has a row with two pictures: tasks and memory, stacked by process. Time goes from left
//! to right, the same in all pictures. Where many moves were made at once their list is folded, and so
//! is what several that are told as one were.

use std::fmt::Write;

use numaherd_model::counted;

use crate::chart::escape;

/// Pixels.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 84.0;
/// Of the axis of time; and what its longest figure takes.
const AXIS: f64 = 20.0;
const FIGURE: f64 = 60.0;
/// Moves that are listed; the page says how many more there were.
const LISTED: usize = 500;
/// Parts of these that are listed.
const PARTS: usize = 5_000;
/// More than these at one time are folded.
const OPEN: usize = 10;
/// Processes by colour, then again from the first.
const COLOURS: [&str; 8] =
    ["#2e8b57", "#d2966a", "#5e8fbe", "#b4648c", "#c8b43c", "#7a6fb0", "#50a0a0", "#a0522d"];

/// What the page shows.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// What ran where.
    pub title: String,
    /// Each node's name, and its CPUs.
    pub nodes: Vec<(String, u32)>,
    /// Each process's name.
    pub processes: Vec<String>,
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// Titles of further pictures, and their SVG.
    pub pictures: Vec<(String, String)>,
    /// In the order of time.
    pub moves: Vec<Move>,
    /// What it came to, name and figure.
    pub facts: Vec<(String, String)>,
}

/// The machine at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// When.
    pub seconds: f64,
    /// Tasks by process and node.
    pub tasks: Vec<Vec<f64>>,
    /// Mebibytes by process and node.
    pub mib: Vec<Vec<f64>>,
    /// Local ÷ all, since the moment before.
    pub local_share: f64,
}

/// Something moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// When, as told.
    pub when: String,
    /// What, where to and why.
    pub what: String,
    /// What became of it.
    pub outcome: String,
    /// Each of several moves that are told as one, if they are.
    pub parts: Vec<String>,
}

/// The whole page.
#[must_use]
pub fn page(course: &Course) -> String {
    let title = escape(&course.title);
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:66em;margin:2em auto;color:#333}}\
         td,th{{padding:2px 8px;text-align:left;vertical-align:top}}\
         svg{{background:#f6f6f6;display:block}}svg.axis{{background:none}}\
         table.moves{{table-layout:fixed;width:100%}}\
         td.n{{text-align:right;white-space:nowrap;width:5em}}td.outcome{{width:11em}}td.name{{white-space:nowrap}}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    for (name, figure) in &course.facts {
        let _ = writeln!(page, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(figure));
    }
    page += "</table>\n<p>";
    for (process, name) in course.processes.iter().enumerate() {
        let colour = COLOURS[process % COLOURS.len()];
        let name = escape(name).replace(' ', "&nbsp;");
        let _ = write!(page, "<span style=\"color:{colour}\">&#9632;</span>&nbsp;{name} ");
    }
    page += "</p>\n<table>\n<tr><th></th><th>tasks that run or wait</th><th>memory</th></tr>\n";
    let most_cpus = course.nodes.iter().map(|(_, cpus)| *cpus).max().unwrap_or(0);
    for (node, (name, cpus)) in course.nodes.iter().enumerate() {
        let tasks = stack(course, |moment| &moment.tasks, node, f64::from(most_cpus), "tasks");
        let memory = stack(course, |moment| &moment.mib, node, 1.0, "MiB");
        let _ = writeln!(
            page,
            "<tr><td class=\"name\">{}<br>{}</td><td>{tasks}</td><td>{memory}</td></tr>",
            escape(name),
            counted(cpus, "CPU")
        );
    }
    let axis = axis(course);
    let _ = writeln!(
        page,
        "<tr><td class=\"name\">local share</td><td>{}{axis}</td><td>{axis}</td></tr>\n</table>",
        line(course)
    );
    for (title, svg) in &course.pictures {
        let _ = writeln!(page, "<h2>{}</h2>\n{svg}", escape(title));
    }
    page + &moves(course)
}

fn end(course: &Course) -> f64 {
    course.moments.last().map_or(1.0, |moment| moment.seconds).max(f64::MIN_POSITIVE)
}

fn x(course: &Course, moment: &Moment) -> f64 {
    moment.seconds / end(course) * WIDTH
}

fn y(value: f64, most: f64) -> f64 {
    HEIGHT - value / most * (HEIGHT - 4.0)
}

/// One node's areas, process upon process. The scale is that of the fullest node, at least `least`.
fn stack(
    course: &Course,
    of: impl Fn(&Moment) -> &Vec<Vec<f64>>,
    node: usize,
    least: f64,
    unit: &str,
) -> String {
    let total = |moment: &Moment, node: usize| of(moment).iter().map(|p| at(p, node)).sum::<f64>();
    let nodes = 0..course.nodes.len();
    let all = nodes.flat_map(|node| course.moments.iter().map(move |moment| (moment, node)));
    let most = all.map(|(moment, node)| total(moment, node)).fold(least, f64::max);
    let mut below = vec![0.0; course.moments.len()];
    let mut picture = svg();
    for process in 0..course.processes.len() {
        let above: Vec<f64> = course
            .moments
            .iter()
            .zip(&below)
            .map(|(moment, below)| below + of(moment).get(process).map_or(0.0, |p| at(p, node)))
            .collect();
        let point = |(moment, value): (&Moment, &f64)| {
            format!("{:.1},{:.1}", x(course, moment), y(*value, most))
        };
        let there = course.moments.iter().zip(&above).map(point);
        let back = course.moments.iter().zip(&below).rev().map(point);
        let points: Vec<String> = there.chain(back).collect();
        let colour = COLOURS[process % COLOURS.len()];
        let _ = write!(picture, "<polygon fill=\"{colour}\" points=\"{}\"/>", points.join(" "));
        below = above;
    }
    picture + &scale(&format!("{most:.0} {unit}"))
}

/// A process that has not come yet is nowhere.
fn at(process: &[f64], node: usize) -> f64 {
    process.get(node).copied().unwrap_or(0.0)
}

/// What the top of a picture stands for; the picture ends.
fn scale(text: &str) -> String {
    format!(
        "<text x=\"4\" y=\"16\" font-size=\"11\" font-family=\"sans-serif\" fill=\"#333\" \
         stroke=\"#f6f6f6\" stroke-width=\"3\" paint-order=\"stroke\">{text}</text></svg>"
    )
}

/// Seconds below a picture: round ones, no more than have room.
fn axis(course: &Course) -> String {
    let end = end(course);
    let least = end * FIGURE / WIDTH;
    let ten = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|n| n * ten).find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * ten);
    let places = (-step.log10().floor()).max(0.0) as usize;
    let mut axis = format!(
        "<svg class=\"axis\" width=\"{WIDTH}\" height=\"{AXIS}\" font-size=\"11\" \
         font-family=\"sans-serif\" fill=\"#333\">"
    );
    for tick in 0..=(end / step * (1.0 + 1e-9)) as u32 {
        let seconds = f64::from(tick) * step;
        let (x, unit) = (seconds / end * WIDTH, if tick == 0 { " s" } else { "" });
        // A figure at either edge stays inside.
        let anchor = match x {
            _ if tick == 0 => "start",
            x if x > WIDTH - FIGURE / 4.0 => "end",
            _ => "middle",
        };
        let _ = write!(
            axis,
            "<path d=\"M{x:.1} 0v4\" stroke=\"#333\"/><text x=\"{x:.1}\" y=\"16\" \
             text-anchor=\"{anchor}\">{seconds:.places$}{unit}</text>"
        );
    }
    axis + "</svg>"
}

fn line(course: &Course) -> String {
    let point =
        |moment: &Moment| format!("{:.1},{:.1}", x(course, moment), y(moment.local_share, 1.0));
    let points: Vec<String> = course.moments.iter().map(point).collect();
    let shape = format!(
        "<polyline fill=\"none\" stroke=\"#333\" stroke-width=\"1.5\" points=\"{}\"/>",
        points.join(" ")
    );
    svg() + &shape + &scale("100 %")
}

fn svg() -> String {
    format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\">")
}

fn moves(course: &Course) -> String {
    if course.moves.is_empty() {
        return String::new();
    }
    let mut table = "<h2>Moves and their reasons</h2>\n".to_string();
    let listed = &course.moves[..course.moves.len().min(LISTED)];
    let mut parts_left = PARTS;
    for turn in listed.chunk_by(|a, b| a.when == b.when) {
        let (when, count) = (escape(&turn[0].when), turn.len());
        let folded = count > OPEN;
        if folded {
            let first = &turn[0].outcome;
            let same = turn.iter().all(|listed| listed.outcome == *first);
            let outcome = if same { format!(", all {}", escape(first)) } else { String::new() };
            let _ = writeln!(table, "<details><summary>{when}: {count} moves{outcome}</summary>");
        }
        table += "<table class=\"moves\">\n";
        for listed in turn {
            let mut what = escape(&listed.what);
            if (1..=parts_left).contains(&listed.parts.len()) {
                parts_left -= listed.parts.len();
                let parts: Vec<String> = listed.parts.iter().map(|part| escape(part)).collect();
                what =
                    format!("<details><summary>{what}</summary>{}</details>", parts.join("<br>"));
            }
            let outcome = escape(&listed.outcome);
            let _ = writeln!(
                table,
                "<tr><td class=\"n\">{when}</td><td>{what}</td><td class=\"outcome\">{outcome}</td></tr>"
            );
        }
        table += if folded { "</table></details>\n" } else { "</table>\n" };
    }
    if let Some(more) = course.moves.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let _ = writeln!(table, "<p>and {more} more</p>");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course() -> Course {
        let moment = |seconds, on: f64| Moment {
            seconds,
            tasks: vec![vec![on, 4.0 - on], vec![2.0, 2.0]],
            mib: vec![vec![100.0, 0.0], vec![0.0, 50.0]],
            local_share: 0.25,
        };
        Course {
            title: "numa01 <on> 2x4".into(),
            nodes: vec![("node 0".into(), 4), ("node 1".into(), 4)],
            processes: vec!["one".into(), "two".into()],
            moments: vec![moment(0.0, 0.0), moment(10.0, 4.0)],
            pictures: vec![("A & B".into(), svg() + "</svg>")],
            moves: (0..502)
                .map(|n| Move {
                    when: format!("{n} s"),
                    what: "place task 1 on node 0: why".into(),
                    outcome: "done".into(),
                    parts: Vec::new(),
                })
                .collect(),
            facts: vec![("seconds".into(), "10.0".into())],
        }
    }

    #[test]
    fn areas_are_stacked_by_process_on_the_scale_of_the_fullest_node() {
        let page = page(&course());
        // Node 0 ends with 4 + 2 tasks, the most of all: its second area touches the top (4 px
        // below the edge), and its first ends at 4 of 6: 84 - 4/6 × 80 = 30.7.
        assert!(page.contains("points=\"0.0,84.0 420.0,30.7 420.0,84.0 0.0,84.0\""), "{page}");
        assert!(page.contains("420.0,4.0"));
        assert!(page.contains(">6 tasks<") && page.contains(">100 MiB<"));
    }

    #[test]
    fn seconds_below_are_round_and_have_room() {
        // 420 px with 60 for a figure: seven at most. 10 s / 7 = 1.43, so every 2 s.
        let axis = axis(&course());
        let told: Vec<&str> = axis.split("</text>").filter_map(|t| t.rsplit('>').next()).collect();
        assert_eq!(told, ["0 s", "2", "4", "6", "8", "10", ""]);
        assert!(axis.contains("x=\"420.0\" y=\"16\" text-anchor=\"end\""), "{axis}");
    }

    #[test]
    fn many_moves_at_one_time_are_folded() {
        let mut course = course();
        assert!(!page(&course).contains("<details>"));
        course.moves.iter_mut().take(20).for_each(|listed| listed.when = "7 s".into());
        assert!(page(&course).contains("<summary>7 s: 20 moves, all done</summary>"));
    }

    #[test]
    fn what_is_told_as_one_unfolds() {
        let mut course = course();
        course.moves[0].parts = vec!["move <a>".into(), "move b".into()];
        let folded = "<details><summary>place task 1 on node 0: why</summary>move &lt;a><br>move b</details>";
        assert!(page(&course).contains(folded));
        // So many have no room.
        course.moves[0].parts = vec!["move".into(); PARTS + 1];
        assert!(!page(&course).contains("<details>"));
    }

    #[test]
    fn nodes_of_different_size_have_one_scale() {
        let mut course = course();
        (course.nodes[0].1, course.nodes[1].1) = (8, 0);
        assert_eq!(page(&course).matches(">8 tasks<").count(), 2);
    }

    #[test]
    fn a_process_that_comes_later_is_nowhere_before() {
        let mut course = course();
        course.processes.push("three".into());
        course.moments[1].tasks.push(vec![1.0, 0.0]);
        // The last of three areas on node 0: nothing, then 1 upon 4 + 2 of 7.
        assert!(page(&course).contains("points=\"0.0,61.1 420.0,4.0 420.0,15.4 0.0,61.1\""));
    }

    #[test]
    fn the_page_is_whole_says_what_it_leaves_out_and_fetches_nothing() {
        let page = page(&course());
        assert!(page.contains("numa01 &lt;on> 2x4") && page.contains("and 2 more"));
        assert!(page.contains("<h2>A &amp; B</h2>\n<svg"));
        assert!(["src=", "href=", "@import"].iter().all(|word| !page.contains(word)), "{page}");
    }
}
