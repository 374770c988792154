//! One turn of the loop, and what came of it.

use numaherd_check::Checker;
use numaherd_model::{
    Action, Actuate, CONVERGED_PERMILLE, HintingFault, Nanos, Observe, Outcome, Pages, Placement,
    Plan, SkipReason, Snapshot, Waiting, WorldError,
};

use crate::awake::Awake;
use crate::evidence::Evidence;
use crate::fewer::Fewer;
use crate::gaps::Gaps;
use crate::refusals::Refusals;
use crate::unmapped::Unmapped;
use crate::watch::{self, Watch};

/// What came of one turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// What was seen, evidence included.
    pub snapshot: Snapshot,
    /// What was planned.
    pub plan: Plan,
    /// What became of each action, in the plan's order.
    pub outcomes: Vec<Outcome>,
    /// Faults that came in since the last turn.
    pub faults: usize,
    /// The pages of those: a fault on a huge page is one of many pages.
    pub fault_pages: Pages,
    /// Accesses to memory that faults which were sampled since the last turn.
    pub samples: usize,
    /// Most who are busy were born since the last turn.
    pub renewed: bool,
}

/// Until then a task has just begun. Guessed.
const YOUNG: Nanos = Nanos(1_000_000_000);

/// From then on a program has begun in earnest, whatever it still starts. Guessed.
const BEGUN: Nanos = Nanos(3_000_000_000);

impl Turn {
    /// Pages that we moved in this turn.
    #[must_use]
    pub fn moved(&self) -> Pages {
        Pages(self.outcomes.iter().map(|outcome| outcome.moved().0).sum())
    }

    /// Whether a task was placed or memory moved.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.done().any(|action| !matches!(action, Action::ReleaseTask { .. }))
    }

    /// Whether all has converged, and not just because all have just begun, and may be about to start others.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.plan.converged && self.snapshot.tasks.iter().any(|task| task.age >= BEGUN)
    }

    /// Whether all tasks have just begun, and nobody has a place yet.
    #[must_use]
    pub fn has_just_begun(&self) -> bool {
        let tasks = &self.snapshot.tasks;
        tasks.iter().all(|task| task.age < BEGUN && task.home.is_none())
    }

    /// Whether some process has fewer busy tasks since this turn.
    #[must_use]
    pub fn has_fewer(&self) -> bool {
        self.snapshot.fewer.iter().any(|(_, since)| *since == self.snapshot.time)
    }

    /// Whether little is left to find out: nothing was planned, nearly all is local, and nobody has just begun.
    #[must_use]
    pub fn rests(&self) -> bool {
        let local = self.plan.converged || self.plan.strength_permille >= CONVERGED_PERMILLE;
        let old = self.snapshot.tasks.iter().all(|task| task.age >= YOUNG);
        local && old && self.plan.actions.is_empty()
    }

    /// Whether anything was done.
    #[must_use]
    pub fn acted(&self) -> bool {
        self.done().next().is_some()
    }

    /// What was done. Pages of which all stayed were only asked for.
    fn done(&self) -> impl Iterator<Item = &Action> {
        let done = |(action, outcome): &(&Action, &Outcome)| match action {
            Action::MovePages { .. } => outcome.moved().0 > 0,
            _ => !matches!(outcome, Outcome::Skipped(_)),
        };
        self.plan.actions.iter().zip(&self.outcomes).filter(done).map(|(action, _)| action)
    }
}

/// Holds a placement, its check and the evidence together.
#[derive(Debug)]
pub struct Controller<P> {
    placement: P,
    checker: Checker,
    evidence: Evidence,
    unmapped: Unmapped,
    /// None where only faults are to tell.
    gaps: Option<Gaps>,
    awake: Awake,
    fewer: Fewer,
    refusals: Refusals,
    watch: Watch,
    /// Another phase began of which the placement has not been told.
    untold: bool,
    /// When the last turn looked.
    looked: Option<Nanos>,
    faults: Vec<HintingFault>,
}

impl<P: Placement> Controller<P> {
    /// With no evidence yet.
    pub fn new(placement: P) -> Self {
        let (checker, evidence) = (Checker::new(), Evidence::new());
        let (refusals, watch) = (Refusals::default(), Watch::new(true));
        let (gaps, awake) = (Some(Gaps::default()), Awake::default());
        let (untold, looked, faults) = (false, None, Vec::new());
        Controller {
            placement,
            checker,
            evidence,
            unmapped: Unmapped::default(),
            gaps,
            awake,
            fewer: Fewer::default(),
            refusals,
            watch,
            untold,
            looked,
            faults,
        }
    }

    /// Whether faults that tell of another phase are heard; they are, by default.
    #[must_use]
    pub fn stirs(mut self, on: bool) -> Self {
        self.watch = Watch::new(on);
        self
    }

    /// Whether page tables tell where faults do not yet; they do, by default.
    #[must_use]
    pub fn tables(mut self, on: bool) -> Self {
        self.gaps = on.then(Gaps::default);
        self
    }

    /// Whether these faults, all since the last turn, tell of another phase, so that the next turn
    /// should not wait.
    #[must_use]
    pub fn is_stirred(&self, faults: &[HintingFault]) -> bool {
        self.watch.is_stirred(faults)
    }

    /// One turn: looks, decides, checks, and does what the check let through.
    ///
    /// # Errors
    /// The machine cannot be read, or changes cannot be written down; what was done so far
    /// stays done and is written down.
    pub fn turn<M: Observe + Actuate>(&mut self, machine: &mut M) -> Result<Turn, WorldError> {
        let (snapshot, plan) = self.plan(machine)?;
        let verdicts = self.checker.review(&plan, &snapshot);
        let passed = plan.actions.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_none());
        let passed: Vec<&Action> = passed.map(|(action, _)| action).collect();
        let mut done = machine.apply(&passed)?.into_iter();
        let mut outcomes = Vec::with_capacity(plan.actions.len());
        for (action, verdict) in plan.actions.iter().zip(verdicts) {
            let outcome = match verdict {
                Some(problem) => Outcome::Skipped(SkipReason::Checked {
                    problem: problem.to_string(),
                    short: problem.short_of_memory(),
                }),
                None => done.next().unwrap_or(Outcome::Skipped(SkipReason::Gone)),
            };
            self.learn(action, &outcome);
            self.refusals.learn(action, &outcome, snapshot.time);
            outcomes.push(outcome);
        }
        let of_kernel = self.faults.iter().filter(|fault| !fault.is_sample());
        let (faults, pages) =
            of_kernel.fold((0, 0), |(count, pages), fault| (count + 1, pages + fault.pages.0));
        let (fault_pages, samples) = (Pages(pages), self.faults.len() - faults);
        let before = self.looked.replace(snapshot.time);
        let renewed = before.is_some_and(|before| is_renewed(&snapshot, before));
        let turn = Turn { snapshot, plan, outcomes, faults, fault_pages, samples, renewed };
        if turn.acted() {
            self.watch.acted(turn.snapshot.time);
        }
        Ok(turn)
    }

    /// Looks and decides, without acting.
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn plan(&mut self, machine: &mut impl Observe) -> Result<(Snapshot, Plan), WorldError> {
        self.faults.clear();
        let observed = machine.observe(&mut self.faults);
        if matches!(observed, Err(WorldError::NoTasks)) {
            // Nothing of those who have ended is to be kept for however long nobody comes.
            self.evidence = Evidence::new();
        }
        let mut snapshot = observed?;
        let looks_again = self.awake.settle(&mut snapshot);
        self.fewer.fill(&mut snapshot);
        snapshot.stirred = self.watch.is_stirred(&self.faults);
        // Of those that tell of another phase, the first may be of the one before.
        let (before, since) = watch::split(&self.faults);
        let begins = since.first().map_or(snapshot.time, |fault| fault.time);
        self.evidence.add(before, &snapshot);
        if snapshot.stirred {
            self.evidence.fade(begins, &self.watch.who(&self.faults), &snapshot);
            self.watch.stirred(snapshot.time);
        }
        snapshot.stirred |= std::mem::take(&mut self.untold);
        self.evidence.add(since, &snapshot);
        machine.is_at_work();
        self.unmapped.forget(machine, &mut self.evidence, &snapshot);
        machine.is_at_work();
        self.evidence.fill(&mut snapshot);
        machine.is_at_work();
        if looks_again {
            self.untold = snapshot.stirred;
            let waiting = Some(Waiting::Look);
            return Ok((snapshot, Plan { waiting, ..Plan::default() }));
        }
        if let Some(gaps) = &mut self.gaps {
            gaps.fill(machine, &mut snapshot);
        }
        self.refusals.fill(&mut snapshot);
        machine.is_at_work();
        let plan = self.placement.decide(&snapshot);
        machine.is_at_work();
        if !snapshot.stirred && self.watch.is_surprised(&plan, &self.faults) {
            self.evidence.fade(begins, &self.watch.who(&self.faults), &snapshot);
            self.watch.stirred(snapshot.time);
            self.untold = true;
        }
        self.awake.turned(plan.converged);
        self.watch.turned(plan.converged.then_some(plan.strength_permille), &snapshot);
        machine.is_at_work();
        Ok((snapshot, plan))
    }

    /// Notes where pages are now. Where more than a few stayed, the next faults will tell.
    fn learn(&mut self, action: &Action, outcome: &Outcome) {
        if let (Action::MovePages { region, to, .. }, true) = (action, outcome.is_as_good_as_done())
        {
            self.evidence.moved(*region, *to);
        }
    }
}

/// Whether most who are busy were born since then, and are young.
fn is_renewed(snapshot: &Snapshot, before: Nanos) -> bool {
    let since = snapshot.time.since(before).min(YOUNG);
    let busy = snapshot.tasks.iter().filter(|task| task.claims_cpu());
    let (count, new) =
        busy.fold((0, 0), |(count, new), task| (count + 1, new + usize::from(task.age < since)));
    new * 2 > count
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene, task_id};
    use numaherd_model::{Bytes, NodeId, Pages, Reason, Refusal, RegionId};

    pub fn snapshot(tasks: u32) -> Snapshot {
        let mut scene = Scene::even(2, 2);
        scene.busy(tasks);
        scene.snapshot()
    }

    /// A turn that found nothing, and in which nothing was done.
    pub fn turn(snapshot: Snapshot, plan: Plan) -> Turn {
        let (outcomes, fault_pages) = (Vec::new(), Pages(0));
        Turn { snapshot, plan, outcomes, faults: 0, fault_pages, samples: 0, renewed: false }
    }

    /// A machine that notes what it is told to do.
    struct Notebook(Vec<Action>);

    impl Observe for Notebook {
        fn observe(&mut self, _: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
            Ok(snapshot(1))
        }
    }

    impl Actuate for Notebook {
        fn apply(&mut self, actions: &[&Action]) -> Result<Vec<Outcome>, WorldError> {
            self.0.extend(actions.iter().map(|action| (*action).clone()));
            Ok(actions.iter().map(|_| Outcome::Done { moved: Pages(3) }).collect())
        }
    }

    /// A canary: plans one sound action and one that must never be done.
    struct Canary;

    impl Placement for Canary {
        fn decide(&mut self, _: &Snapshot) -> Plan {
            let place = |cpus: &str| Action::PlaceTask {
                task: task_id(1),
                node: NodeId(0),
                cpus: cpus.parse().unwrap(),
                reason: Reason::Balance,
            };
            Plan { actions: vec![place("3"), place("0-1")], ..Plan::default() }
        }
    }

    #[test]
    fn pages_that_all_stayed_are_no_act() {
        let (region, len) = (RegionId { process: PROCESS, start: 1 << 30 }, Bytes(2 << 20));
        let (to, pages, reason) = (NodeId(1), Pages(512), Reason::MemoryThere { permille: 900 });
        let moves = Action::MovePages { region, len, to, pages, reason };
        let acted = |outcome| {
            let plan = Plan { actions: vec![moves.clone()], ..Plan::default() };
            Turn { outcomes: vec![outcome], ..turn(snapshot(1), plan) }.acted()
        };
        let part = |moved| Outcome::Partial {
            moved: Pages(moved),
            refused: Refusal { busy: 512, ..Refusal::default() },
        };
        assert!(!acted(part(0)) && acted(part(1)));
        assert!(acted(Outcome::Done { moved: Pages(512) }));
        assert!(!acted(Outcome::Skipped(SkipReason::Gone)));
    }

    /// A machine on which all end, and others come later.
    #[test]
    fn nothing_is_kept_of_those_who_have_ended_while_nobody_is_left() {
        struct Comings(u32);
        impl Observe for Comings {
            fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
                self.0 += 1;
                if self.0 == 2 {
                    return Err(WorldError::NoTasks);
                }
                faults.push(crate::evidence::tests::fault(1, 1 << 30, 0, None));
                Ok(snapshot(1))
            }
        }
        let mut controller = Controller::new(Canary);
        let mut machine = Comings(0);
        let mut known = || {
            let planned = controller.plan(&mut machine).is_ok();
            (planned, controller.evidence.regions().len())
        };
        assert_eq!([known(), known(), known()], [(true, 1), (false, 0), (true, 1)]);
    }

    #[test]
    fn what_the_check_refuses_is_not_done_and_says_why() {
        let mut machine = Notebook(Vec::new());
        let turn = Controller::new(Canary).turn(&mut machine).unwrap();
        assert_eq!(machine.0.len(), 1);
        assert!(
            matches!(&turn.outcomes[0], Outcome::Skipped(SkipReason::Checked { problem, .. }) if problem.contains("'3'"))
        );
        assert_eq!(turn.outcomes[1], Outcome::Done { moved: Pages(3) });
        assert_eq!((turn.moved(), turn.acted()), (Pages(3), true));
    }

    #[test]
    fn what_has_converged_is_settled_once_somebody_is_old() {
        let turn = |age: u64, converged| {
            let mut snapshot = snapshot(2);
            snapshot.tasks.iter_mut().for_each(|task| task.age = Nanos(0));
            snapshot.tasks[0].age = Nanos(age);
            let plan = Plan { converged, ..Plan::default() };
            super::tests::turn(snapshot, plan)
        };
        let settled = |age, converged| turn(age, converged).is_settled();
        assert!(settled(BEGUN.0, true) && !settled(BEGUN.0 - 1, true) && !settled(BEGUN.0, false));
    }

    #[test]
    fn a_program_is_renewed_where_most_who_are_busy_are_new() {
        let renewed = |ages: [u64; 3]| {
            let mut snapshot = snapshot(3);
            snapshot.time = Nanos(5000);
            let tasks = snapshot.tasks.iter_mut();
            tasks.zip(ages).for_each(|(task, age)| task.age = Nanos(age));
            is_renewed(&snapshot, Nanos(4000))
        };
        assert!(renewed([999, 1, 3000]) && renewed([0; 3]));
        assert!(!renewed([999, 1000, 3000]) && !renewed([1000; 3]));
        // A look that came late.
        let mut snapshot = snapshot(1);
        snapshot.time = Nanos(9 * YOUNG.0);
        snapshot.tasks[0].age = YOUNG;
        assert!(!is_renewed(&snapshot, Nanos(0)));
    }

    /// A placement to which all has converged, and that notes when it was stirred.
    #[derive(Default)]
    struct Content(Vec<bool>);

    impl Placement for Content {
        fn decide(&mut self, snapshot: &Snapshot) -> Plan {
            self.0.push(snapshot.stirred);
            Plan { converged: true, strength_permille: 1000, ..Plan::default() }
        }
    }

    /// A machine with so many remote faults on huge pages at each look.
    struct Remote(Vec<usize>);

    impl Observe for Remote {
        fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
            let fault = HintingFault {
                pages: Pages(512),
                ..crate::evidence::tests::fault(1, 1 << 30, 0, None)
            };
            faults.extend(std::iter::repeat_n(fault, self.0.remove(0)));
            Ok(snapshot(1))
        }
    }

    #[test]
    fn remote_faults_stir_once_all_has_converged() {
        let looks = |on| {
            let mut controller = Controller::new(Content::default()).stirs(on);
            let mut machine = Remote(vec![8, 3, 4, 8]);
            (0..4).for_each(|_| _ = controller.plan(&mut machine).unwrap());
            controller.placement.0
        };
        // the fourth: nothing came of the third
        assert_eq!(looks(true), [false, false, true, false]);
        assert_eq!(looks(false), [false; 4]);
    }

    /// A placement that has a task go, to where its memory is or for another reason, at its second look.
    struct Mover(Reason, Vec<bool>);

    impl Placement for Mover {
        fn decide(&mut self, snapshot: &Snapshot) -> Plan {
            self.1.push(snapshot.stirred);
            let (task, node, cpus) = (task_id(1), NodeId(0), "0-1".parse().unwrap());
            let place = Action::PlaceTask { task, node, cpus, reason: self.0.clone() };
            let first = self.1.len() != 2;
            let actions = if first { Vec::new() } else { vec![place] };
            Plan { actions, converged: first, strength_permille: 1000, ..Plan::default() }
        }
    }

    #[test]
    fn a_plan_that_moves_tasks_after_all_had_converged_is_told_of_as_another_phase() {
        let looks = |reason, faults: [usize; 3]| {
            let mut controller = Controller::new(Mover(reason, Vec::new()));
            let mut machine = Remote(faults.to_vec());
            (0..3).for_each(|_| _ = controller.plan(&mut machine).unwrap());
            controller.placement.1
        };
        let there = Reason::MemoryThere { permille: 900 };
        assert_eq!(looks(there.clone(), [3, 1, 0]), [false, false, true]);
        assert_eq!(looks(there, [3, 0, 0]), [false; 3], "nobody was seen elsewhere");
        assert_eq!(looks(Reason::Balance, [3, 1, 0]), [false; 3]);
    }
}
