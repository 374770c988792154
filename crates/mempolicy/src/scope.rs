//! Which policy counts for a page, and what children inherit.
//!
//! The chain is: the range's own policy, or for a shared object the object's; then the task's;
//! then the system's, which is local. "Default" in a scope means the next one. An object's policy
//! is seen by everybody who maps it and needs no inheritance; it lasts as long as the object.
//!
//! | | task's policy | range's policy | object's policy |
//! |---|---|---|---|
//! | fork | copied | copied | stays with the object |
//! | exec | kept | gone with the ranges | stays with the object |
//!
//! Source: get_vma_policy, shmem_get_policy, Documentation/admin-guide/mm/numa_memory_policy.rst.
//!
//! ```
//! use numaherd_mempolicy::{Mode, Policy, Request, Room, scope::{Scope, Scopes}};
//! let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-1".parse().unwrap() };
//! let bind = Request::plain(Mode::Bind, "1".parse().unwrap());
//! let task = Policy::new(&bind, &room).unwrap();
//! let (scope, policy) = Scopes { range: None, task: task.as_ref() }.effective();
//! assert_eq!((scope, policy.map(|p| p.to_string())), (Scope::Task, Some("bind:1".into())));
//! ```

use crate::Policy;

/// Where the policy in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The range's (a VMA's), or the shared object's.
    Range,
    /// The task's.
    Task,
    /// The system's: local.
    System,
}

/// The policies of the scopes a page lies in; None is "default".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes<'a> {
    /// The policy of the range, or of that part of the shared object.
    pub range: Option<&'a Policy>,
    /// The policy of the task that touches it.
    pub task: Option<&'a Policy>,
}

impl<'a> Scopes<'a> {
    /// The policy in force, and whose it is; None with [`Scope::System`] is local.
    #[must_use]
    pub fn effective(self) -> (Scope, Option<&'a Policy>) {
        match (self.range, self.task) {
            (Some(range), _) => (Scope::Range, Some(range)),
            (None, Some(task)) => (Scope::Task, Some(task)),
            (None, None) => (Scope::System, None),
        }
    }
}

/// A task's policies: its own, and those of its private ranges in the caller's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// The task's.
    pub task: Option<Policy>,
    /// Its private ranges', with their first and last page.
    pub ranges: crate::ranges::Ranges,
}

impl Owned {
    /// What a child has after fork.
    #[must_use]
    pub fn after_fork(&self) -> Owned {
        self.clone()
    }

    /// What the task has after exec.
    #[must_use]
    pub fn after_exec(&self) -> Owned {
        Owned { task: self.task.clone(), ranges: crate::ranges::Ranges::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Request, Room};

    fn policy(mode: Mode, nodes: &str) -> Option<Policy> {
        let room = Room { allowed: "0-3".parse().unwrap(), memory: "0-3".parse().unwrap() };
        Policy::new(&Request::plain(mode, nodes.parse().unwrap()), &room).unwrap()
    }

    #[test]
    fn default_is_the_next_scope_and_local_is_not() {
        let (bind, local, none) =
            (policy(Mode::Bind, "1"), policy(Mode::Preferred, ""), policy(Mode::Default, ""));
        let effective = |range: &Option<Policy>, task: &Option<Policy>| {
            let (scope, policy) = Scopes { range: range.as_ref(), task: task.as_ref() }.effective();
            (scope, policy.map(ToString::to_string))
        };
        assert_eq!(effective(&none, &bind), (Scope::Task, Some("bind:1".into())));
        assert_eq!(effective(&local, &bind), (Scope::Range, Some("local".into())));
        assert_eq!(effective(&none, &none), (Scope::System, None));
    }

    #[test]
    fn fork_copies_everything_and_exec_keeps_the_tasks_own() {
        let mut owned = Owned { task: policy(Mode::Bind, "1"), ..Owned::default() };
        owned.ranges.set(4..8, policy(Mode::Interleave, "0-1").map(std::sync::Arc::new));
        assert_eq!(owned.after_fork(), owned);
        let after = owned.after_exec();
        assert_eq!(after.task, owned.task);
        assert!(after.ranges.iter().next().is_none());
    }
}
