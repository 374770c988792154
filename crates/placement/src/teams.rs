//! Teams: busy tasks of one process that share memory with each other and not with the rest.
//!
//! How often a page changes hands says how far a process is shared, and not by whom. But over a few
//! scans each region shows several of its users. If all `n` tasks shared everything, any two of them
//! would be seen in a region together equally often; so where no pair across a cut was seen although
//! many were to be expected, the process is cut there.
//!
//! Worked example: of 8 tasks 3 share one half of the memory and 5 the other, and 20 pairs were seen.
//! If all shared all, 20 × 15 ÷ 28 = 10 of these would be one of the 3 and one of the 5; none is, so
//! there are two teams. After 10 pairs it could be chance, and they are taken for one.
//!
//! Faults are taken by whoever comes first: one that lags behind the others of its team may hardly be
//! seen at all. So each team must have been seen in as many regions as its size lets expect, or half.
//! One that goes on to be seen with nobody is left out and the others' teams are told. Whoever is far from its
//! team lags, so it is taken for one of the team that is elsewhere ([`lagging`]), which mostly lets it take turns
//! with those ([`crate::turns`]).
//!
//! Source: numa/core's buddies (Molnar 2012) and mainline's groups tell them by the last task on a
//! page; here by regions, which several tasks fault in a scan.

use smallvec::{SmallVec, smallvec};

/// Up to so many tasks, which most processes have at most, all that is counted is kept in place.
const FEW: usize = 8;

/// A pair seen together less than 1 in this many times as often as either's strongest is none: slices
/// meet in a region, and a main thread touches everything once. Guessed.
const STRAY: u64 = 8;

/// Pairs across a cut that would have to be expected for none to be told from chance: e⁻⁸.
const SURE: u64 = 8;

/// Pairs with one task that would have to be expected for it to be left out, if none was seen. More than what tells
/// a cut, since most that are not seen yet soon are. Guessed; `docs/results/herd.md` has what others do.
const LEFT_OUT: u64 = 12;

/// Which tasks of a process were seen in its regions together.
pub struct Seen {
    count: usize,
    /// Of each two the lower one's row.
    together: SmallVec<[u64; FEW * FEW]>,
    /// Of each task, those that it was seen in.
    regions_of: SmallVec<[u64; FEW]>,
    regions: u64,
    pairs: u64,
}

/// What was seen tells.
enum Told {
    /// All of them are one team.
    One,
    /// The team of each, from 0; none of a task that lags behind.
    Teams(Vec<Option<usize>>),
    /// Nothing yet.
    Open,
}

impl Seen {
    /// Nobody yet, of so many tasks.
    #[must_use]
    pub fn new(count: usize) -> Seen {
        let (together, regions_of) = (smallvec![0; count * count], smallvec![0; count]);
        Seen { count, together, regions_of, regions: 0, pairs: 0 }
    }

    /// Takes in the users of a region, ascending, with their faults.
    pub fn region(&mut self, users: &[(usize, u64)]) {
        // As slices: to ask a small vector where it is, each time, takes longer than to count.
        let (together, regions_of) = (self.together.as_mut_slice(), self.regions_of.as_mut_slice());
        self.regions += u64::from(!users.is_empty());
        users.iter().for_each(|(task, _)| regions_of[*task] += 1);
        for (nth, &(a, of_a)) in users.iter().enumerate() {
            for &(b, of_b) in &users[nth + 1..] {
                together[a * self.count + b] += of_a.min(of_b);
            }
        }
        self.pairs += users.len() as u64 * users.len().saturating_sub(1) as u64 / 2;
    }

    /// The team of each task, from 0; none where they are one, or it cannot be told, nor of a task that lags
    /// behind.
    #[must_use]
    pub fn teams(&self) -> Option<Vec<Option<usize>>> {
        match self.told() {
            Told::Teams(teams) => Some(teams),
            Told::One | Told::Open => None,
        }
    }

    /// Whether they may be several teams, and it cannot be told yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.told() {
            Told::One => false,
            Told::Teams(teams) => teams.contains(&None),
            Told::Open => true,
        }
    }

    fn told(&self) -> Told {
        let count = self.count;
        let (together, regions_of) = (self.together.as_slice(), self.regions_of.as_slice());
        let mut strongest: SmallVec<[u64; FEW]> = smallvec![0; count];
        let strongest = strongest.as_mut_slice();
        for a in 0..count {
            for b in a + 1..count {
                let pair = together[a * count + b];
                strongest[a] = pair.max(strongest[a]);
                strongest[b] = pair.max(strongest[b]);
            }
        }
        let mut team: SmallVec<[usize; FEW]> = (0..count).collect();
        let team = team.as_mut_slice();
        for a in 0..count {
            for b in a + 1..count {
                let pair = together[a * count + b];
                let (from, to) = (team[a].max(team[b]), team[a].min(team[b]));
                if from != to && pair > 0 && pair * STRAY >= strongest[a].min(strongest[b]) {
                    team.iter_mut().filter(|team| **team == from).for_each(|team| *team = to);
                }
            }
        }
        if team.iter().all(|&one| one == 0) {
            return Told::One;
        }
        let sizes: SmallVec<[u64; FEW]> =
            (0..count).map(|one| team.iter().filter(|team| **team == one).count() as u64).collect();
        let all = count as u64;
        let expected = |size: &u64| self.pairs * size * (all - size) * 2 / (all * (all - 1));
        let is_seen = |one: usize| {
            let members = (0..count).filter(|&member| team[member] == one);
            members.map(|member| regions_of[member]).sum::<u64>() * all * 2
                >= self.regions * sizes[one]
        };
        let is_sure = |one: usize| expected(&sizes[one]) >= SURE && is_seen(one);
        let lags = |one: usize| sizes[one] == 1 && expected(&1) >= LEFT_OUT && !is_seen(one);
        let names: Vec<usize> = (0..count).filter(|&one| sizes[one] > 0 && !lags(one)).collect();
        if names.len() < 2 || !names.iter().all(|&one| is_sure(one)) {
            return Told::Open;
        }
        Told::Teams(team.iter().map(|one| names.binary_search(one).ok()).collect())
    }
}

/// Takes each task of no team for one of the only team that has nobody on its node, if there is just one: beside
/// its own it would keep up and be seen with them, and far from them it is slower and comes after. `nodes` are
/// the tasks' own.
pub fn lagging<N: PartialEq>(teams: &mut [Option<usize>], nodes: &[N]) {
    let count = teams.iter().flatten().max().map_or(0, |last| last + 1);
    let of_node = |node: &N, team: usize| {
        let mut all = teams.iter().zip(nodes);
        all.any(|(of, there)| *of == Some(team) && there == node)
    };
    let elsewhere = |node: &N| {
        let mut found = (0..count).filter(|&team| !of_node(node, team));
        found.next().filter(|_| found.next().is_none())
    };
    let told = |(of, node): (&Option<usize>, &N)| of.or_else(|| elsewhere(node));
    let all: SmallVec<[Option<usize>; FEW]> = teams.iter().zip(nodes).map(told).collect();
    teams.copy_from_slice(&all);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no team.
    const NONE: usize = usize::MAX;

    fn told(count: usize, regions: &[Vec<(usize, u64)>]) -> Option<Vec<usize>> {
        let mut seen = Seen::new(count);
        regions.iter().for_each(|users| seen.region(users));
        let teams = seen.teams()?;
        Some(teams.into_iter().map(|team| team.unwrap_or(NONE)).collect())
    }

    /// Regions that each show two tasks, as given.
    fn pairs(pairs: &[(usize, usize)]) -> Vec<Vec<(usize, u64)>> {
        pairs.iter().map(|&(a, b)| vec![(a, 1), (b, 1)]).collect()
    }

    #[test]
    fn three_and_five_are_two_teams_after_twenty_pairs() {
        // 10 pairs: each of the 3 and of the 5 with its neighbour, one way round and back
        let ring = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (3, 7), (3, 5), (4, 6)];
        assert_eq!(told(8, &pairs(&ring)), None);
        let twice = [ring, ring].concat();
        assert_eq!(told(8, &pairs(&twice)), Some(vec![0, 0, 0, 1, 1, 1, 1, 1]));
    }

    #[test]
    fn it_is_open_until_all_are_one_or_each_is_seen_to_be_of_a_team() {
        let is_open = |regions: &[(usize, usize)]| {
            let mut seen = Seen::new(8);
            pairs(regions).iter().for_each(|users| seen.region(users));
            seen.is_open()
        };
        let ring = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (3, 7), (3, 5), (4, 6)];
        assert!(is_open(&[]) && is_open(&ring));
        assert!(!is_open(&ring.repeat(2)), "two teams");
        assert!(!is_open(&[&ring[..], &[(2, 3)]].concat()), "one");
        let without = ring.map(|(a, b)| if b == 7 { (3, 6) } else { (a, b) });
        assert!(is_open(&without.repeat(6)), "the eighth lags");
    }

    #[test]
    fn whoever_shares_with_everybody_makes_it_one() {
        let ring: Vec<(usize, usize)> = (0..8).map(|a| (a, (a + 1) % 8)).collect();
        let ring: Vec<_> =
            ring.iter().map(|&(a, b)| (a.min(b), a.max(b))).cycle().take(80).collect();
        assert_eq!(told(8, &pairs(&ring)), None);
    }

    #[test]
    fn one_that_lags_behind_is_not_a_team() {
        // Three of four share all and take all faults but two.
        let three = pairs(&[(0, 1), (1, 2), (0, 2)]);
        let mut regions: Vec<_> = three.into_iter().cycle().take(30).collect();
        assert_eq!(told(4, &regions), None);
        regions.extend([vec![(3, 1)], vec![(3, 2)]]);
        assert_eq!(told(4, &regions), None);
        // With a part of the memory of its own it is.
        regions.extend((0..10).map(|_| vec![(3, 2)]));
        assert_eq!(told(4, &regions), Some(vec![0, 0, 0, 1]));
    }

    #[test]
    fn others_are_told_apart_where_one_goes_on_to_be_seen_with_nobody() {
        let ring = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (5, 6), (3, 6), (3, 5), (4, 6)];
        let times = |times| told(8, &pairs(&ring.repeat(times)));
        // Of 45 pairs a quarter would show the eighth task, 11; of 54, 13.
        assert_eq!(times(5), None);
        assert_eq!(times(6), Some(vec![0, 0, 0, 1, 1, 1, 1, NONE]));
        // If it is seen alone in a region or two, it lags behind all the same.
        let alone = [pairs(&ring.repeat(6)), vec![vec![(7, 1)]]].concat();
        assert_eq!(told(8, &alone), Some(vec![0, 0, 0, 1, 1, 1, 1, NONE]));
    }

    #[test]
    fn whoever_lags_is_of_the_team_that_is_elsewhere() {
        let told = |nodes: [u8; 8]| {
            let mut teams = [0, 0, 0, 1, 1, 1, 1].map(Some).to_vec();
            teams.push(None);
            lagging(&mut teams, &nodes);
            teams[7]
        };
        assert_eq!(told([0, 0, 0, 1, 1, 1, 1, 0]), Some(1));
        assert_eq!(told([0, 0, 0, 1, 1, 1, 1, 1]), Some(0));
        // Beside some of both teams, or of neither.
        assert_eq!(told([0, 0, 0, 1, 1, 1, 0, 0]), None);
        assert_eq!(told([0, 0, 0, 1, 1, 1, 1, 2]), None);
    }

    #[test]
    fn a_stray_touch_does_not_join_two_teams() {
        let mut regions = vec![vec![(0, 40), (1, 40)], vec![(2, 40), (3, 40)]];
        regions = regions.into_iter().cycle().take(40).collect();
        regions.push(vec![(0, 1), (2, 1)]);
        assert_eq!(told(4, &regions), Some(vec![0, 0, 1, 1]));
    }

    #[test]
    fn nothing_seen_is_nothing_told() {
        assert_eq!(told(0, &[]), None);
        assert_eq!(told(1, &[]), None);
        assert_eq!(told(8, &[]), None);
    }
}
