//! Whose pass goes next where several queues share one set of threads: a state machine over given
//! times, as [`Queue`](super::Queue) is.

use std::time::Duration;

/// How long each of several lanes has been served. A lane is a queue whose passes take turns with
/// those of the other lanes.
///
/// Whoever has been served the least goes next, so lanes that always have a pass due get the same
/// time each, however many requests wait in them. A lane that comes back after a rest begins at the
/// least that the others have: it goes soon, but cannot claim the time that it did not use. A pass
/// is never interrupted, so a lane waits for one pass of another at most before its turn comes.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// By lane; `None` for one that left.
    served: Vec<Option<Duration>>,
    /// What the lane had that went last: the least of all that had a pass due.
    least: Duration,
}

impl Turns {
    /// Takes in one more lane; its number.
    pub fn join(&mut self) -> usize {
        match self.served.iter().position(Option::is_none) {
            Some(lane) => {
                self.served[lane] = Some(self.least);
                lane
            }
            None => {
                self.served.push(Some(self.least));
                self.served.len() - 1
            }
        }
    }

    /// Forgets a lane; its number may be another's from now on.
    pub fn leave(&mut self, lane: usize) {
        if let Some(served) = self.served.get_mut(lane) {
            *served = None;
        }
    }

    /// Who of the lanes that have a pass `due` goes next; the first of those that are equal.
    pub fn next(&mut self, due: impl IntoIterator<Item = usize>) -> Option<usize> {
        let mut first: Option<(Duration, usize)> = None;
        for lane in due {
            let Some(Some(served)) = self.served.get_mut(lane) else { continue };
            *served = (*served).max(self.least);
            if first.is_none_or(|(least, _)| *served < least) {
                first = Some((*served, lane));
            }
        }
        let (least, lane) = first?;
        self.least = least;
        Some(lane)
    }

    /// Takes note that a pass of `lane` took so long.
    pub fn served(&mut self, lane: usize, took: Duration) {
        if let Some(Some(served)) = self.served.get_mut(lane) {
            // A pass too short for the clock counts too: otherwise its lane would go for ever.
            *served += took.max(Duration::from_nanos(1));
        }
    }
}
