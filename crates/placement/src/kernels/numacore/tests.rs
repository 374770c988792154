//! Kinds, averages, and who goes where.

use super::*;

#[test]
fn private_and_shared_have_hysteresis() {
    assert_eq!(kind_of(Kind::Unknown, &[[5, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Private, &[[9, 0], [0, 5]]), Kind::Private);
    assert_eq!(kind_of(Kind::Private, &[[10, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Shared, &[[3, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Shared, &[[2, 0], [0, 5]]), Kind::Private);
}

#[test]
fn averages_follow_and_a_stronger_buddy_takes_over() {
    let mut task = Task::new(2);
    task.new = vec![[0, 1600], [0, 0]];
    let buddy = TaskId { tid: 1, start: 1 };
    (task.candidate, task.candidate_faults) = (Some(buddy), 400);
    task.average(PAST_V18);
    // (15 × 0 + 1600) / 16.
    assert_eq!((task.faults[0], task.strength), ([0, 100], 1024));
    assert_eq!(kind_of(Kind::Unknown, &task.faults), Kind::Private);
    assert_eq!((task.converged_on, task.buddy, task.buddy_faults), (Some(0), Some(buddy), 400));
    task.average(PAST_V18);
    // (15 × 100 + 0) / 16, and 3 × 400 / 4.
    assert_eq!((task.faults[0][1], task.buddy_faults), (93, 300));
}
