//! Nodes over time: who runs where, where memory is, how much of its use is local, and what was
//! moved why. One page that needs no network.
//!
//! Each node has a row with two pictures: tasks and memory, stacked by process. Time goes from left
//! to right, the same in all pictures.

use std::fmt::Write;

use crate::chart::escape;

/// Pixels.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 84.0;
/// Moves that are listed; the page says how many more there were.
const LISTED: usize = 500;
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
}

/// The whole page.
#[must_use]
pub fn page(course: &Course) -> String {
    let title = escape(&course.title);
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;color:#333}}\
         td,th{{padding:2px 8px;text-align:left;vertical-align:top}}svg{{background:#f6f6f6}}\
         td.n{{text-align:right}}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    for (name, figure) in &course.facts {
        let _ = writeln!(page, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(figure));
    }
    page += "</table>\n<p>";
    for (process, name) in course.processes.iter().enumerate() {
        let colour = COLOURS[process % COLOURS.len()];
        let _ = write!(page, "<span style=\"color:{colour}\">&#9632;</span> {} ", escape(name));
    }
    page += "</p>\n<table>\n<tr><th></th><th>tasks that run or wait</th><th>memory</th></tr>\n";
    for (node, (name, cpus)) in course.nodes.iter().enumerate() {
        let tasks = stack(course, |moment| &moment.tasks, node, f64::from(*cpus), "tasks");
        let memory = stack(course, |moment| &moment.mib, node, 1.0, "MiB");
        let _ = writeln!(
            page,
            "<tr><td>{}<br>{cpus} CPUs</td><td>{tasks}</td><td>{memory}</td></tr>",
            escape(name)
        );
    }
    let _ = writeln!(
        page,
        "<tr><td>local share</td><td>{}</td><td>0 to {:.1} s; local share 0 to 1</td></tr>\n</table>",
        line(course),
        end(course)
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
    let total = |moment: &Moment, node: usize| of(moment).iter().map(|p| p[node]).sum::<f64>();
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
            .map(|(moment, below)| below + of(moment)[process][node])
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
    let _ = write!(
        picture,
        "<text x=\"4\" y=\"14\" font-size=\"11\" fill=\"#333\">{most:.0} {unit}</text></svg>"
    );
    picture
}

fn line(course: &Course) -> String {
    let point =
        |moment: &Moment| format!("{:.1},{:.1}", x(course, moment), y(moment.local_share, 1.0));
    let points: Vec<String> = course.moments.iter().map(point).collect();
    let shape = format!(
        "<polyline fill=\"none\" stroke=\"#333\" stroke-width=\"1.5\" points=\"{}\"/></svg>",
        points.join(" ")
    );
    svg() + &shape
}

fn svg() -> String {
    format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\">")
}

fn moves(course: &Course) -> String {
    if course.moves.is_empty() {
        return String::new();
    }
    let mut table = "<h2>Moves and their reasons</h2>\n<table>\n".to_string();
    for listed in course.moves.iter().take(LISTED) {
        let _ = writeln!(
            table,
            "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
            escape(&listed.when),
            escape(&listed.what),
            escape(&listed.outcome)
        );
    }
    table += "</table>\n";
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
    fn the_page_is_whole_says_what_it_leaves_out_and_fetches_nothing() {
        let page = page(&course());
        assert!(page.contains("numa01 &lt;on> 2x4") && page.contains("and 2 more"));
        assert!(page.contains("<h2>A &amp; B</h2>\n<svg"));
        assert!(["src=", "href=", "@import"].iter().all(|word| !page.contains(word)), "{page}");
    }
}
