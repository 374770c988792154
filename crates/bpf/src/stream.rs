//! Loading the BPF program, and reading its events.
//!
//! The object compiled by `build.rs` is embedded. Nothing here waits: the caller drains on its
//! own clock, and whatever did not fit into the ring meanwhile is counted as lost. Dropping the
//! stream detaches the programs; so does the kernel if we are killed.

use std::ffi::CStr;
use std::fmt::{self, Debug};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBuffer,
    RingBufferBuilder,
};
use numaherd_model::{Birth, Bytes, FaultSource, HintingFault, SAMPLED};

use crate::attach;
use crate::event::{EVENT_BYTES, Event, decode_event};
use crate::filter::{Filter, Table};
use crate::probe::{Births, Choice};

/// The compiled program. libbpf wants it 8-byte aligned; `include_bytes!` alone promises 1.
static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/faults.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// Guessed: at 48 + 8 bytes an event, 18,000 faults between two drains. A task that faults on
/// every base page at 1 GB/s makes 26,000 a second, drains are 100 ms apart.
const RING_BYTES: u32 = 1 << 20;
/// Descendants that are remembered: a kernel takes room for 128 at once for a CPU that adds one, from those that were not
/// looked up for longest.
const LEAST_DESCENDANTS: u32 = 4096;
/// For each CPU.
const DESCENDANTS: u32 = 256;
/// Births that wait for whoever asks for them. Guessed: a look's.
const MOST_BIRTHS: usize = 1 << 16;
/// The kernel keeps 8 bytes of header before each event.
const RING_HEADER_BYTES: usize = 8;

/// The fault stream cannot be had, or broke.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The probe said no.
    #[error("{reason}")]
    Unavailable {
        /// Why, and what to do.
        reason: String,
    },
    /// The kernel refused a step.
    #[error("cannot {step} the BPF program: {source}")]
    Refused {
        /// open, load, attach or read.
        step: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The embedded object lacks a map or program: a fault of the build.
    #[error("the embedded BPF program has no {what}")]
    Missing {
        /// Its name.
        what: &'static str,
    },
}

impl BpfError {
    /// Whether the kernel forbids it: some do so even to root (lockdown, a custom build).
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, BpfError::Refused { source, .. } if source.kind() == ErrorKind::PermissionDenied)
    }
}

/// The kernel's hinting faults, from when it is opened until it is dropped.
pub struct FaultStream {
    /// Filled by the ring's callback while draining.
    drained: Arc<Mutex<Drained>>,
    ring: RingBuffer<'static>,
    ring_events: usize,
    table: Maps,
    filter: Filter,
    lost: MapHandle,
    exited: MapHandle,
    /// How many tasks were born, where that is counted.
    born: Option<MapHandle>,
    sampled: MapHandle,
    /// Whether faults on base pages stand for several.
    samples: bool,
    with_addresses: bool,
    /// Detached before the object goes.
    _links: Vec<Link>,
    _object: Object,
}

/// What came out of the ring.
#[derive(Debug, Default)]
struct Drained {
    /// None but while draining.
    faults: Vec<HintingFault>,
    /// None after somebody has asked for them.
    births: Vec<Birth>,
}

impl FaultStream {
    /// Loads and attaches what was chosen, with a ring of 1 MiB.
    ///
    /// # Errors
    /// [`BpfError::Unavailable`] for that choice, or what the kernel refused.
    pub fn open(choice: &Choice) -> Result<Self, BpfError> {
        Self::open_with_ring(choice, RING_BYTES)
    }

    /// Loads and attaches what was chosen; `ring_bytes` is a power of two and at least a page. Where births cannot be told,
    /// or those that end cannot be counted, it does without.
    ///
    /// # Errors
    /// [`BpfError::Unavailable`] for that choice, or what the kernel refused.
    pub fn open_with_ring(choice: &Choice, ring_bytes: u32) -> Result<Self, BpfError> {
        let mut choice = choice.clone();
        loop {
            let opened = Self::open_all(&choice, ring_bytes);
            let Err(error) = &opened else { return opened };
            match &mut choice {
                // A kernel that does not let us read a task refuses as one that lets us load nothing.
                Choice::WithAddresses { births: births @ Some(_), .. } => *births = None,
                Choice::WithAddresses { exits: exits @ Some(_), .. }
                    if !error.is_not_permitted() =>
                {
                    *exits = None;
                }
                _ => return opened,
            }
        }
    }

    fn open_all(choice: &Choice, ring_bytes: u32) -> Result<Self, BpfError> {
        let (programs, cpu_bits, function) = match choice {
            // the address must be remembered by the time the first fault is forwarded
            Choice::WithAddresses { cpu_bits, functions: [function, misplaced], exits, births } => {
                tell(c"fentry/mpol_misplaced", *misplaced)?;
                let mut all = vec!["remember_address", "forward_with_address"];
                if let Some(exits) = exits {
                    tell(c"fentry/exit_signals", *exits)?;
                    all.push("count_exits");
                }
                if let Some(births) = births {
                    tell(c"fentry/wake_up_new_task", births.function)?;
                    all.push("see_births");
                }
                (all, *cpu_bits, *function)
            }
            Choice::WithoutAddresses { cpu_bits, function } => {
                (vec!["forward_without_address"], *cpu_bits, *function)
            }
            Choice::Unavailable { reason } => {
                return Err(BpfError::Unavailable { reason: reason.clone() });
            }
        };
        tell(c"fentry/task_numa_fault", function)?;
        // libbpf would write its own account of a failure to stderr, many lines long
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default()
            .open_memory(&OBJECT.0)
            .map_err(|source| BpfError::Refused { step: "open", source })?;
        select(&mut open, &programs, ring_bytes)?;
        let object = open.load().map_err(|source| BpfError::Refused { step: "load", source })?;

        let drained = Arc::new(Mutex::new(Drained::default()));
        let sink = Arc::clone(&drained);
        let events = map(&object, "events")?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&events, move |bytes| {
                let mut drained = sink.lock().unwrap_or_else(PoisonError::into_inner);
                match decode_event(bytes, cpu_bits) {
                    Some(Event::Fault(fault)) => drained.faults.push(fault),
                    Some(Event::Birth(birth)) if drained.births.len() < MOST_BIRTHS => {
                        drained.births.push(birth);
                    }
                    Some(Event::Birth(_)) | None => {}
                }
                0
            })
            .map_err(|source| BpfError::Refused { step: "read", source })?;
        let ring = builder.build().map_err(|source| BpfError::Refused { step: "read", source })?;

        let births = match choice {
            Choice::WithAddresses { births, .. } => *births,
            _ => None,
        };
        let born = births.map(|births| tell_places(&object, births)).transpose()?;

        let links = programs.iter().map(|name| attach(&object, name)).collect::<Result<_, _>>()?;
        Ok(FaultStream {
            drained,
            ring,
            ring_events: ring_bytes as usize / (EVENT_BYTES + RING_HEADER_BYTES),
            table: Maps { watched: map(&object, "watched")?, filter: map(&object, "filter")? },
            filter: Filter::default(),
            lost: map(&object, "lost")?,
            exited: map(&object, "exited")?,
            born,
            sampled: map(&object, "sampled")?,
            samples: false,
            with_addresses: matches!(choice, Choice::WithAddresses { .. }),
            _links: links,
            _object: object,
        })
    }

    /// From now on, faults on base pages are told of for one page of each [`SAMPLED`], always the same ones,
    /// each for as many: of memory in base pages there are 512 times as many as of huge ones, and to tell of
    /// each takes longer than it is worth. Only where they come with addresses.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sample(&mut self, page_size: Bytes) -> io::Result<()> {
        if self.with_addresses {
            let shift = page_size.0.trailing_zeros().to_ne_bytes();
            self.sampled.update(&0_u32.to_ne_bytes(), &shift, MapFlags::ANY).map_err(io_error)?;
            self.samples = true;
        }
        Ok(())
    }

    /// Whether faults come with addresses.
    #[must_use]
    pub fn with_addresses(&self) -> bool {
        self.with_addresses
    }
}

/// Keeps only the programs wanted, and sizes the ring.
fn select(open: &mut OpenObject, programs: &[&str], ring_bytes: u32) -> Result<(), BpfError> {
    for mut program in open.progs_mut() {
        let wanted = program.name().to_str().is_some_and(|name| programs.contains(&name));
        program.set_autoload(wanted);
        attach::defer(&mut program).map_err(|source| BpfError::Refused { step: "open", source })?;
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_os_string();
        let refused = |source| BpfError::Refused { step: "size", source };
        if name == "events" {
            map.set_max_entries(ring_bytes).map_err(refused)?;
        } else if name == "descendants" {
            let cpus = libbpf_rs::num_possible_cpus().map_err(refused)?;
            let most = match programs.contains(&"see_births") {
                true => LEAST_DESCENDANTS.max(DESCENDANTS * cpus as u32),
                false => 1,
            };
            map.set_max_entries(most).map_err(refused)?;
        }
    }
    Ok(())
}

fn map(object: &Object, name: &'static str) -> Result<MapHandle, BpfError> {
    let map =
        object.maps().find(|map| map.name() == name).ok_or(BpfError::Missing { what: name })?;
    MapHandle::try_from(&map).map_err(|source| BpfError::Refused { step: "read", source })
}

/// Tells where a `task_struct` has its ids; answers where births are counted.
fn tell_places(object: &Object, Births { ids, .. }: Births) -> Result<MapHandle, BpfError> {
    let places = [ids.pid.to_ne_bytes(), ids.tgid.to_ne_bytes()];
    map(object, "places")?
        .update(&0_u32.to_ne_bytes(), places.as_flattened(), MapFlags::ANY)
        .map_err(|source| BpfError::Refused { step: "load", source })?;
    map(object, "born")
}

fn tell(section: &'static CStr, id: u32) -> Result<(), BpfError> {
    attach::tell(section, id).map_err(|source| BpfError::Refused { step: "open", source })
}

fn attach(object: &Object, name: &'static str) -> Result<Link, BpfError> {
    let program = object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or(BpfError::Missing { what: name })?;
    program.attach_trace().map_err(|source| BpfError::Refused { step: "attach", source })
}

/// The thread groups that are watched, and whether only those are.
struct Maps {
    watched: MapHandle,
    filter: MapHandle,
}

impl Table for Maps {
    fn add(&mut self, tgid: u32) -> io::Result<bool> {
        found_room(self.watched.update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY))
    }

    fn remove(&mut self, tgid: u32) -> io::Result<()> {
        match self.watched.delete(&tgid.to_ne_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error(error)),
            _ => Ok(()),
        }
    }

    fn switch(&mut self, on: bool) -> io::Result<()> {
        let on = u32::from(on).to_ne_bytes();
        self.filter.update(&0_u32.to_ne_bytes(), &on, MapFlags::ANY).map_err(io_error)
    }
}

/// Whether an entry was added. A kernel that has no memory for it now may have some later, as when the table is full.
fn found_room(added: Result<(), libbpf_rs::Error>) -> io::Result<bool> {
    match added {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::TooBig | ErrorKind::OutOfMemory) => {
            Ok(false)
        }
        Err(error) => Err(io_error(error)),
    }
}

impl FaultSource for FaultStream {
    fn drain(&mut self, faults: &mut Vec<HintingFault>) -> io::Result<()> {
        // At most one ring full: on a slow CPU, faults may come as fast as they are read.
        let result = self.ring.consume_raw_n(self.ring_events);
        let before = faults.len();
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        faults.append(&mut drained.faults);
        drop(drained);
        let sampled =
            faults[before..].iter_mut().filter(|fault| self.samples && fault.pages.0 == 1);
        sampled.for_each(|fault| fault.pages = SAMPLED);
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    fn watch(&mut self, tgids: &[u32]) -> io::Result<()> {
        self.filter.set(&mut self.table, &tgids.iter().copied().collect())
    }

    fn lost(&self) -> u64 {
        count(&self.lost)
    }

    fn exited(&self) -> u64 {
        count(&self.exited)
    }

    fn born(&self) -> Option<u64> {
        self.born.as_ref().map(count)
    }

    fn births(&mut self) -> Vec<Birth> {
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut drained.births)
    }
}

impl Debug for FaultStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStream")
            .field("with_addresses", &self.with_addresses)
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}

/// What a map of one count holds.
fn count(map: &MapHandle) -> u64 {
    let slot = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    slot.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn io_error(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_kernel_without_memory_for_an_entry_is_as_a_full_table() {
        let room = |code: i32| found_room(Err(libbpf_rs::Error::from_raw_os_error(code))).ok();
        // E2BIG, ENOMEM, EPERM.
        assert_eq!([7, 12, 1].map(room), [Some(false), Some(false), None]);
        assert!(found_room(Ok(())).unwrap());
    }

    #[test]
    fn what_the_probe_refused_is_not_tried() {
        let choice = Choice::Unavailable { reason: "no BTF: boot another kernel".to_string() };
        let error = FaultStream::open(&choice).unwrap_err();
        assert_eq!(error.to_string(), "no BTF: boot another kernel");
    }

    #[test]
    fn the_embedded_object_has_every_program_and_map_named_here() {
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).unwrap();
        let maps: BTreeSet<_> = open.maps().map(|map| map.name().to_os_string()).collect();
        let names = ["events", "watched", "filter", "lost", "exited", "pending", "sampled"];
        for name in names.into_iter().chain(["places", "born", "descendants"]) {
            assert!(maps.contains(std::ffi::OsStr::new(name)), "no map {name}");
        }
        select(&mut open, &["forward_without_address"], 4096).unwrap();
        let programs: BTreeSet<_> =
            open.progs().map(|program| program.name().to_os_string()).collect();
        let names = ["remember_address", "forward_with_address", "count_exits", "see_births"];
        for name in names.into_iter().chain(["forward_without_address"]) {
            assert!(programs.contains(std::ffi::OsStr::new(name)), "no program {name}");
        }
    }

    #[test]
    fn a_stream_may_be_handed_to_another_thread() {
        fn send<T: Send>() {}
        send::<FaultStream>();
    }
}
