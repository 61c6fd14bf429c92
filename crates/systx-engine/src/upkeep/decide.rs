//! For whom a decision is kept, and when it goes: pure functions, tested over all of their inputs.

use crate::domain::decisions::{By, Decision};
use crate::record::Share;
use crate::recovery::Decision as Verdict;

/// The end of a person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByHand {
    /// The coordinator has not returned: it stays.
    Stays,
    /// The coordinator has decided the same.
    Goes,
    /// The coordinator has decided otherwise: half of the transaction is there.
    IsReported,
}

/// Returns a person's decision in the coordinator's words.
pub(super) fn verdict_of(decision: &Decision) -> Verdict {
    if decision.committed {
        Verdict::Forward
    } else {
        Verdict::Abort
    }
}

/// Returns true if some party can still ask for a decision: a participant, or in the same boot a companion,
/// which lives no longer. A person's decision stays until it is compared.
pub(super) fn is_awaited(
    by: &By,
    this_boot: &[u8; 16],
    mut may_ask: impl FnMut(&Share) -> bool,
    mut is_in_flight: impl FnMut(&Share) -> bool,
) -> bool {
    match by {
        By::Record { participants, companions, boot, .. } => {
            participants.iter().any(&mut may_ask)
                || boot == this_boot && companions.iter().any(&mut is_in_flight)
        }
        By::Hand { .. } => true,
    }
}

/// Returns true if people are to hear that an absent file system has not heard of a decision.
pub(super) fn is_shown(by: &By, is_away: impl FnMut(&Share) -> bool) -> bool {
    match by {
        By::Record { participants, silenced, .. } => !silenced && participants.iter().any(is_away),
        By::Hand { .. } => false,
    }
}

/// Compares a person's decision with that of the coordinator.
pub(super) fn by_hand(person: Verdict, coordinator: Verdict) -> ByHand {
    match coordinator {
        Verdict::Unknown => ByHand::Stays,
        decided if decided == person => ByHand::Goes,
        _ => ByHand::IsReported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TxId;

    const BOOTS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

    fn share(n: u8) -> Share {
        Share { area: [n; 16], id: TxId(u64::from(n)) }
    }

    fn record(silenced: bool) -> By {
        By::Record {
            participants: vec![share(1), share(2)],
            companions: vec![share(3)],
            boot: BOOTS[0],
            silenced,
        }
    }

    #[test]
    fn a_decision_stays_as_long_as_some_party_can_ask_for_it() {
        for asking in [None, Some(share(1)), Some(share(2))] {
            for (in_flight, boot) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
                let awaited =
                    |by: &By| is_awaited(by, &BOOTS[boot], |party| Some(*party) == asking, |_| in_flight);
                let expected = asking.is_some() || in_flight && boot == 0;
                for silenced in [false, true] {
                    assert_eq!(awaited(&record(silenced)), expected, "{asking:?} {in_flight} {boot}");
                }
                assert!(awaited(&By::Hand { coordinator: share(1) }));
            }
        }
    }

    #[test]
    fn people_hear_of_absent_participants_unless_they_silence_it() {
        for (away, silenced, expected) in
            [(false, false, false), (true, false, true), (false, true, false), (true, true, false)]
        {
            assert_eq!(is_shown(&record(silenced), |_| away), expected, "{away} {silenced}");
            assert!(!is_shown(&By::Hand { coordinator: share(1) }, |_| away));
        }
    }

    #[test]
    fn a_persons_decision_is_compared_when_the_coordinator_is_back() {
        for (coordinator, committed, aborted) in [
            (Verdict::Unknown, ByHand::Stays, ByHand::Stays),
            (Verdict::Forward, ByHand::Goes, ByHand::IsReported),
            (Verdict::Abort, ByHand::IsReported, ByHand::Goes),
        ] {
            assert_eq!(by_hand(Verdict::Forward, coordinator), committed, "{coordinator:?}");
            assert_eq!(by_hand(Verdict::Abort, coordinator), aborted, "{coordinator:?}");
        }
    }
}
