//! An event for each CPU that is sampled, as CPUs come and go and the rate changes.
//!
//! A CPU without an event is missed alone: the others are sampled, and it is tried again, after [`WAITS`]`.0`, then twice
//! as long, up to [`WAITS`]`.1`. Where the kernel refuses for good, nobody is sampled any more.
//!
//! Events are dear to open and to close on a large machine, so that a rate is changed on those that are open.

use std::collections::BTreeMap;
use std::io;

use numaherd_model::{CpuId, CpuSet, Missed, Nanos};

/// Bounds on when a CPU without an event is tried again. Guessed.
const WAITS: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(60_000_000_000));

/// How often it is looked whether events still count: that of a CPU which went offline does not begin again with it, and
/// one that is back within a second was never seen to be away. Guessed.
const CHECK: Nanos = Nanos(10_000_000_000);

/// What opens events: the kernel, or a test.
pub trait Events {
    /// One that is open.
    type Event;

    /// Opens one that samples a CPU once in so long.
    fn open(&mut self, cpu: CpuId, every: Nanos) -> Result<Self::Event, Failed>;

    /// Has an open one sample once in so long from now on.
    fn set_period(&mut self, event: &Self::Event, every: Nanos) -> io::Result<()>;

    /// For how long it has counted so far.
    fn counted(&mut self, event: &mut Self::Event) -> io::Result<Nanos>;
}

/// Why a CPU has no event.
#[derive(Debug)]
pub enum Failed {
    /// It is offline: nobody runs there.
    Offline,
    /// For want of something that there may be later.
    Later(io::Error),
    /// For good, and on every CPU.
    Refused(io::Error),
}

/// See the module.
pub struct Rings<E: Events> {
    events: E,
    open: BTreeMap<CpuId, Ring<E::Event>>,
    every: Nanos,
    /// CPUs without an event, and why, unless they are offline.
    missed: BTreeMap<CpuId, Option<io::Error>>,
    /// When those are tried again, and how long that is after the last time.
    again: Nanos,
    wait: Nanos,
    /// When it is looked next whether events count.
    check: Nanos,
}

struct Ring<E> {
    event: E,
    /// For how long it had counted when that was looked at last.
    counted: Nanos,
}

impl<E: Events> Rings<E> {
    /// None yet.
    pub fn new(events: E) -> Rings<E> {
        Rings {
            events,
            open: BTreeMap::new(),
            every: Nanos(0),
            missed: BTreeMap::new(),
            again: Nanos(0),
            wait: WAITS.0,
            check: Nanos(0),
        }
    }

    /// Samples these CPUs from now on and no others, each once in so long.
    ///
    /// # Errors
    /// The kernel refuses for good; nothing is open then.
    pub fn keep(&mut self, cpus: &CpuSet, every: Nanos, now: Nanos) -> io::Result<()> {
        self.open.retain(|cpu, _| cpus.contains(*cpu));
        self.missed.retain(|cpu, _| cpus.contains(*cpu));
        let events = &mut self.events;
        if std::mem::replace(&mut self.every, every) != every {
            // What cannot be changed is opened anew.
            self.open.retain(|_, ring| events.set_period(&ring.event, every).is_ok());
        }
        if now >= self.check {
            self.open.retain(|_, ring| ring.counts(events));
            self.check = Nanos(now.0 + CHECK.0);
        }
        let again = now >= self.again;
        let is_due =
            |cpu: &CpuId| !self.open.contains_key(cpu) && (again || !self.missed.contains_key(cpu));
        let due: Vec<CpuId> = cpus.iter().filter(is_due).collect();
        for cpu in due {
            self.open_one(cpu).inspect_err(|_| self.close())?;
        }
        if self.missed.is_empty() {
            (self.again, self.wait) = (Nanos(0), WAITS.0);
        } else if again {
            self.again = Nanos(now.0 + self.wait.0);
            self.wait = Nanos(self.wait.0 * 2).min(WAITS.1);
        }
        Ok(())
    }

    fn open_one(&mut self, cpu: CpuId) -> io::Result<()> {
        let why = match self.events.open(cpu, self.every) {
            Ok(event) => {
                self.missed.remove(&cpu);
                self.open.insert(cpu, Ring { event, counted: Nanos(0) });
                return Ok(());
            }
            Err(Failed::Refused(error)) => return Err(error),
            Err(Failed::Offline) => None,
            Err(Failed::Later(error)) => Some(error),
        };
        self.missed.insert(cpu, why);
        Ok(())
    }

    /// Samples nobody, and holds nothing open.
    pub fn close(&mut self) {
        self.open.clear();
        self.missed.clear();
        (self.again, self.wait) = (Nanos(0), WAITS.0);
    }

    /// The events that are open, ascending by CPU.
    pub fn events(&mut self) -> impl Iterator<Item = &mut E::Event> {
        self.open.values_mut().map(|ring| &mut ring.event)
    }

    /// CPUs that are online and not sampled, and why the first is not.
    pub fn missed(&self) -> Option<Missed> {
        let missed = || self.missed.iter().filter_map(|(cpu, why)| Some((*cpu, why.as_ref()?)));
        let why = missed().next()?.1.to_string();
        Some(Missed { cpus: missed().map(|(cpu, _)| cpu).collect(), why })
    }
}

impl<E> Ring<E> {
    /// Whether it has counted since the last look.
    fn counts(&mut self, events: &mut impl Events<Event = E>) -> bool {
        let Ok(now) = events.counted(&mut self.event) else { return false };
        std::mem::replace(&mut self.counted, now) < now
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const OFTEN: Nanos = Nanos(10_000_000);
    const RARELY: Nanos = Nanos(250_000_000);

    /// A kernel that opens what it is not told to refuse, and what was asked of it.
    #[derive(Default)]
    struct Kernel {
        refuses: BTreeMap<u32, fn() -> Failed>,
        opened: Vec<u32>,
        periods: BTreeMap<u32, Nanos>,
        /// Has no way to change a rate.
        is_old: bool,
        /// CPUs whose events count no more, and how long those had counted.
        dead: BTreeMap<u32, u64>,
        time: u64,
    }

    #[derive(Clone, Default)]
    struct Asked(Rc<RefCell<Kernel>>);

    impl Events for Asked {
        type Event = u32;

        fn open(&mut self, cpu: CpuId, every: Nanos) -> Result<u32, Failed> {
            let mut kernel = self.0.borrow_mut();
            kernel.opened.push(cpu.0);
            match kernel.refuses.get(&cpu.0) {
                Some(why) => Err(why()),
                None => {
                    kernel.periods.insert(cpu.0, every);
                    kernel.dead.remove(&cpu.0);
                    Ok(cpu.0)
                }
            }
        }

        fn set_period(&mut self, event: &u32, every: Nanos) -> io::Result<()> {
            let mut kernel = self.0.borrow_mut();
            if kernel.is_old {
                return Err(io::Error::from_raw_os_error(22));
            }
            kernel.periods.insert(*event, every);
            Ok(())
        }

        fn counted(&mut self, event: &mut u32) -> io::Result<Nanos> {
            let mut kernel = self.0.borrow_mut();
            kernel.time += 1;
            Ok(Nanos(kernel.dead.get(event).copied().unwrap_or(kernel.time)))
        }
    }

    impl Asked {
        fn opened(&self) -> Vec<u32> {
            std::mem::take(&mut self.0.borrow_mut().opened)
        }

        fn refuse(&self, cpu: u32, why: fn() -> Failed) {
            self.0.borrow_mut().refuses.insert(cpu, why);
        }
    }

    fn full() -> Failed {
        Failed::Later(io::Error::from_raw_os_error(24))
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn rings() -> (Asked, Rings<Asked>) {
        let kernel = Asked::default();
        (kernel.clone(), Rings::new(kernel))
    }

    #[test]
    fn another_rate_opens_nothing() {
        let (kernel, mut rings) = rings();
        for second in 0..6 {
            let every = if second % 2 == 0 { OFTEN } else { RARELY };
            rings.keep(&cpus("0-2"), every, Nanos(second * SECOND)).unwrap();
            assert!(kernel.0.borrow().periods.values().all(|period| *period == every));
        }
        assert_eq!(kernel.opened(), [0, 1, 2]);
        // Where that is all there is.
        kernel.0.borrow_mut().is_old = true;
        rings.keep(&cpus("0-2"), OFTEN, Nanos(6 * SECOND)).unwrap();
        assert_eq!(kernel.opened(), [0, 1, 2]);
        assert_eq!(kernel.0.borrow().periods[&1], OFTEN);
    }

    #[test]
    fn who_comes_is_sampled_and_who_goes_is_not() {
        let (kernel, mut rings) = rings();
        rings.keep(&cpus("0-2"), OFTEN, Nanos(0)).unwrap();
        rings.keep(&cpus("0,2"), OFTEN, Nanos(1)).unwrap();
        assert_eq!(rings.events().map(|event| *event).collect::<Vec<_>>(), [0, 2]);
        rings.keep(&cpus("0-3"), RARELY, Nanos(2)).unwrap();
        assert_eq!(kernel.opened(), [0, 1, 2, 1, 3]);
        assert_eq!(kernel.0.borrow().periods[&3], RARELY);
    }

    #[test]
    fn a_cpu_that_is_offline_is_passed_over_and_not_told() {
        let (kernel, mut rings) = rings();
        kernel.refuse(1, || Failed::Offline);
        rings.keep(&cpus("0-2"), OFTEN, Nanos(0)).unwrap();
        assert_eq!((rings.events().count(), rings.missed()), (2, None));
        kernel.0.borrow_mut().refuses.clear();
        rings.keep(&cpus("0-2"), OFTEN, Nanos(SECOND)).unwrap();
        assert_eq!(rings.events().count(), 3);
    }

    #[test]
    fn what_fails_for_a_while_is_told_and_tried_less_and_less_often() {
        let (kernel, mut rings) = rings();
        kernel.refuse(2, full);
        kernel.refuse(1, full);
        let mut tries = Vec::new();
        for second in 0..200 {
            rings.keep(&cpus("0-2"), OFTEN, Nanos(second * SECOND)).unwrap();
            tries.extend(kernel.opened().contains(&1).then_some(second));
        }
        // 1, 2, 4, 8, 16, 32, 60, 60 seconds.
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        let why = io::Error::from_raw_os_error(24).to_string();
        assert_eq!(rings.missed(), Some(Missed { cpus: cpus("1-2"), why }));
        // One that comes meanwhile waits for nobody.
        rings.keep(&cpus("0-3"), OFTEN, Nanos(200 * SECOND)).unwrap();
        assert_eq!(kernel.opened(), [3]);
        kernel.0.borrow_mut().refuses.clear();
        rings.keep(&cpus("0-3"), OFTEN, Nanos(243 * SECOND)).unwrap();
        assert_eq!((rings.events().count(), rings.missed()), (4, None));
        // The next to fail is tried again as soon as the first was.
        kernel.opened();
        kernel.refuse(4, full);
        for second in 300..303 {
            rings.keep(&cpus("0-4"), OFTEN, Nanos(second * SECOND)).unwrap();
        }
        assert_eq!(kernel.opened(), [4, 4]);
    }

    #[test]
    fn where_it_is_refused_for_good_nothing_stays_open() {
        let (kernel, mut rings) = rings();
        kernel.refuse(2, || Failed::Refused(io::ErrorKind::PermissionDenied.into()));
        let error = rings.keep(&cpus("0-3"), OFTEN, Nanos(0)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!((kernel.opened(), rings.events().count()), (vec![0, 1, 2], 0));
        assert_eq!(rings.missed(), None);
    }

    /// Its CPU was away, and nobody noticed.
    #[test]
    fn an_event_that_counts_no_more_is_opened_anew() {
        let (kernel, mut rings) = rings();
        let keep = |rings: &mut Rings<Asked>, second| {
            rings.keep(&cpus("0-2"), OFTEN, Nanos(second * SECOND)).unwrap();
            kernel.opened()
        };
        assert_eq!(keep(&mut rings, 0), [0, 1, 2]);
        assert_eq!(keep(&mut rings, 10), []);
        // After the look in which it was the second of three.
        kernel.0.borrow_mut().dead.insert(1, 3);
        assert_eq!([keep(&mut rings, 20), keep(&mut rings, 29)], [[], []]);
        assert_eq!([keep(&mut rings, 30), keep(&mut rings, 40)], [vec![1], vec![]]);
    }
}
