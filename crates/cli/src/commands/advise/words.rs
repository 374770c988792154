//! What advise says, in each format.

use anyhow::Result;

use super::projection::Projection;
use super::{Advice, ERROR, WORTH};
use crate::args::PAUSE;
use crate::commands::status::findings::percent;
use crate::estimate::Interval;
use crate::stalls::Stalls;

/// Much is remote, and page tables alone do not tell what can be done about it.
pub fn unsure(stalls: &Stalls, most: f64) -> String {
    format!(
        "{} of its misses are local; who uses which memory is not known while the kernel takes no \
         hinting faults; finding out and bringing threads and memory together brings up to {} of \
         its time, all of it where no two threads use the same memory",
        stalls.local_share().map_or("none".into(), percent),
        percent(most)
    )
}

/// What it costs that memory is far, and what comes of bringing it near, in shares of the time taken now.
pub struct Worth {
    /// What it loses, where the waiting for memory was counted, and from what to what, where not.
    pub lost: Option<f64>,
    pub loss: Option<Interval>,
    /// The same of what a move brings.
    pub counted: Option<Interval>,
    pub gain: Option<Interval>,
    /// Whether enough faults tell how far its threads share memory.
    pub sharing_known: bool,
}

/// What moving takes and brings.
pub fn text(told: &Projection, worth: Worth, bytes: u64, seconds: f64) -> String {
    let Worth { lost, loss, counted, gain, sharing_known } = worth;
    let (Some(before), Some(after), Some(gain)) = (told.before, told.after, gain) else {
        return "nothing can be said: no sign of who uses which memory; a longer --sample may tell"
            .into();
    };
    let error = percent(ERROR);
    let costs = match (lost, loss) {
        (Some(lost), _) => {
            format!(", and it loses {} of its time to distance (± {error})", percent(lost))
        }
        (_, Some(loss)) => {
            format!(", and it loses up to {} of its time to distance", percent(loss.high))
        }
        _ => String::new(),
    };
    let now = format!("{} of its memory use is local{costs}", percent(before));
    if !told.moves() {
        return format!("{now}; herd would move nothing");
    }
    let pages = match bytes {
        0 => String::new(),
        _ => format!(" (no thread waits longer than {} ms for a page)", PAUSE * 1e3),
    };
    let moving = format!(
        "moving {} and {} MiB takes about {seconds:.1} s{pages}, makes {} local",
        numaherd_model::counted(told.tasks, "thread"),
        bytes >> 20,
        percent(after)
    );
    let end = if told.finished { "" } else { " and would not be all" };
    let doubt = match sharing_known {
        true => "",
        false => {
            "; too few faults tell yet whether its threads share memory, a longer --sample may"
        }
    };
    if let Some(Interval { low, high }) = counted {
        let worth = if high < WORTH { ": not worth it, it brings" } else { " and brings" };
        let brings = match low < high {
            true => format!("{} to {}", percent(low), percent(high)),
            false => percent(low),
        };
        return format!("{now}; {moving}{end}{worth} {brings} of its time (± {error}){doubt}");
    }
    let most = percent(gain.high);
    if gain.high < WORTH {
        return format!("{now}; {moving}{end}: not worth it, it brings {most} at most{doubt}");
    }
    format!("{now}; {moving}{end} and brings up to {most} of its time{doubt}")
}

/// For people.
pub fn table(advice: &Advice) -> String {
    let mut text = format!("{}\n", advice.finding.text);
    if let Some(command) = &advice.finding.command {
        text += &format!("    {command}\n");
    }
    if let Some(earlier) = &advice.earlier {
        text += &format!("{}\n", earlier.text());
    }
    if let Some(ratio) = advice.remote_ratio {
        let waiting = match advice.waiting_share {
            Some(share) => format!("it waits for memory {} of its time", percent(share)),
            None => "up to: if all of its time were spent waiting for memory".into(),
        };
        let source = match advice.distance_source {
            "measured" => "measured",
            _ => "firmware's distances",
        };
        text += &format!(
            "seen for {:.1} s; by {}; {waiting}; remote memory taken to be {ratio:.1} times as slow \
             ({source}), a page to take {:.0} us to move (guessed)\n",
            advice.seconds, advice.evidence, advice.page_move_us
        );
    }
    text
}

/// For a table.
pub fn csv(advice: &Advice) -> Result<String> {
    let mut listing = numaherd_report::Listing::new([
        "pid",
        "local_share",
        "local_share_after",
        "tasks_to_move",
        "bytes_to_move",
        "move_seconds",
        "pause_seconds",
        "loss_from",
        "loss_to",
        "loss",
        "gain_from",
        "gain_to",
        "gain",
        "worth_it",
        "gain_promised",
        "gain_measured",
    ]);
    let earlier = advice.earlier.as_ref();
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |f| f.to_string());
    listing.row([
        advice.pid.to_string(),
        number(advice.local_share),
        number(advice.local_share_after),
        advice.tasks_to_move.to_string(),
        advice.bytes_to_move.to_string(),
        advice.move_seconds.to_string(),
        advice.pause_seconds.to_string(),
        number(advice.loss_interval.map(|[from, _]| from)),
        number(advice.loss_interval.map(|[_, to]| to)),
        number(advice.loss),
        number(advice.gain_interval.map(|[from, _]| from)),
        number(advice.gain_interval.map(|[_, to]| to)),
        number(advice.gain),
        advice.worth_it.to_string(),
        number(earlier.and_then(|earlier| earlier.gain_promised)),
        number(earlier.and_then(|earlier| earlier.gain_measured)),
    ]);
    Ok(listing.csv()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(after: f64, pages: u64) -> Projection {
        Projection {
            tasks: 4,
            pages,
            before: Some(0.5),
            after: Some(after),
            distances: Some([21.0, 10.0]),
            cpus: [8000; 2],
            finished: true,
        }
    }

    fn interval(low: f64, high: f64) -> Option<Interval> {
        Some(Interval { low, high })
    }

    #[test]
    fn what_is_lost_and_brought_is_a_figure_where_it_was_counted_and_a_bound_where_not() {
        let worth = |counted: bool, gain: f64| Worth {
            lost: counted.then_some(0.3),
            loss: interval(0.0, 0.4),
            counted: interval(gain, gain).filter(|_| counted),
            gain: interval(0.0, gain),
            sharing_known: true,
        };
        let counted = text(&told(0.9, 512), worth(true, 0.25), 2 << 20, 0.1);
        assert_eq!(
            counted,
            "50 % of its memory use is local, and it loses 30 % of its time to distance (± 5 %); moving 4 threads \
             and 2 MiB takes about 0.1 s (no thread waits longer than 2 ms for a page), makes 90 % local and \
             brings 25 % of its time (± 5 %)"
        );
        let bound = text(&told(0.9, 0), worth(false, 0.25), 0, 0.0);
        assert!(
            bound.contains("loses up to 40 % of its time")
                && bound.ends_with("brings up to 25 % of its time")
        );
        assert!(!bound.contains("waits longer"), "nothing is moved: {bound}");
        let little = text(&told(0.51, 512), worth(true, 0.01), 2 << 20, 0.1);
        assert!(little.contains("not worth it, it brings 1 %"), "{little}");
        let nothing = Worth { gain: None, ..worth(true, 0.0) };
        assert!(text(&told(0.9, 512), nothing, 0, 0.0).starts_with("nothing can be said"));
    }
}
